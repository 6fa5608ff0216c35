"""Logs written otherwise than ingest reads by itself: a key of the card says how, and nobody needs another program."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.logs.decode import index_states, plain_cell
from reticent import Card, CardError, LogError, load_card
from tests.conftest import card_dict
from tests.logs.conftest import canonical, ingest, quarantine


def declare(folder: Path, states: dict | None = None, **source) -> Card:
    values = card_dict()
    values["unit"]["user"] = "user"
    values["domain"]["horizon"] = 4
    values["domain"]["states"] = states or {"column": "state", "labels": ["x", "y"], "ends": ["end"], "other": True}
    values["domain"]["actions"] = {"column": "action", "labels": ["a", "b"], "same_as": {"A ": "a", "b.0": "b"}}
    values["reward"] = {"range": [0.0, 10.0], "steps": 20}
    columns = {"user_id": "user", "episode_id": "user", "reward": "paid"}
    values["source"] = {"files": ["*.csv"], "columns": columns, "order_by": "at"} | source
    return Card.model_validate(values).placed(folder)


def read(folder: Path, card: Card, **files: str) -> pl.DataFrame:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return canonical(ingest(card, folder / "home"))


def test_semicolons_decimal_commas_days_first_units_and_other_headers(tmp_path):
    card = declare(
        tmp_path,
        {"from": ["tmp", "sex"], "bins": {"tmp": [37.5], "sex": ["f", "m"]}, "ends": ["end"], "other": True},
        separator=";",
        numbers="1.234,5",
        dates="dd.mm.yyyy",
        units={"paid": {"EUR": 1.0, "ct": 0.01}, "tmp": {"°C": 1.0}},
        rename={"Patient-Nr": "user", "Temp": "tmp"},
    )
    rows = read(
        tmp_path,
        card,
        north="user;at;tmp;sex;action;paid\nu;2.1.2026;37,5 °C;f;a;1,5 EUR\nu;10.1.2026;36,9;f;b.0;250ct\n",
        south='Patient-Nr;at;Temp;sex;action;paid\nv;03.02.2026 8:15;"38,0";m;A ;2,0\nv;03.02.2026 09:00;;m;a;1\n',
    )
    seen = rows.select("user_id", "step", "state", "action", "reward", "next_state").rows()
    assert seen == [
        ("u", 0, 2, 0, 1.5, 0),
        ("u", 1, 0, 1, 2.5, None),
        ("v", 0, 3, 0, 2.0, 4),
        ("v", 1, 4, 0, 1.0, None),
    ]
    assert card.domain.live_states[2:] == ["tmp ≥ 37.5 · sex f", "tmp ≥ 37.5 · sex m", "OTHER"]
    assert index_states(["tmp ≥ 37.5 · sex m", "end", "?"], card.domain.states).tolist() == [3, 5, 4]


@pytest.mark.parametrize(("keep", "kept"), [("first", "x"), ("last", "y")])
def test_one_of_several_rows_at_a_place_counts_wherever_it_stands(tmp_path, keep, kept):
    rows = ["u,2026-01-02,x,a,1,2026-01-02T08:00", "u,2026-01-02,y,a,1,2026-01-02T17:00", "u,2026-01-03,x,b,0,"]
    for i, order in enumerate((rows, rows[::-1])):
        (folder := tmp_path / str(i)).mkdir()
        card = declare(folder, same_place={"keep": keep, "by": "entered"})
        found = read(folder, card, log="\n".join(["user,at,state,action,paid,entered", *order]))
        assert found.select("step", "state").rows() == [(0, "xy".index(kept)), (1, 0)]
        made = ingest(card, folder / "home")
        assert made.quarantined == {"superseded": 1} and set(quarantine(made.folder)["effect"]) == {"drop_step"}


@pytest.mark.parametrize("keep", ["first", pytest.param("last", marks=pytest.mark.slow)])
@pytest.mark.parametrize("beside", ["9:00 AM", "2026-01-02 09:00"])
def test_a_time_that_cannot_be_read_does_not_tell_which_of_several_rows_counts(tmp_path, keep, beside):
    """Neither of another such time, nor of one that can be read."""
    rows = [f"u,2026-01-02,x,a,1,{beside}", "u,2026-01-02,y,a,1,1:30 PM", "v,2026-01-02,x,a,1,9:00 AM"]
    card = declare(tmp_path, same_place={"keep": keep, "by": "entered"})
    read(tmp_path, card, log="\n".join(["user,at,state,action,paid,entered", *rows]))
    # both rows of u; of v there is one
    made = ingest(card, tmp_path / "home")
    assert (made.quarantined, made.users) == ({"unparsable": 2}, 1)


def test_a_file_with_both_names_of_a_column_is_refused(tmp_path):
    card = declare(tmp_path, rename={"pid": "user"})
    with pytest.raises(LogError, match="holds 'user' and 'pid', which source"):
        read(tmp_path, card, log="user,pid,at,state,action,paid\nu,v,1,x,a,1\n")


def test_objects_may_differ_in_their_keys_line_by_line(tmp_path):
    (tmp_path / "log.ndjson").write_text(
        '{"user": "u", "at": 1, "state": "x", "action": "a", "paid": 1}\n'
        '{"pid": "v", "at": 1, "state": "y", "action": "b", "paid": 2}\n'
    )
    card = declare(tmp_path, rename={"pid": "user"}, files=["log.ndjson"])
    assert read(tmp_path, card).select("user_id", "state").rows() == [("u", 0), ("v", 1)]


@pytest.mark.parametrize(
    ("states", "source", "said"),
    [
        (None, {"order_by": None, "same_place": {"keep": "last", "by": "at"}}, "same_place goes with source.order_by"),
        ({"from": ["tmp", "sex"], "bins": {"tmp": [1.0]}}, {}, "needs bins of each of its columns"),
        ({"from": ["tmp", "sex"], "bins": {"tmp": [1.0], "sex": ["f"]}}, {}, "at least 2"),
        ({"column": "s", "labels": ["x"], "same_as": {"X": "y"}}, {}, "stands for 'y', which is no label"),
        ({"column": "s", "bins": {"by": "s", "edges": [1.0]}, "same_as": {"X": "y"}}, {}, "belongs to labels"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(tmp_path, states, source, said):
    source = {k: v for k, v in source.items() if v is not None} | (
        {"columns": {"user_id": "user", "episode_id": "user", "reward": "paid", "step": "at"}, "order_by": None}
        if "order_by" in source
        else {}
    )
    with pytest.raises(ValidationError, match=said):
        declare(tmp_path, states, **source)


def test_a_card_that_says_none_of_it_has_the_digests_it_had(tmp_path):
    found = []
    for mark, said in ((",", {}), (";", {"separator": ";"})):
        (folder := tmp_path / mark).mkdir()
        card = declare(folder, **said)
        (folder / "log.csv").write_text("user,at,state,action,paid\nu,1,x,a,1\n".replace(",", mark))
        found.append((set(card.model_dump(mode="json")["source"]), ingest(card, folder / "home").source_hash))
    new = {"rename", "numbers", "dates", "units", "same_place"}
    assert not new & found[0][0] and found[1][0] - found[0][0] == {"separator"} and found[0][1] != found[1][1]
    assert "product" not in declare(tmp_path).model_dump(mode="json")["domain"]["states"]


@settings(max_examples=60, deadline=None)
@given(number=st.integers(-(10**9), 10**9), cents=st.integers(0, 99))
def test_numbers_are_read_as_they_were_written(number, cents):
    text = f"{number:,}.{cents:02}"
    written = {"1,234.5": text, "1.234,5": text.translate(str.maketrans(",.", ".,")), "1234,5": f"{number},{cents:02}"}
    for form, cell in written.items():
        one = pl.DataFrame({"x": [f" {cell} ", f"{cell} mg", cell + "?"]})
        found = one.select(plain_cell(pl.col("x"), form, {"mg": 2.0})).to_series().to_list()
        value = float(f"{number}.{cents:02}")
        assert (float(found[0]), float(found[1])) == (value, 2.0 * value) and found[2] == cell + "?"


@pytest.mark.parametrize(
    ("form", "text", "iso"),
    [
        ("dd.mm.yyyy", "3.2.2026", "2026-02-03"),
        ("mm/dd/yyyy", "02/03/2026 7:05", "2026-02-03 07:05"),
        ("yyyy/mm/dd", "2026/2/3", "2026-02-03"),
        ("dd/mm/yyyy", "2026-02-03", "2026-02-03T00:00"),
        ("dd/mm/yyyy", "soon", None),
    ],
)
def test_dates_are_read_as_they_were_written(tmp_path, form, text, iso):
    card = declare(tmp_path, dates=form)
    (tmp_path / "log.csv").write_text(f"user,at,state,action,paid\nu,{text},x,a,1\nu,{iso},y,a,1\n")
    made = ingest(card, tmp_path / "home")
    assert made.quarantined == ({"unparsable": 2} if iso is None else {"same_place": 2})


def test_a_frame_is_named_by_its_errors_with_column_and_row(tmp_path):
    card = declare(tmp_path)
    good = {"user": ["u"], "at": [1], "state": ["x"], "action": ["a"]}
    with pytest.raises(LogError) as told:
        ingest(card, tmp_path / "home", pl.DataFrame(good))
    said = str(told.value)
    assert said.startswith("the data frame: missing_column: 'paid' not there") and "home" not in said

    class Odd(dict[str, list[object]]):
        columns = ("user", "paid")

    odd = Odd(user=["u", "v"], paid=[1.0, "much"])
    with pytest.raises(CardError, match="the data frame: column 'paid': row 2 holds a str, row 1 a float"):
        ingest(card, tmp_path / "home", odd)


LATE = ["u,1,x,a,", "u,2,y,b,0.5", "u,9,,,7.5", "v,1,x,a,", "w,1,x,a,1", "w,2,x,,9"]


def test_a_last_row_without_an_action_says_what_came_of_the_row_before_it(tmp_path):
    card = declare(tmp_path, last_row="outcome")
    values = card.model_dump() | {"reward": {"range": [0.0, 10.0], "steps": 20, "empty": 0.0}}
    values["domain"]["states"]["other"] = False
    card = Card.model_validate(values).placed(tmp_path)
    found = read(tmp_path, card, log="\n".join(["user,at,state,action,paid", *LATE]))
    rows = found.select("user_id", "step", "state", "reward", "next_state", "terminated").rows()
    assert rows == [
        ("u", 0, 0, 0.0, 1, False),
        ("u", 1, 1, 7.5, 2, True),
        ("v", 0, 0, 0.0, None, False),
        ("w", 0, 0, 9.0, 2, True),
    ]
    made = ingest(card, tmp_path / "home")
    assert made.quarantined == {"closing_row": 2}


def test_an_outcome_that_stands_in_every_row_is_paid_once(tmp_path):
    rows = ["u,1,x,a,3", "u,2,y,b,3", "u,3,x,a,3", "v,1,x,a,x", "v,2,x,b,1"]
    values = declare(tmp_path).model_dump() | {"reward": {"range": [0.0, 10.0], "steps": 20, "paid": "last"}}
    card = Card.model_validate(values).placed(tmp_path)
    found = read(tmp_path, card, log="\n".join(["user,at,state,action,paid", *rows]))
    assert found["reward"].to_list() == [0.0, 0.0, 3.0, 0.0, 1.0] and card.pays_at_the_end
    with pytest.raises(ValidationError, match="the other rows pay 0"):
        Card.model_validate(values | {"reward": {"range": [1.0, 2.0], "paid": "last"}})


def test_a_discount_makes_later_rewards_smaller_and_the_value_that_of_the_discounted_return(tmp_path):
    rows = [
        f"{user},{step},{state},a,{paid}"
        for user in "uv"
        for step, state, paid in ((1, "x", 8), (2, "y", -4), (3, "x", 8))
    ]
    values = declare(tmp_path, last_row="ends").model_dump()
    values["reward"] = {"range": [-10.0, 10.0], "steps": 2000}
    values["domain"] |= {"discount": 0.5, "horizon": 3}
    card = Card.model_validate(values).placed(tmp_path)
    found = read(tmp_path, card, log="\n".join(["user,at,state,action,paid", *rows]))
    # a rounded-down reward is no more than a hundredth too small; what is too large for the lattice is no fault of rows
    assert found["reward"].to_list() == [8.0, -2.0, 2.0] * 2
    assert (
        card.domain_hash()
        != Card.model_validate(values | {"domain": values["domain"] | {"discount": 1.0}}).domain_hash()
    )
    plain = {k: v for k, v in values["domain"].items() if k != "discount"}
    assert "discount" not in Card.model_validate(values | {"domain": plain}).model_dump(mode="json")["domain"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"reward": {"range": [0.0, 1.0], "steps": 10}}, "reward.steps of at least 1,000"),
        ({"reward": {"range": [1.0, 2.0], "steps": 1000}}, "a range that holds 0"),
        ({"reward": {"range": [0.0, 1.0], "on_entering": {"end": 1.0}}}, "rewards of the rows"),
        ({"dynamics": "stationary"}, "dynamics = 'per_step'"),
        ({"discount": 0.0}, "greater than 0"),
        ({"discount": 1.1}, "less than or equal to 1"),
    ],
)
def test_a_discount_that_nothing_could_pay_is_refused(tmp_path, wrong, says):
    values = declare(tmp_path).model_dump()
    values["reward"] = wrong.pop("reward", {"range": [0.0, 1.0], "steps": 1000})
    values["domain"] |= {"discount": 0.9} | wrong
    with pytest.raises(ValidationError, match=says):
        Card.model_validate(values)


def test_the_card_of_the_page_reads_the_log_that_it_tells_of(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "card.md").read_text(encoding="utf-8")
    text = page.split("## A log as it comes")[1].split("```toml\n")[1].split("```")[0]
    (tmp_path / "card.toml").write_text(text, encoding="utf-8")
    (tmp_path / "ward_1.csv").write_text(
        "Patient-Nr;day;entered;Fieber;sex;dose\np;3.2.2026;1;39,5 °C;f;high\np;3.2.2026;2;38,5 °C;f;Low \n"
    )
    (tmp_path / "outcomes.csv").write_text("patient;day;recovered\np;20.2.2026;yes\n")
    card = load_card(tmp_path / "card.toml")
    made = ingest(card, tmp_path / "home")
    found = canonical(made).select("state", "action", "reward", "next_state").rows()
    assert found == [(card.domain.live_states.index("37.5 ≤ fever < 39 · sex f"), 1, 1.0, 7)]
    assert made.quarantined == {"superseded": 1, "closing_row": 1}
