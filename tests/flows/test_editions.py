"""Which outputs exist is declared: by editions, one an ingest, and by a calendar; never by what one person brought."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from flows.cli import app
from pipeline.ledger.ledger import open_ledger
from tests.flows.shop import lay_out, rows


@dataclass
class Seen:
    """All of a history that anybody but the operator can see, and what the ledger was charged."""

    runs: list[str]
    codes: list[int]
    entries: list[tuple[str, str]]


def reticent(home: Path, *words: object) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["--home", str(home), *map(str, words), "--json"])
    start = done.stdout.find("{")
    return done.exit_code, json.loads(done.stdout[start:]) if start >= 0 else {}


def seen(home: Path, codes: list[int]) -> Seen:
    entries = open_ledger(home / "ledger.db", create=False).entries()
    told = [(e.kind, str(e.body.get("rho"))) for e in entries]
    return Seen(sorted(p.name for p in (home / "runs").iterdir()), codes, told)


def by_hand(folder: Path, deliveries: list[list[tuple]]) -> Seen:
    """Every delivery is ingested and run by hand."""
    codes: list[int] = []
    for log in deliveries:
        shop = lay_out(folder / "shop", log=log, cap=9.0)
        codes.append(reticent(folder / "home", "ingest", shop)[0])
        codes.append(reticent(folder / "home", "run", shop / "private.toml")[0])
    return seen(folder / "home", codes)


def test_one_cell_of_one_person_does_not_decide_which_runs_exist(tmp_path: Path) -> None:
    log = rows(100)
    changed = [*log[0][:5], 2 - log[0][5], *log[0][6:], *log[1:]]
    same, other = by_hand(tmp_path / "a", [log, log]), by_hand(tmp_path / "b", [log, changed])
    assert same == other
    assert len(same.runs) == 2 and same.codes == [0] * 4
    assert [rho for kind, rho in same.entries if kind == "INTENT"] == ["1", "1"]
