"""Sizes of report pages and the time to draw them, by family: ``python -P -m tests.benchmarks.report_speed``.

Small logs: a page's size depends on what is declared (states, actions, steps), not on how many people are in the log.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

from pipeline.learners.offline_agents import read_view
from reports.facts.report import read_report
from reports.run.run_page import render_html, render_markdown
from tests.reports.pages import reports
from tests.reports.sample import sample_report, sample_view

_ROUNDS = 7


def main() -> None:
    """Print a row a page."""
    head = "".join(f"{name:>9}" for name in ("html kB", "md kB", "json kB", "html s", "md s"))
    print(f"{'page':30}{head}   CPU seconds, median of {_ROUNDS}")
    with tempfile.TemporaryDirectory() as folder:
        for name, page in reports(Path(folder)).items():
            facts = read_report(page.parent)
            view = read_view(facts, page.parent)
            _row(name, facts, view)
    for states, actions, steps in ((4, 25, 20), (40, 25, 50), (716, 25, 20), (716, 25, 100)):
        labels, choices = [f"state {i}" for i in range(states)], [f"action {i}" for i in range(actions)]
        facts = sample_report(dataset={"live_states": labels, "actions": choices, "horizon": steps})
        _row(f"{states} states × {actions} × {steps}", facts, sample_view(steps, labels, choices, scattered=True))


def _row(name, facts, view) -> None:
    made, seconds = {}, {}
    for kind, draw in (("html", render_html), ("md", render_markdown)):
        times = []
        for _ in range(_ROUNDS):
            start = time.process_time()
            made[kind] = len(draw(facts, view).encode())
            times.append(time.process_time() - start)
        seconds[kind] = statistics.median(times)
    sizes = made["html"], made["md"], len(json.dumps(facts.model_dump(), indent=2, ensure_ascii=False).encode())
    cells = [*(f"{size / 1000:.1f}" for size in sizes), *(f"{seconds[kind]:.2f}" for kind in ("html", "md"))]
    print(f"{name:30}" + "".join(f"{cell:>9}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
