"""Logs written otherwise than ingest reads by itself, and steps numbered by an order: a key of the card says how."""

import itertools
import random
import tomllib
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.logs import decode as wide
from pipeline.logs.decode import index_states, plain_cell
from reticent import Card, CardError, LogError, load_card
from tests.conftest import card_dict, slow
from tests.flows.observed import cartpole
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


@pytest.mark.parametrize("keep", ["first", slow("last")])
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
    columns = {"user_id": "user", "episode_id": "user", "reward": "paid", "step": "at"}
    source = source | ({"columns": columns} if "order_by" in source else {})
    with pytest.raises(ValidationError, match=said):
        declare(tmp_path, states, **source)


def test_a_card_that_says_none_of_it_has_the_digests_it_had(tmp_path):
    found = []
    for mark, said in ((",", {}), (";", {"separator": ";"})):
        (folder := tmp_path / mark).mkdir()
        card = declare(folder, **said)
        (folder / "log.csv").write_text("user,at,state,action,paid\nu,1,x,a,1\n".replace(",", mark))
        found.append((set(card.model_dump(mode="json")["source"]), ingest(card, folder / "home").source_hash))
    new = {"rename", "numbers", "dates", "units", "same_place", "format"}
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
    values = declare(tmp_path, last_row="outcome").model_dump()
    values["reward"] = {"range": [0.0, 10.0], "steps": 20, "empty": 0.0}
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
    rows = [f"{user},{row}" for user in "uv" for row in ("1,x,a,8", "2,y,a,-4", "3,x,a,8")]
    values = declare(tmp_path, last_row="ends").model_dump()
    values["reward"] = {"range": [-10.0, 10.0], "steps": 2000}
    values["domain"] |= {"discount": 0.5, "horizon": 3}
    card = Card.model_validate(values).placed(tmp_path)
    found = read(tmp_path, card, log="\n".join(["user,at,state,action,paid", *rows]))
    # a rounded-down reward is no more than a hundredth too small; what is too large for the lattice is no fault of rows
    assert found["reward"].to_list() == [8.0, -2.0, 2.0] * 2
    undiscounted = Card.model_validate(values | {"domain": values["domain"] | {"discount": 1.0}})
    assert card.domain_hash() != undiscounted.domain_hash()
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


COLUMNS = {"user_id": "user_id", "episode_id": "user_id", "reward": "reward"}
HEAD = "user_id,at,state,action,reward\n"


def ordered(folder: Path, horizon: int = 4, **source) -> Card:
    values = card_dict()
    values["unit"]["user"] = "user_id"
    values["domain"]["horizon"] = horizon
    values["domain"]["states"]["labels"] = ["x", "y", "z"]
    told = {"files": ["log.csv"], "columns": COLUMNS, "order_by": "at"} | source
    values["source"] = {k: v for k, v in told.items() if v is not None}
    return Card.model_validate(values).placed(folder)


def read_in_order(folder: Path, rows: list[str], **source):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.csv").write_text(HEAD + "\n".join(rows) + "\n")
    made = ingest(ordered(folder, **source), folder / "home")
    return canonical(made), made


def seen(rows: pl.DataFrame) -> list[tuple]:
    return rows.select("user_id", "step", "state", "next_state").rows()


def test_dates_number_the_rows_of_an_episode_wherever_they_stand(tmp_path):
    rows = ["u,2026-01-09,z,a,1", "v,2026-02-01,y,b,0", "u,2026-01-02,x,a,0", "u,2026-01-05T10:00,y,b,1"]
    found, _ = read_in_order(tmp_path, rows)
    assert [r[:3] for r in seen(found)] == [("u", 0, 0), ("u", 1, 1), ("u", 2, 2), ("v", 0, 1)]
    assert [r[3] for r in seen(found)][:2] == [1, 2]


