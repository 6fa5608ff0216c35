"""One form of a user id, however a file writes it: in every reader, under every rule, in hash, cap and gate."""

import json
import re
import unicodedata
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from pipeline.logs import sources
from pipeline.logs import spills as room
from pipeline.logs.contribution_bounding import respell
from reticent import LogError, Store
from tests.conftest import slow
from tests.logs.conftest import HEAD, Edition, canonical, check_delivery, ingest, make_card, quarantine
from tests.logs.test_wide import HEAD as WIDE_HEAD
from tests.logs.test_wide import read as read_wide
from tests.logs.test_written_otherwise import read_in_order


def frame_of(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=list(HEAD), orient="row")


IDS = [7, 12, 2**53 - 1, -3]
ROWS = frame_of([(i, e, t, "xy"[t], 0, 0.5) for i in IDS for e in (0, 1) for t in (0, 1)])
WHOLE, SEVERAL = (
    re.compile(r"^(-?[0-9]+)\.0\Z"),
    re.compile(r"^-?(?:[0-9]{16,}\.0|[0-9](?:\.[0-9]+)?[eE]\+[0-9]{2,3})\Z"),
)
NOBODYS = ROWS[0].with_columns(user=pl.lit(None, dtype=pl.Int64))


def taken(folder: Path, frame: pl.DataFrame, form: str = "parquet", **card: Any) -> Edition:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"log.{form}"
    if form == "arrow":
        frame.write_ipc(path, compat_level=pl.CompatLevel.oldest())
    else:
        {"parquet": frame.write_parquet, "csv": frame.write_csv, "ndjson": frame.write_ndjson}[form](path)
    unit = {"episodes_per_user": 1, **card.pop("unit", {})}
    return ingest(make_card(folder, [path.name], unit=unit, **card), folder / "home")


def people(snapshot: Edition) -> pl.DataFrame:
    """Rows with ids as text, by partition: what every hash is made of, and where it sent them."""
    parts = [pl.read_parquet(p).with_columns(pl.col("user_id").cast(pl.String), part=i)
             for i, p in enumerate(snapshot.part_files)]  # fmt: skip
    return pl.concat(parts).sort("user_id", "episode_id", "step")


AS = {
    "integers": pl.Int64(),
    "narrow integers": pl.Int64(),
    "unsigned": pl.String(),
    "floats": pl.Float64(),
    "decimals": pl.Decimal(20, 2),
    "text": pl.String(),
    "categories": pl.Categorical(),
}


def test_one_persons_spellings_leave_the_part_file_readable(tmp_path):
    """Blanks of a megabyte before an id, a hundred times over, once made a footer that no reader reads."""
    rows = [(" " * k + "odd", k, 0, "x", 0, 0.5) for k in (*range(1, 300), 5000)]
    others = ROWS.with_columns(pl.col("user").cast(pl.String))
    odd = pl.DataFrame(rows, schema=others.schema, orient="row")
    alone, beside = (taken(tmp_path / name, pl.concat([others, more]), "csv") for name, more in
                     (("alone", odd.clear()), ("beside", odd)))  # fmt: skip
    assert people(beside).filter(pl.col("user_id") != "odd").equals(people(alone))
    notes = [(pq.read_schema(part).metadata or {}).get(b"delivered", b"[]") for part in beside.part_files]
    texts = [text for note in notes for person, text in json.loads(note) if person == "odd"]
    assert texts == [row[0] for row in rows[:16]] and beside.quarantined["two_spellings"] == 300


