"""A card changed after a look at the data is said so, whatever changed and whoever looks again."""

from __future__ import annotations

import pytest

from pipeline.ledger.account import card_hash
from pipeline.ledger.certificate import Route, assumptions
from pipeline.ledger.chain import entries_of


def domain(**changes):
    return {
        "horizon": 2,
        "states": {"column": "state", "labels": ["x", "y"], "ends": ["end"]},
        "actions": {"column": "action", "labels": ["a", "b"]},
        **changes,
    }


def test_a_second_look_at_the_changed_card_does_not_wash_the_change_away(alone, make_card):
    alone.register(make_card())
    changed = make_card(domain=domain(vetoes=[["x", "a"]]))
    for card in (make_card(), changed):
        alone.record_inspection(card, 1)
    told = assumptions(changed, entries_of(alone.entries(), "tiny", "INSPECT"), Route("hand"))
    assert any("(entries 2, 3)" in s for s in told)
    assert any("the card was changed after somebody had looked at the data (entry 2)" in s for s in told)


@pytest.mark.parametrize(
    "change",
    [
        {"domain": domain(markov="aggregated")},
        {"domain": domain(horizon=3)},
        {"tolerance": {"gap": 0.5}},
        {"budget": {"rho": 9.0}},
    ],
)
def test_whatever_a_card_declares_is_in_its_hash(make_card, change):
    assert card_hash(make_card(**change)) != card_hash(make_card())


def test_where_files_and_ledger_lie_is_no_declaration_and_a_spelt_out_default_no_change(make_card, tmp_path):
    columns = {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"}
    moved = make_card(
        source={"files": ["elsewhere/*.csv"], "columns": columns}, budget={"rho": 10.0, "ledger": "books.db"}
    )
    assert card_hash(moved.placed(tmp_path / "other")) == card_hash(make_card())
    assert card_hash(make_card(domain=domain(markov="declared", vetoes=[]))) == card_hash(make_card())