def test_the_order_of_lines_decides_nothing_not_even_of_rows_at_one_time(tmp_path):
    """The same four rows of 24 people, each of whom has another order."""
    rows = ["3,x,a,0", "3,y,a,1", "3,y,b,1", "10,z,a,0"]
    orders = list(itertools.permutations(range(4)))
    found, _ = read_in_order(tmp_path / "a", [f"u{k:02},{row}" for k in range(len(orders)) for row in rows])
    other, _ = read_in_order(tmp_path / "b", [f"u{k:02},{rows[i]}" for k, order in enumerate(orders) for i in order])
    assert seen(found) == seen(other) and [r[2] for r in seen(found)[3::4]] == [2] * 24


def test_a_row_that_was_delivered_twice_is_one_step(tmp_path):
    rows = ["u,2026-01-02T08:15,x,a,0", "u,2026-01-03,y,a,1", "v,2026-01-02T08:15,x,a,0"]
    once, clean = read_in_order(tmp_path / "once", rows)
    twice, made = read_in_order(tmp_path / "twice", [rows[1], *rows, rows[0], rows[0]])
    assert seen(twice) == seen(once) and not clean.quarantined
    assert made.quarantined == {"repeated_row": 3} and set(quarantine(made.folder)["effect"]) == {"drop_step"}


def test_two_rows_at_one_place_stay_and_are_told(tmp_path):
    found, made = read_in_order(tmp_path, ["u,3,x,a,0", "u,3,y,a,1", "u,3,y,a,1", "u,9,y,a,1", "v,3,x,a,0"])
    assert [r[:2] for r in seen(found)] == [("u", 0), ("u", 1), ("u", 2), ("v", 0)]
    assert made.quarantined == {"repeated_row": 1, "same_place": 2}


def test_offsets_from_utc_are_read_as_databases_write_them(tmp_path):
    """Of each person, one row with an offset between two with none."""
    written = {"+02": 6, "-05": 13, "+02:00": 6, "+0200": 6, "Z": 8, "": 8, " UTC": 8}
    rows = [
        f"u{i},2026-01-02 {at},{state},a,0"
        for i, (text, hour) in enumerate(written.items())
        for at, state in ((f"{hour:02}:14", "x"), (f"08:15:00{text}", "y"), (f"{hour:02}:16", "z"))
    ]
    found, _ = read_in_order(tmp_path, rows[::-1])
    assert [row[:3] for row in seen(found)] == [(f"u{i}", h, h) for i in range(len(written)) for h in range(3)]


@pytest.mark.parametrize("last_row", ["unknown", "ends"])
def test_a_short_episode_ends_with_its_last_row_where_the_card_says_so(tmp_path, last_row):
    rows = ["u,1,x,a,0", "u,2,y,a,1", "v,1,x,a,0", "w,1,x,a,0", "w,2,x,a,0", "w,3,x,a,0", "w,40,x,a,1"]
    found, made = read_in_order(tmp_path, rows, gap="cut", gap_over=30.0, last_row=last_row)
    end = {"unknown": None, "ends": 3}[last_row]
    assert seen(found)[:3] == [("u", 0, 0, 1), ("u", 1, 1, end), ("v", 0, 0, end)]
    # what lies behind a gap was there: nobody knows where the row before it led
    assert seen(found)[-1] == ("w", 2, 0, None) and made.quarantined == {"beyond_gap": 1}
    assert found["terminated"].to_list()[:3] == [False, end is not None, end is not None]


def test_without_the_digest_ties_would_follow_the_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(wide, "keyed_hash", lambda texts, salt: pl.Series([0] * len(texts), dtype=pl.UInt64))
    rows = ["u,3,x,a,0", "u,3,y,a,1"]
    assert seen(read_in_order(tmp_path / "a", rows)[0]) != seen(read_in_order(tmp_path / "b", rows[::-1])[0])


def test_numbers_in_text_are_numbers_and_other_text_drops_the_episode(tmp_path):
    found, made = read_in_order(
        tmp_path, ["u,10,y,a,0", "u,9,x,a,0", "v,soon,x,a,0", "v,1,x,a,0", "w,31/12/2025,x,a,0"]
    )
    assert [r[:3] for r in seen(found)] == [("u", 0, 0), ("u", 1, 1)]
    assert made.quarantined == {"unparsable": 3}


