"""Public numbers of states: read beside the card, hashed into the domain, and refused where they are not whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.ledger.account import card_hash
from reticent import Card, CardError, load_card
from tests.declaration.test_card import GOOD, write
from tests.flows.verb import reticent

STATES = 'states = { column = "s", labels = ["x", "y"], ends = ["end"], other = true }'
NAMED = STATES.replace(" }", ', features = "states.parquet" }')
TABLE = {"state": ["y", "OTHER", "x"], "age": [1.5, 0.0, 2.0], "ward": [3, 1, 2]}


def card_with(folder: Path, table: dict[str, list], states: str = NAMED) -> Card:
    pq.write_table(pa.table(table), folder / "states.parquet")
    card = load_card(write(folder, GOOD.replace(STATES, states)))
    assert isinstance(card, Card)
    return card


def test_numbers_come_in_the_order_of_the_live_states_and_cannot_be_written(tmp_path):
    found = card_with(tmp_path, TABLE).domain.state_features
    assert found is not None and found.dtype == np.float64
    assert found.tolist() == [[2.0, 2.0], [1.5, 3.0], [0.0, 1.0]]
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 9
    assert load_card(write(tmp_path, GOOD)).domain.state_features is None


def test_a_csv_says_the_same(tmp_path):
    wanted = card_with(tmp_path, TABLE)
    (tmp_path / "states.csv").write_text("state,age,ward\ny,1.5,3\nOTHER,0,1\nx,2,2\n")
    found = load_card(write(tmp_path, GOOD.replace(STATES, NAMED.replace("parquet", "csv"))))
    assert found.domain_hash() == wanted.domain_hash()
    np.testing.assert_array_equal(found.domain.state_features, wanted.domain.state_features)


def test_labels_may_be_those_of_the_table(tmp_path):
    states = 'states = { column = "s", ends = ["end"], features = "states.parquet" }'
    card = card_with(tmp_path, {"state": [7, 5, 6], "z": [0.5, 1.0, 1.5]}, states)
    assert card.domain.state_labels == ["7", "5", "6", "end"]
    assert card.domain.states.raw_labels() == {"7": 0, "5": 1, "6": 2}


def test_a_number_that_changes_is_another_domain_and_other_bytes_are_not(tmp_path):
    first = card_with(tmp_path, TABLE)
    pq.write_table(pa.table(TABLE), tmp_path / "states.parquet", compression="none")
    again = load_card(tmp_path / "card.toml")
    assert again == first and again.domain_hash() == first.domain_hash()
    changed = card_with(tmp_path, TABLE | {"age": [1.5, 0.0, 2.0000001]})
    assert changed.domain_hash() != first.domain_hash() and card_hash(changed) != card_hash(first)
    assert load_card(write(tmp_path, GOOD)).domain_hash() == HASH_WITHOUT


# of GOOD, before there were features: a card without them is registered in the same words
HASH_WITHOUT = "408c7859b5706f128c226fcacad2e175c21361867df5ada3c914f47d19ce3061"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"state": ["x", "y"], "z": [1.0, 2.0]}, ["states.parquet", "no row for the states ['OTHER']"]),
        (TABLE | {"age": [1.0, float("nan"), 2.0]}, ["states.parquet: row 2", "'age'", "no finite number"]),
        (TABLE | {"age": [1.0, 2.0, None]}, ["states.parquet: row 3", "no finite number"]),
        (TABLE | {"age": [float("inf"), 2.0, 1.0]}, ["states.parquet: row 1"]),
        (TABLE | {"age": ["1", "2", "3"]}, ["column 'age'", "features are numbers"]),
        (TABLE | {"state": ["x", "y", "x"]}, ["states.parquet: row 3", "twice"]),
        (TABLE | {"state": ["x", "zz", "OTHER"]}, ["row 2", "'zz' is no declared live state"]),
        ({"state": ["x", "y", "OTHER"]}, ["a numeric one"]),
        ({"z": [1.0]}, ["needs a column 'state'"]),
    ],
)
def test_a_table_that_is_not_whole_is_refused_with_file_and_row(tmp_path, table, says):
    with pytest.raises(CardError) as e:
        card_with(tmp_path, table)
    for part in ["card.toml: domain.states: ", *says]:
        assert part in str(e.value)


def test_a_file_that_is_missing_damaged_or_elsewhere_is_refused(tmp_path):
    with pytest.raises(CardError, match=r"states\.parquet: no such file"):
        load_card(write(tmp_path, GOOD.replace(STATES, NAMED)))
    (tmp_path / "states.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(CardError, match="not readable"):
        load_card(tmp_path / "card.toml")
    with pytest.raises(CardError, match="below the card's folder"):
        load_card(write(tmp_path, GOOD.replace(STATES, NAMED.replace("states.parquet", "../states.parquet"))))


def test_a_table_that_changed_after_registration_is_exit_2(tmp_path):
    card_with(tmp_path, TABLE)
    assert reticent("register", "card.toml", cwd=tmp_path).returncode == 0
    card_with(tmp_path, TABLE | {"ward": [3, 1, 1]})
    said = reticent("register", "card.toml", cwd=tmp_path)
    assert said.returncode == 2 and "differs from its registration" in said.stderr and "Traceback" not in said.stderr
