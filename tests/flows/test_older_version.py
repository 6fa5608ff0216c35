"""A run that an older version made: the ledger proves its files and its charge, and says what was not made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flows.jobs.made_again as again
import flows.jobs.run as reading
import reports.run.run_page as drawing
from reticent import CardError
from tests.flows.office import chained, edit, exported, made, office, reticent, vouch_for
from tests.jobs import home_at, run_job

__all__ = ["made", "office"]
OLDER = "not made again: older version (source 0123456789abcdef"


@pytest.fixture
def aged(office, monkeypatch) -> tuple[Path, str]:
    """A run whose PUBLISH entry says that another version of the program made it."""
    root, _ = office
    now = reading.maker()
    with monkeypatch.context() as then:
        then.setattr(reading, "maker", lambda: {**now, "source": "0123456789abcdef"})
        return root, run_job(str(root / "people" / "both.toml"), home_at(root / "home"))["run"]


def _removed(*_: object) -> Any:
    raise CardError("recipe.toml: [privacy] release = 'two_tables' is gone; take one_table")


def other_key(patch: pytest.MonkeyPatch) -> None:
    """The version of what is released is part of its key."""
    patch.setattr(again, "key_of", lambda *_: "0" * 64)


def other_sums(patch: pytest.MonkeyPatch) -> None:
    """Today's mechanism moves further with a person."""
    patch.setattr(again, "_charge_problem", lambda *_: "entry 3 was charged for other mechanisms")


def removed(patch: pytest.MonkeyPatch) -> None:
    """The recipe asks for what no longer is."""
    patch.setattr(again, "load_recipe", _removed)


def other_page(patch: pytest.MonkeyPatch) -> None:
    """The page has other words."""
    patch.setattr(drawing, "render_html", lambda *_: "<html>newer</html>")


def other_joint(patch: pytest.MonkeyPatch) -> None:
    """Bounds and forms of files are others: the run has no joint loss, so its certificate's form stands for both."""
    found = again.Check("the certificate has the form of its schema", False, "top: 'survives' is a required property")
    patch.setattr("pipeline.ledger.verify._against_schema", lambda _: found)


CHANGES: list[Callable[[pytest.MonkeyPatch], None]] = [other_key, other_sums, removed, other_page, other_joint]


@pytest.mark.parametrize("change", CHANGES)
def test_what_an_older_version_made_is_proved_by_the_ledger_and_called_so(aged, monkeypatch, change):
    root, run = aged
    change(monkeypatch)
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 0 and proof["ok"] and proof["vouched"] and proof["problem"] is None
    unproved = [c for c in proof["checks"] if not c["ok"]]
    assert unproved and all(c["ok"] is None and c["found"].startswith(OLDER) for c in unproved)
    proved = {c["what"] for c in proof["checks"] if c["ok"]}
    assert {
        "the ledger vouches for every file of the folder",
        "that entry is signed by a key that is trusted",
        "the loss, recomputed from the listed mechanisms",
        "the ledger holds this very entry",
        "the ledger was charged for these mechanisms",
    } <= proved
    assert reticent(root, "promote", run)[1]["vouched"]


@pytest.mark.parametrize("change", CHANGES)
def test_what_todays_version_made_is_wrong_all_the_same(office, monkeypatch, change):
    root, run = office
    change(monkeypatch)
    code, proof = reticent(root, "ledger", "verify", run)
    assert code == 4 and not proof["ok"]


def test_an_older_version_that_charged_too_little_is_wrong_even_where_it_vouches_for_it(aged):
    """Of an insider's claim the charge is proved all the same: what the files list is not what the ledger has."""
    root, run = aged
    folder = root / "home" / "runs" / run

    def cheaper(facts: dict) -> None:
        facts["mechanisms"][0]["variance"] *= 4

    for file in ("certificate.json", "release.json", "report.json"):
        edit(folder / file, cheaper)
    vouch_for(root, run)
    assert reticent(root, "ledger", "verify", run)[0] == 4


def test_nobody_becomes_an_older_version_by_saying_so(office, tmp_path, monkeypatch):
    """A ledger whose PUBLISH was rewritten to name another version: its chain is whole, and its signature is not."""
    root, run = office
    entries = exported(root, tmp_path / "all.json")
    assert entries[-1]["kind"] == "PUBLISH"
    entries[-1]["body"]["made_by"]["source"] = "0" * 16
    other_sums(monkeypatch)
    forged = chained(entries, tmp_path / "forged.json")
    code, proof = reticent(root, "ledger", "verify", run, "--ledger", forged)
    assert code == 4 and any("signature is wrong" in c["found"] for c in proof["checks"])
    assert not any("older version" in c["found"] for c in proof["checks"])
