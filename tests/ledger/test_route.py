"""A certificate says what holds on the route of its run: by hand, by a calendar, by a counter, without noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reticent import Store
from tests.flows.nights import Shop, customers
from tests.flows.shop import lay_out, rows
from tests.jobs import home_at, ingest_job, nightly_job, run_job

SAYS: dict[str, list[str]] = {
    "hand": ["somebody asked for this run", "what the terminal told them of the rows is not accounted for"],
    "calendar": ["a release was due on 20", "everybody in the log is charged again"],
    "counter": ["every date on which the job ran has its night", "a person counts on the first night"],
    "exact": ["every output depends on the rows", "nothing was charged", "no sensitivity is claimed"],
}


def certificate(home: Any, run: dict[str, Any]) -> dict[str, Any]:
    made = Store(home.root).open(run["run"])
    assert made.verify().problem is None
    told = json.loads((made.folder / "certificate.json").read_text(encoding="utf-8"))
    assert made.certificate.model_dump() == told
    return told


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    shop, home = lay_out(tmp_path / "plain", log=rows(40), cap=9.0), home_at(tmp_path / "plain" / "home")
    night = nightly_job(str(shop / "private.toml"), home)
    found = {"calendar": certificate(home, night)}
    assert f"a release was due on {night['night']['due']}" in json.dumps(found["calendar"])
    ingest_job(str(shop), home)
    found |= {
        by: certificate(home, run_job(str(shop / f"{n}.toml"), home))
        for by, n in (("hand", "both"), ("exact", "exact"))
    }
    nights = Shop(tmp_path / "nights", monkeypatch, nights=4)
    return found | {"counter": certificate(nights.home, nights.night(1, customers(0, 40)))}


def test_each_route_says_what_holds_there_and_nothing_of_the_others(made: dict[str, dict[str, Any]]) -> None:
    for by, proof in made.items():
        text = json.dumps(proof)
        for other, sentences in SAYS.items():
            assert all((s in text) is (other == by) for s in sentences), (by, other)
        assert ("which outputs exist does not depend on the rows" in text) is (by != "exact")
