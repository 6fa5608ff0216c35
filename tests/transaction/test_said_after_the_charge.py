"""What fails after the charge does not say that nothing was read: the rows were, and the charge stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.transaction import transaction
from tests.flows.shop import lay_out
from tests.flows.verb import reticent as run
from tests.jobs import entries_of, home_at

RECIPE = """
[recipe]
name = "judged"
card = "card.toml"
agent = "dp-apvi"
[privacy]
rho = 1.0
[evaluate]
people = 0.3
"""


def intents(home: Path) -> int:
    return sum(e["kind"] == "INTENT" for e in entries_of(home_at(home)))


@pytest.fixture
def shop(tmp_path) -> Path:
    folder = lay_out(tmp_path / "shop")
    card = folder / "card.toml"
    card.write_text(card.read_text().replace("users_public = 400", "users_public = 4000"))
    (folder / "judged.toml").write_text(RECIPE)
    for verb in ("register", "ingest"):
        assert run(verb, folder / "card.toml", cwd=tmp_path).returncode == 0
    return folder


def refused_after_the_charge(shop: Path) -> str:
    done = run("run", shop / "judged.toml", cwd=shop.parent)
    assert done.returncode == 4, done.stderr
    said = done.stderr.lower()
    assert "damaged" in said or "may not write" in said or "does not exist" in said
    assert "nothing was read" not in said and "nothing was charged" not in said
    return said


def test_a_damaged_key_of_people_is_met_before_anything_is_charged(shop):
    home = shop.parent / ".reticent"
    (home / "ledger.db.people-key").write_text("no key")
    (home / "ledger.db.people-key").chmod(0o600)
    refused_after_the_charge(shop)
    assert intents(home) == 0


@pytest.mark.parametrize("content", [None, b"no ledger"], ids=["gone", "overwritten"])
def test_a_ledger_that_is_lost_before_the_commit(shop, monkeypatch, content):
    ledger, write = shop.parent / ".reticent" / "ledger.db", transaction.write_attempt

    def lose(*args):
        write(*args)
        ledger.rename(ledger.with_suffix(".kept"))
        for more in ledger.parent.glob("ledger.db-*"):
            more.unlink()
        if content is not None:
            ledger.write_bytes(content)
            ledger.chmod(0o600)

    monkeypatch.setattr(transaction, "write_attempt", lose)
    refused_after_the_charge(shop)
    ledger.unlink(missing_ok=True)
    ledger.with_suffix(".kept").rename(ledger)
    assert intents(shop.parent / ".reticent") == 1