def test_every_character_of_an_id_means_what_the_form_says():
    marks = [chr(i) for i in (*range(1, 0x250), 0x301, 0x2003, 0x212B, 0xFF17)]
    texts = [t for c in marks for t in (c + "a", "a" + c, "a" + c + "b", c, "1" + c + "0", "1e" + c + "16", c + "7.0")]
    texts += ["", "7.00", "-7.0", "1234567890123456.0", "9.007199254740993e+15", "1E+300", "1e16", "7.0.0", "x.0"]
    exact = [s.strip("\t\n\v\f\r \x85\xa0\u2003") for s in texts]
    several = [bool(SEVERAL.match(s)) and abs(float(s)) >= 2**53 for s in exact]
    formed = [WHOLE.sub(r"\1", unicodedata.normalize("NFC", s)) for s in exact]
    users, delivered = respell(pl.Series("raw_user", texts))
    wanted = [None if many else form for many, form in zip(several, formed, strict=True)]
    assert users.to_list() == wanted
    assert delivered.to_list() == [None if t == w else t for t, w in zip(texts, wanted, strict=True)]
    # without others, too: the shortcut for ids that need no change sees each that needs one
    alone = {t: respell(pl.Series("raw_user", [t]))[0][0] for t, w in zip(texts, wanted, strict=True) if t != w}
    assert alone == {t: w for t, w in zip(texts, wanted, strict=True) if t != w}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The people of the rows as they are."""
    return people(taken(tmp_path_factory.mktemp("plain"), ROWS))


@pytest.mark.parametrize("kind", AS)
@pytest.mark.parametrize("form", ["parquet", slow("arrow")])
def test_every_type_of_an_id_is_the_same_person(tmp_path, plain, kind, form):
    users = [Decimal(i) for i in ROWS["user"]] if kind == "decimals" else ROWS["user"].to_list()
    texts = [str(i) for i in ROWS["user"]] if kind in ("text", "unsigned", "categories") else users
    frame = ROWS.with_columns(pl.Series("user", texts, dtype=AS[kind], strict=False))
    assert len(plain) == 2 * len(IDS)
    assert people(taken(tmp_path / "b", frame, form)).equals(plain)


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "ndjson"])
def test_the_record_of_nobody_moves_nobody_elses(tmp_path, form):
    """The null of one record makes every id a float; the rows of the others are kept, cut and hashed as before."""
    whole = taken(tmp_path / "a", ROWS, form)
    floats = pl.concat([ROWS, NOBODYS]).with_columns(pl.col("user").cast(pl.Float64))
    made = taken(tmp_path / "b", floats, form)
    assert people(made).equals(people(whole))
    assert made.quarantined.pop("null_user") == 1 and made.quarantined == whole.quarantined
    assert made.data_digest == whole.data_digest or form in ("parquet", "arrow")


@pytest.mark.parametrize("dtype", [pl.Float32, pl.Float64])
def test_short_floats_are_integers_and_others_are_their_text(tmp_path, dtype):
    frame = ROWS[:3].with_columns(pl.Series("user", [7.0, 7.5, -0.0], dtype=dtype), t=0)
    assert set(people(taken(tmp_path, frame))["user_id"]) == {"7", "7.5", "0"}


SPELT = [("7", 0), ("7.0", 1), (" 7", 2), ("é", 0), ("e\u0301", 1), ("b", 0)]


def in_spellings(folder: Path, **card: Any) -> Edition:
    return taken(folder, frame_of([(user, e, 0, "x", 0, 0.5) for user, e in SPELT]), "csv", **card)


def in_the_cap(honest):
    """A broken twin: the cap knows ids as they were delivered."""

    def delivered(*args):
        rows, beyond = honest(*args)
        users = pl.coalesce("delivered", "raw_user") if "delivered" in rows.columns else pl.col("raw_user")
        return rows.with_columns(users.alias("raw_user")), beyond

    return delivered


def in_partitions(honest):
    """Another: partitions know them so."""
    return lambda frame, stored: honest(frame, stored).with_columns(raw_user=frame["raw_user"])


@pytest.mark.parametrize(
    ("owner", "name", "twin"),
    [(None, "", None), (room, "read_partition", in_the_cap), (sources, "with_ids", in_partitions)],
)
def test_one_person_in_several_spellings_is_capped_as_one(tmp_path, monkeypatch, owner, name, twin):
    if twin is not None:
        monkeypatch.setattr(owner, name, twin(getattr(owner, name)))
    made = in_spellings(tmp_path)
    as_one = people(made)["user_id"].to_list() == ["7", "b", "é"] and made.users == made.episodes == 3
    assert (as_one and made.quarantined == {"over_cap": 3, "two_spellings": 3}) is (twin is None)


def test_the_operator_hears_where_spellings_meet_and_finds_them_in_the_quarantine(tmp_path):
    made = in_spellings(tmp_path)
    card = make_card(tmp_path, ["log.csv"], unit={"episodes_per_user": 1})
    filed = quarantine(made.folder).filter(rule="two_spellings")
    assert [cells["user"] for cells in filed["source"]] == ["7.0", " 7", "e\u0301"]
    assert filed["line"].to_list() == [3, 4, 6] and set(filed["effect"]) == {"coerce"}
    told = next(rule for rule in made.report["rules"] if rule["rule"] == "two_spellings")
    assert (told["rows"], told["people"]) == (3, 2)
    inspected = Store(tmp_path / "home").inspect(card)
    assert {rule["rule"]: rule["rows"] for rule in inspected["rules"]}["two_spellings"] == 3
    assert inspected["people"]["above_cap"] == 2
    assert made.report["people_lost"] == 0


def test_one_spelling_of_a_person_is_nothing_to_tell(tmp_path):
    rows = [("7.0", e, 0, "x", 0, 0.5) for e in (0, 1)]
    assert taken(tmp_path, frame_of(rows), "csv").quarantined == {"over_cap": 1}


def test_a_person_who_breaks_a_rule_in_two_spellings_is_one_at_the_gate(tmp_path):
    rows = [(user, e, 0, "x", 0, None) for e, user in enumerate(["7", "7.0", "7.0"])]
    made = taken(tmp_path, frame_of(rows), "csv")
    assert made.set_aside == {"bad_reward+two_spellings": 1}


def test_what_looks_alike_and_is_not_an_integer_that_became_a_float_stays_two_people(tmp_path):
    several = ["7777", "07777", "７７７７", "7777.00", "7777.5", "7777e0", "７.0", "x.0", "X.0"]
    frame = frame_of([(user, 0, 0, "x", 0, 0.5) for user in several])
    assert set(people(taken(tmp_path, frame, "csv"))["user_id"]) == set(several)


LARGE = {
    "parquet": [7.0, 2.0**53, -(2.0**60)],
    "narrow": pl.Series([7.0, 2.0**24, 2.0**30], dtype=pl.Float32),
    "csv": ["7.0", "9007199254740992.0", "1.2345678901234568e+18"],
    "ndjson": [7.0, 2.0**53, 2.0**60],
}


@pytest.mark.parametrize("form", LARGE)
def test_floats_that_stand_for_several_integers_are_nobodys_and_end_the_ingest_with_exit_3(tmp_path, form):
    frame = ROWS[:3].with_columns(pl.Series("user", LARGE[form]))
    form = "parquet" if form == "narrow" else form
    made = taken(tmp_path, frame, form)
    # the row of one person whose id is none keeps nobody else's away
    assert people(made)["user_id"].to_list() == ["7"] and made.quarantined == {"inexact_user": 2}
    assert made.set_aside == {}
    with pytest.raises(LogError, match=rf"inexact_user .*first at log.{form}, line \d, \d; .* column 'user'") as e:
        check_delivery(made)
    assert not any(digits in str(e.value) for digits in ("9007", "1.23", "1.15", "16777", "1.07"))
    assert made.report["people_lost"] == 0 and made.report["rules"][0]["people"] is None
    check_delivery(taken(tmp_path, frame, form, tolerance={"inexact_user": 0.9}))


def test_integers_of_any_length_are_exact_where_they_never_were_floats(tmp_path):
    frame = frame_of([(str(2**53 + i), 0, 0, "x", 0, 0.5) for i in range(3)])
    for form in ("csv", "ndjson"):
        assert taken(tmp_path / form, frame, form).users == 3
    decimals = frame.with_columns(pl.Series("user", [Decimal(2**53 + i) for i in range(3)], dtype=pl.Decimal(30, 4)))
    assert set(people(taken(tmp_path, decimals))["user_id"]) == {str(2**53 + i) for i in range(3)}


def test_wide_rows_and_rows_in_a_declared_order_have_the_same_people(tmp_path):
    row = "{},{},x,0,1,y,1,0.5,x,0,0\n"
    made = read_wide(tmp_path, WIDE_HEAD + row.format("7", 1) + row.format("7.0", 2) + row.format(" 12", 1))
    assert set(people(made)["user_id"]) == {"7", "12"} and made.episodes == 2
    assert made.quarantined["two_spellings"] == 1
    told = quarantine(made.folder).filter(rule="two_spellings")["source"][0]
    assert told["user"] == "7.0" and told["s_1"] == "x"
    columns = {"user_id": "user_id", "reward": "reward"}
    found, made = read_in_order(tmp_path / "b", ["7.0,2,y,b,1", "7,1,x,a,0", "7.0,3,z,a,1"], columns=columns | {
        "episode_id": "action"})  # fmt: skip
    assert set(found["user_id"]) == {"7"} and made.users == 1


def test_rows_in_the_order_they_were_logged_are_one_persons_whatever_spelling(tmp_path):
    columns = {"user_id": "user", "episode_id": "episode", "step": "step", "reward": "r", "terminated": "over"}
    rows = [("7", "x", 0, 0.5, False), ("7.0", "y", 0, 0.5, True), ("7", "x", 0, 0.5, True), ("8", "x", 0, 1, True)]
    pl.DataFrame(rows, schema=["user", "s", "a", "r", "over"], orient="row", strict=False).write_csv(tmp_path / "l.csv")
    source = {"format": "transitions"}
    card = make_card(tmp_path, ["l.csv"], columns, source={"files": ["l.csv"], "columns": columns, **source},
                     unit={"episodes_per_user": 3})  # fmt: skip
    made = ingest(card, tmp_path / "home")
    assert canonical(made).group_by("user_id", "episode_id").len().sort("len").select("user_id", "len").rows() in (
        [("7", 1), ("8", 1), ("7", 2)], [("8", 1), ("7", 1), ("7", 2)],
    )  # fmt: skip


# an edition of now, and of a version before; 0 stands in no manifest
@pytest.mark.parametrize(
    ("form", "now", "before"), [("ids", 1, 0), ("cells", 3, 0), *(slow("cells", 3, i) for i in (1, 2))]
)
def test_an_edition_of_before_is_not_repeated_where_ids_or_cells_were_read_otherwise(tmp_path, form, now, before):
    made = in_spellings(tmp_path)
    manifest = made.folder / "manifest.json"
    content = json.loads(manifest.read_text())
    assert content.pop(form) == now
    content |= {form: before} if before else {}
    content.pop("sha256")
    manifest.write_text(json.dumps(content))
    again = in_spellings(tmp_path)
    assert getattr(again, form) == now and again.number == 2 and again.data_digest == made.data_digest