def test_a_gap_is_dropped_cut_or_kept(tmp_path):
    rows = [
        "u,2026-01-01,x,a,0",
        "u,2026-01-08,y,a,0",
        "u,2026-03-08,z,a,1",
        "u,2026-03-09,x,a,1",
        "v,2026-01-01,x,a,0",
    ]
    cut, made = read_in_order(tmp_path / "cut", rows, gap="cut", gap_over=30.0)
    assert seen(cut) == [("u", 0, 0, 1), ("u", 1, 1, None), ("v", 0, 0, None)]
    assert made.quarantined == {"beyond_gap": 2} and cut["truncated"].to_list() == [False, True, True]
    assert set(quarantine(made.folder)["effect"]) == {"drop_step"}
    drop, made = read_in_order(tmp_path / "drop", rows, gap_over=30.0)
    assert [r[0] for r in seen(drop)] == ["v"] and made.quarantined == {"gap": 4}
    keep, made = read_in_order(tmp_path / "keep", rows, gap="keep", gap_over=30.0)
    assert [r[1] for r in seen(keep)] == [0, 1, 2, 3, 0] and not made.quarantined
    assert seen(keep)[1][3] == 2


def test_a_missing_step_may_cut_instead_of_drop(tmp_path):
    steps = {"columns": {**COLUMNS, "step": "at"}, "order_by": None}
    rows = ["u,1,x,a,0", "u,2,y,a,1", "u,4,z,a,1", "v,2,x,a,0", "w,0,x,a,0"]
    cut, made = read_in_order(tmp_path / "cut", rows, **steps, first_step=1, gap="cut")
    assert seen(cut) == [("u", 0, 0, 1), ("u", 1, 1, None)]
    # v has no first step, and w one before the first
    assert made.quarantined == {"beyond_gap": 2, "unparsable": 1}
    drop, made = read_in_order(tmp_path / "drop", rows, **steps, first_step=1)
    assert drop.is_empty() and made.quarantined == {"gap": 4, "unparsable": 1}


PLACES = ["1", "2", "2.5", "2026-01-02", "2026-01-02T03:04Z", "", "nan", "x", "-1", "1e400", "999999999999"]
persons = st.lists(st.tuples(*map(st.sampled_from, (PLACES, "xy?", "ab"))), max_size=10)


@pytest.mark.parametrize("gap", ["drop", slow("cut")])
@given(one=persons, other=persons, seed=st.integers(0, 99))
@settings(max_examples=4, deadline=None)
def test_one_persons_bytes_decide_only_this_persons_rows(tmp_path_factory, gap, one, other, seed):
    """Whatever stands in the rows of u, those of v and w stay as they are."""
    folder, kept = tmp_path_factory.mktemp("twins"), []
    others = [f"{who},{at},{state},a,1" for who in "vw" for at, state in (("5", "x"), ("2026-01-01", "y"), ("5", "z"))]
    for name, rows in (("one", one), ("other", other)):
        mine = [f"u,{at},{state},{action},0" for at, state, action in rows]
        lines = others + mine
        random.Random(seed).shuffle(lines)
        found, made = read_in_order(folder / name, lines, gap=gap, gap_over=2.0)
        filed = quarantine(made.folder).filter(pl.col("source").struct.field("user_id") != "u")
        filed = filed.select("rule", "source").rows()
        kept.append((seen(found.filter(pl.col("user_id") != "u")), sorted(map(str, filed))))
    assert kept[0] == kept[1] and (kept[0][0] or kept[0][1])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"columns": {**COLUMNS, "step": "at"}}, "take columns.step and first_step out"),
        ({"first_step": 3}, "take columns.step and first_step out"),
        ({"gap": "cut"}, "source.gap_over is missing"),
        ({"order_by": None, "columns": {**COLUMNS, "step": "at"}, "gap_over": 2.0}, "goes with source.order_by"),
        ({"order_by": None, "columns": {**COLUMNS, "step": "at"}, "gap": "keep"}, "order_by = 'at' in place of"),
        ({"order_by": None}, "name one that orders the rows"),
        ({"layout": "wide"}, "belong to source.layout = 'long'"),
        ({"layout": "wide", "order_by": None, "last_row": "ends"}, "belong to source.layout = 'long'"),
    ],
)
def test_an_order_that_says_too_much_or_too_little_is_refused(tmp_path, source, said):
    with pytest.raises(ValidationError, match=said):
        ordered(tmp_path, **source)


