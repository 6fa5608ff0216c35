"""What a card says of how choices were made and when it pays: who may say so, and that older keys stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.ledger.account import card_hash
from reticent import Card, CardError, LqCard, load_card
from tests.conftest import card_dict
from tests.declaration.test_card import GOOD, write

ROOT = Path(__file__).resolve().parents[2]
SHELVES = (ROOT / "datasets", ROOT / "tests" / "goldens" / "home" / "shelf")
# the clinicians' log pays on survival, the two-step games at their second choice; cartpole's and riverswim's rows say
# what each step pays, and so do those of the uniform log, whatever is known of it
AT_THE_END = {"icu_sepsis_doses", "icu_sepsis_ten_thousand", "two_step_adults", "two_step_chance", "two_step_game"}


@pytest.mark.parametrize("schema", [1, 2])
def test_recorded_practice_is_declared_in_both_schemas_and_moves_no_key(schema: int) -> None:
    plain, recorded = (
        Card.model_validate(card_dict(schema_version=schema, domain={**card_dict()["domain"], **more}))
        for more in ({}, {"practice": "recorded"})
    )
    assert (plain.domain.practice, recorded.domain.practice) == (None, "recorded")
    # it enters no sum; what was registered and looked at is another card all the same
    assert plain.domain_hash() == recorded.domain_hash() and card_hash(plain) != card_hash(recorded)
    assert "practice" not in plain.model_dump()["domain"]


def test_it_is_refused_where_the_states_hide_something(tmp_path: Path) -> None:
    both = 'horizon = 3\npractice = "recorded"\nmarkov = "aggregated"'
    with pytest.raises(CardError, match=r"practice = 'recorded'.* markov = 'aggregated'") as refused:
        load_card(write(tmp_path, GOOD.replace("horizon = 3", both)))
    assert refused.value.exit_code == 2 and "domain" in str(refused.value)
    with pytest.raises(CardError, match=r"domain\.practice"):
        load_card(write(tmp_path, GOOD.replace("horizon = 3", 'horizon = 3\npractice = "logged"')))


@pytest.mark.parametrize("path", [p for shelf in SHELVES for p in sorted(shelf.glob("*/card.toml"))], ids=str)
def test_when_shipped_cards_pay(path: Path) -> None:
    card = load_card(path)
    assert isinstance(card, LqCard) or card.pays_at_the_end == (card.name in AT_THE_END)


ENTERING: dict[str, Any] = {"range": [0.0, 1.0], "kind": "on_entering"}
TABLE: dict[str, Any] = {"range": [0.0, 1.0], "kind": "table"}
FLAT, UNEVEN = [[0.5, 0.5], [0.5, 0.5]], [[0.0, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("horizon", "reward", "at_the_end"),
    [
        (2, {**ENTERING, "on_entering": {"end": 1.0}}, True),
        (2, {**ENTERING, "on_entering": {"x": 0.5}}, False),
        (2, {**ENTERING, "on_entering": {"end": 1.0, "x": 0.5, "y": 0.2}}, False),
        # one for every day that somebody lives tells nothing before the end
        (2, {**ENTERING, "on_entering": {"x": 0.5, "y": 0.5}}, True),
        (2, {**TABLE, "table": FLAT}, True),
        (2, {**TABLE, "table": UNEVEN}, False),
        (2, {**TABLE, "table": [FLAT, UNEVEN]}, True),
        (2, {**TABLE, "table": [UNEVEN, FLAT]}, False),
        (2, {"range": [0.0, 1.0]}, False),
        # of one step there is none before the last
        (1, {**ENTERING, "on_entering": {"end": 1.0}}, False),
    ],
)
def test_when_a_card_pays(horizon: int, reward: dict[str, Any], at_the_end: bool) -> None:
    domain = {**card_dict()["domain"], "horizon": horizon}
    assert Card.model_validate(card_dict(domain=domain, reward=reward)).pays_at_the_end == at_the_end
