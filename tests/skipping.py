"""A suite that cannot pass quietly: with RETICENT_SKIPS set, a skip that is not on the list fails the run.

``RETICENT_SKIPS=listed`` lets the tests of ``skips.toml`` be skipped, ``RETICENT_SKIPS=none`` lets none.
"""

import os
import tomllib
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("skips.toml")


class SkipGuard:
    """Collects what was skipped, in this process or in workers, and turns the exit status."""

    def __init__(self, rule: str) -> None:
        if rule not in ("listed", "none"):
            raise pytest.UsageError(f"RETICENT_SKIPS is listed or none; got {rule!r}")
        self.allowed = tuple(tomllib.loads(LIST.read_text(encoding="utf-8"))) if rule == "listed" else ()
        self.found: list[str] = []

    def _keep(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and not report.nodeid.startswith(self.allowed or "\0"):
            self.found.append(f"{report.nodeid}: {report.longrepr[2] if isinstance(report.longrepr, tuple) else ''}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._keep(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._keep(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.found:
            terminalreporter.write_line(f"SKIPPED BUT NOT ON THE LIST {line}", red=True)


def guard(config: pytest.Config) -> None:
    """Register the guard in the process that reports, where the environment asks for it."""
    rule = os.environ.get("RETICENT_SKIPS", "")
    if rule and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipGuard(rule), "skip-guard")