def test_a_last_row_that_ends_needs_an_end():
    values = card_dict()
    values["source"]["last_row"] = "ends"
    del values["domain"]["states"]["ends"]
    with pytest.raises(ValidationError, match="needs an end to lead to"):
        Card.model_validate(values)


def test_what_is_left_at_its_default_leaves_the_cards_digest(tmp_path):
    def digest(**more) -> str:
        columns = {**COLUMNS, "step": "at"}
        return read_in_order(tmp_path, ["u,1,x,a,0"], columns=columns, order_by=None, **more)[1].source_hash

    plain = digest()
    assert plain == digest(first_step=0) == digest(last_row="unknown")
    assert plain not in (digest(first_step=1), digest(gap="cut"), digest(last_row="ends"))


@pytest.mark.parametrize("files", [["a.parquet", "b.parquet"], ["b.parquet"]])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("other", [[1, 2], slow([1.0, None]), slow([True, False])])
def test_the_types_that_anothers_cells_give_a_column_decide_no_ones_steps(tmp_path, files, suffix, other):
    def steps(folder: Path, rewards: list) -> list[tuple]:
        # u stands in both files, and once with another reward; w's cells decide what type the second file's column has
        mine = {"user_id": ["u", "u"], "at": [3, 9], "state": ["x", "y"], "action": ["a", "b"], "reward": [1, 0]}
        both = {"user_id": ["u", "u", "w", "w"], "at": [3, 3, 3, 4], "state": ["x"] * 4, "action": list("abab")}
        kind = {int: pl.Int64, float: pl.Float64, bool: pl.Float32}[type(rewards[0])]
        shared = pl.DataFrame(both).with_columns(pl.Series("reward", [1, 0, *rewards], dtype=kind, strict=False))
        folder.mkdir()
        named = [name.replace("parquet", suffix) for name in files]
        for frame, name in zip([pl.DataFrame(mine), shared][-len(named) :], named, strict=True):
            frame.write_parquet(folder / name) if suffix == "parquet" else frame.write_ipc(folder / name)
        made = ingest(ordered(folder, files=named), folder / "home")
        return canonical(made).filter(pl.col("user_id") == "u").select("step", "action", "reward", "next_state").rows()

    assert steps(tmp_path / "one", [1, 1]) == steps(tmp_path / "other", other)


def test_two_rows_of_vectors_at_one_place_are_read(tmp_path):
    def rows(last: int) -> list[tuple]:
        v, w = [0.1, 0.0, 0.0, 0.0], [0.2, 0.0, 0.0, 0.0]
        return [("u", 1, v, 0, 1.0), ("u", 2, w, 1, 1.0), ("w", 1, v, 0, 1.0), ("w", last, w, 0, 1.0)]

    values = tomllib.loads(cartpole(10, 4))
    columns = {"user_id": "u", "episode_id": "u", "reward": "r"}
    values["source"] = {"files": ["log.parquet"], "order_by": "at", "columns": columns}
    values["unit"]["user"] = "u"
    values["domain"]["observation"]["column"], values["domain"]["actions"]["column"] = "o", "a"
    for last in (2, 1):
        pl.DataFrame(rows(last), schema=["u", "at", "o", "a", "r"], orient="row").write_parquet(
            tmp_path / "log.parquet"
        )
        made = ingest(Card.model_validate(values).placed(tmp_path), tmp_path / "home")
        assert sum(len(pl.read_parquet(part)) for part in made.part_files) == 4
