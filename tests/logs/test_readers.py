"""Files as they come: formats, types, and damage that ends in one line."""

import io
import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.logs.readers import lines
from pipeline.logs.readers.batch import RECORD_BYTES
from reticent import LogError
from tests.conftest import slow
from tests.logs.conftest import canonical, check_delivery, ingest, make_card, quarantine, write_arrow

TEXT = "user,episode,t,s,a,r\nu,1,0,x,0,1\nu,1,1,y,1,0\n"
FRAME = pl.DataFrame({"user": [7, 7], "episode": [1, 1], "t": [0, 1], "s": ["x", "y"], "a": [0, 1], "r": [1.0, 0.0]})


def table(folder: Path, *files: str, **card: Any) -> pl.DataFrame:
    return canonical(ingest(make_card(folder, list(files), **card), folder / "home"))


def read(folder: Path, *frames: pl.DataFrame, **card: Any) -> pl.DataFrame:
    """Canonical rows of frames, each in a Parquet file of its own."""
    folder.mkdir(exist_ok=True)
    for i, frame in enumerate(frames):
        frame.write_parquet(folder / f"{i}.parquet")
    return table(folder, *(f"{i}.parquet" for i in range(len(frames))), **card)


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode("utf-8-sig"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.rstrip("\n").encode(),
        TEXT.replace("\n", "\n\n").encode(),
        TEXT.replace(",", '","').replace("\n", '"\n"').removesuffix('"').join(['"', ""]).encode(),
    ],
    ids=["byte order mark", "carriage returns", "no last newline", "blank lines", "all quoted"],
)
def test_every_dialect_of_utf8_csv_reads_alike(tmp_path, data):
    (tmp_path / "log.csv").write_bytes(data)
    assert table(tmp_path, "log.csv").select("user_id", "step", "state", "reward").rows() == [
        ("u", 0, 0, 1.0),
        ("u", 1, 1, 0.0),
    ]


def test_ids_of_parquet_stay_numbers_and_integers_that_became_floats_are_integers(tmp_path):
    found = read(tmp_path, FRAME.with_columns(pl.col("episode", "t", "a").cast(pl.Float64)))
    assert found.select("user_id", "episode_id", "step", "action").rows() == [(7, 1, 0, 0), (7, 1, 1, 1)]
    assert found.schema["step"] == found.schema["state"] == found.schema["next_state"] == pl.Int32


def test_a_file_that_lacks_an_optional_column_takes_nobodys_numbers(tmp_path):
    """Cells of a file without the column were text, which the notation of a column of numbers does not have."""
    notation, without = {"numbers": "1234,5", "optional": ["r"]}, FRAME.drop("r").with_columns(user=8)
    found = read(tmp_path, FRAME, without, source=notation, reward={"empty": 0.5})
    assert found["reward"].to_list() == [1.0, 0.0, 0.5, 0.5]


@pytest.mark.parametrize("form", ["{}", "{}.0"])
def test_the_empty_cell_of_another_row_takes_nobodys_labels_and_words(form, tmp_path):
    """It makes floats of a column of integers."""
    labels, words = {"column": "a", "labels": [form.format(i) for i in range(2)]}, {form.format(1): 0.5, "0": 1.0}
    for kind in (pl.Int64, pl.Float64, pl.String):
        frame = FRAME.with_columns(pl.col("a", "r").cast(kind))
        found = read(tmp_path / str(kind), frame, domain={"actions": labels}, reward={"words": words})
        assert found.select("action", "reward").rows() == [(0, 0.5), (1, 1.0)]


def test_if_one_file_has_text_ids_all_ids_are_text(tmp_path):
    FRAME.write_parquet(tmp_path / "a.parquet")
    FRAME.with_columns(pl.lit("8").cast(pl.Categorical).alias("user"), pl.col("r").cast(pl.Int8)).write_parquet(
        tmp_path / "b.parquet"
    )
    (tmp_path / "c.csv").write_text(TEXT, encoding="utf-8")
    found = table(tmp_path, "a.parquet", "b.parquet", "c.csv")
    assert found["user_id"].to_list() == ["7", "7", "8", "8", "u", "u"]
    assert found["reward"].to_list() == [1.0, 0.0] * 3


def test_text_episode_ids_become_numbers_that_depend_on_the_label_alone(tmp_path):
    (tmp_path / "log.csv").write_text(
        "user,episode,t,s,a,r\nu,stay-1,0,x,0,1\nv,stay-1,0,x,0,1\nw,007,0,x,0,1\nz,7,0,x,0,1\n", encoding="utf-8"
    )
    ids = table(tmp_path, "log.csv")["episode_id"].to_list()
    assert ids[0] == ids[1] >= 0
    assert ids[2] != ids[3] == 7


LONG_IDS = [16 * 10**17, 16 * 10**17 + 7, 2**63 - 1, -(2**63), 10**18, 0]
BY_ORDER = {"columns": {"step": None}, "source": {"order_by": "t"}}
IF_THERE = {"columns": {"step": None}, "source": {"order_by": "t", "optional": ["t"]}}
# column, my cells (three rows an episode), another person's cell as a number and as text, and what the card says
ANOTHERS: dict[str, tuple[str, list[Any], Any, str, dict[str, Any]]] = {
    "ids of nineteen digits": ("episode", [e for e in LONG_IDS for _ in range(3)], 1, "one", {}),
    "an id that is no integer of ours": ("episode", [e for e in LONG_IDS for _ in range(3)], 1, str(2**63), {}),
    "an infinite place": ("t", [1.0, 2.0, math.inf] * 6, 1.0, "2026-01-02", BY_ORDER),
    "a place that is missing": ("t", [1.0, math.nan, 2.0] * 6, 1.0, "2026-01-02", IF_THERE),
    "three decimals": ("r", [0.125, 0.25, 0.5] * 6, 0.5, "0,5", {"source": {"numbers": "1.234,5"}}),
    "words that are numbers": ("r", [1, 2, 0] * 6, 1, "good", {"reward": {"words": {"1": 0.5, "2": 0.0, "good": 1}}}),
    "words for true": ("r", [True, False, True] * 6, True, "good", {"reward": {"words": {"true": 0.5, "good": 1}}}),
    "no action": ("a", [0.0, 1.0, math.nan] * 6, 0.0, "go", {"source": {"last_row": "outcome"}}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if i % 2 else ()) for i, name in enumerate(ANOTHERS)]
)
def test_the_type_that_anothers_cell_gives_a_column_says_nothing_of_mine(name, tmp_path):
    column, mine, number, text, card = ANOTHERS[name]
    cells = {"user": "u", "episode": [e for e in range(6) for _ in range(3)], "t": [0, 1, 2] * 6}
    told = pl.DataFrame(cells | {"s": ["x", "y", "y"] * 6, "a": [0, 1, 1] * 6, "r": [1.0, 0.0, 0.5] * 6})
    told = told.with_columns(pl.Series(column, mine))
    found = list[Any]()
    for i, cell in enumerate((number, text)):
        odd = told[:1].with_columns(pl.lit("odd").alias("user"), pl.lit(cell).alias(column))
        more = card | {"unit": {"episodes_per_user": 3}, "reward": {"steps": 8} | card.get("reward", {})}
        found.append(read(tmp_path / str(i), told, odd, **more).filter(pl.col("user_id") == "u").rows())
    assert found[0] == found[1]
    assert bool(found[0]) == (name != "an infinite place")


@pytest.mark.parametrize("kind", [pl.Date(), *(pl.Datetime(unit) for unit in ("ms", "us", "ns"))], ids=str)
def test_one_more_digit_of_anothers_time_renumbers_nobodys_episodes(kind, tmp_path):
    """One time of day among dates, or one of nanoseconds, gives every cell of its column more digits."""
    days = pl.Series("episode", [f"2026-01-0{d}" for d in range(1, 8)]).str.to_date()
    mine = pl.DataFrame({"user": ["u"] * 7, "t": 0, "s": "x", "a": 0, "r": 1.0})
    found = list[Any]()
    for place, dtype in (("dates", pl.Date()), ("other", kind)):
        found += [read(tmp_path / place, mine.with_columns(days.cast(dtype)), unit={"episodes_per_user": 3}).rows()]
    assert found[0] == found[1] and len(found[0]) == 3


@pytest.mark.parametrize(
    "kind", [pl.Datetime("ms"), *(slow(kind) for kind in (pl.Datetime("us"), pl.Datetime("ns"), pl.Date))]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_moment_beyond_every_calendar_is_missing_and_the_others_stay(kind, sign, tmp_path):
    far = sign * (2**31 - 1 if kind == pl.Date else 2**63 - 1)
    moments = pl.Series("episode", [0, far, 1], dtype=pl.Int32 if kind == pl.Date else pl.Int64).cast(kind)
    rows = pl.DataFrame({"user": ["u", "far", "v"], "t": 0, "s": "x", "a": 0, "r": 1.0}).with_columns(moments)
    found = list[pl.DataFrame]()
    for place, some in (("with", rows), ("without", rows.filter(pl.col("user") != "far"))):
        whole = read(tmp_path / place, some)
        found.append(whole.filter(pl.col("user_id") != "far"))
        # the years that a count of nanoseconds reaches are all in the calendar
        assert place == "without" or len(whole) == 2 + (kind == pl.Datetime("ns"))
    assert found[0].equals(found[1]) and len(found[0]) == 2


def test_a_file_that_two_patterns_name_is_read_once(tmp_path):
    (tmp_path / "log.csv").write_text(TEXT, encoding="utf-8")
    assert len(table(tmp_path, "log.csv", "*.csv")) == 2


def test_only_the_columns_of_the_card_are_read(tmp_path):
    """What stands in another column may be damaged."""
    FRAME.with_columns(notes=pl.lit("private")).write_parquet(path := tmp_path / "log.parquet")
    for i, whole in ((6, True), (5, False)):
        found = pq.ParquetFile(path).metadata.row_group(0).column(i)
        with path.open("r+b") as file:
            file.seek(found.dictionary_page_offset or found.data_page_offset)
            file.write(b"\0" * found.total_compressed_size)
        with nullcontext() if whole else pytest.raises(LogError, match=r"log\.parquet"):
            assert len(table(tmp_path, "log.parquet")) == 2


FRAME.write_parquet(PARQUET := io.BytesIO())
WHOLE = PARQUET.getvalue()
DAMAGED = {
    "wide.csv": TEXT.encode("utf-16"),
    "cut.parquet": WHOLE[: len(WHOLE) // 2],
    "text.parquet": TEXT.encode(),
    "holed.parquet": WHOLE[:4] + b"\0" * 60 + WHOLE[64:],
    "log.tsv": TEXT.encode(),
    "log.csv.gz": b"\x1f\x8b",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_or_foreign_file_is_one_line_that_names_it(tmp_path, name):
    (tmp_path / name).write_bytes(DAMAGED[name])
    with pytest.raises(LogError) as error:
        table(tmp_path, name)
    assert name in str(error.value) and "\n" not in str(error.value)
    home = tmp_path / "home" / "store" / "tiny"
    assert not home.exists() or [p.name for p in home.iterdir()] == [".lock"]


@pytest.mark.parametrize("name", ["empty.csv", "header.csv", "empty.parquet"])
def test_a_file_without_rows_is_an_edition_and_its_operator_hears_of_it(tmp_path, name):
    head = TEXT.splitlines()[0].encode()
    (tmp_path / name).write_bytes(head if name == "header.csv" else b"")
    card = make_card(tmp_path, [name])
    snapshot = ingest(card, tmp_path / "home")
    assert (snapshot.number, snapshot.rows) == (1, 0)
    with pytest.raises(LogError, match="the files hold no rows"):
        check_delivery(snapshot)


@pytest.mark.parametrize("block", [1, 7, RECORD_BYTES - 1, lines.BLOCK_BYTES])
def test_lines_that_are_no_text_or_no_row_are_set_aside_alone(block, tmp_path, constants):
    long = b"z" * RECORD_BYTES
    odd = [b"v,1,0,\xff,0,1", b"v,1,0,\0,0,1", b"v,1,0,%s,0,1" % long, b"v,1,0,x,0,1\xc3"]
    odd += [b"v,1,0,x,0,1,2", b"v,1,0", b"v,1,0,x\ry,0,1"]
    if block < len(long):
        constants(block=block if block > 7 else 4096 * block)
    (tmp_path / "log.csv").write_bytes(TEXT.encode() + b"\n".join([*odd, b"w,1,0,x,0,1", long, b""]))
    snapshot = ingest(make_card(tmp_path, ["log.csv"]), tmp_path / "home")
    assert canonical(snapshot)["user_id"].to_list() == ["u", "u", "w"]
    filed = quarantine(snapshot.folder)
    assert filed.select("line", "rule").rows() == [(n, "malformed_line") for n in (*range(4, 11), 12)]
    assert [text[:13] for text in filed["text"]] == [
        "v,1,0,\\xff,0,", "v,1,0,\\x00,0,", "v,1,0,zzzzzzz", "v,1,0,x,0,1\\x",
        "v,1,0,x,0,1,2", "v,1,0", "v,1,0,x\ry,0,1", "zzzzzzzzzzzzz",
    ]  # fmt: skip


@pytest.mark.parametrize("user", [[True, False], [[1], [2]], [b"u", b"v"]])
def test_user_ids_of_another_type_are_refused(tmp_path, user):
    with pytest.raises(LogError, match=r"0.parquet: column 'user' is .*; write it as integers or text"):
        read(tmp_path, FRAME.with_columns(pl.Series("user", user)))


STRANGE = {
    "decimal": pa.decimal256(50, 2),
    "zone": pa.timestamp("us", "Mars/Phobos"),
    "interval": pa.month_day_nano_interval(),
    "inside": pa.list_(pa.struct([("x", pa.decimal256(60))])),
    "span": pa.duration("us"),
}


# Parquet has no column of intervals
@pytest.mark.parametrize(
    ("kind", "name"),
    [(k, n) for k in STRANGE for n in ("log.parquet", "log.arrow") if (k, n) != ("interval", "log.parquet")],
)
def test_a_type_that_ended_the_process_or_is_no_cell_is_a_wrong_column(kind, name, tmp_path, capfd):
    odd = pa.array([None, None], STRANGE[kind])
    rows = pa.table(FRAME.to_arrow()).append_column("odd", odd)
    for column, fits in (("s", True), ("odd", False)):
        if name == "log.parquet":
            pq.write_table(rows, tmp_path / name)
        else:
            write_arrow(tmp_path / name, rows)
        card = make_card(tmp_path, [name], domain={"states": {"column": column, "labels": ["x", "y"], "ends": ["end"]}})
        if fits:
            assert ingest(card, tmp_path / "home").rows == 2
            continue
        with pytest.raises(LogError, match=r"'odd' is (Object|Duration.*); write it as numbers, booleans or text"):
            ingest(card, tmp_path / "home")
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["wide.csv", "quoted.csv", "wide.parquet", "wide.ndjson"])
def test_ten_thousand_columns_are_read_in_seconds(name, tmp_path):
    """Each column once looked for its name among all of them."""
    frame = FRAME.with_columns(pl.lit(0).alias(f"c{i}") for i in range(10_000))
    if name == "wide.parquet":
        frame.write_parquet(tmp_path / name)
    elif name == "wide.ndjson":
        frame.write_ndjson(tmp_path / name)
    else:
        frame.write_csv(tmp_path / name, quote_style="always" if name == "quoted.csv" else "necessary")
    began = time.process_time()
    assert len(table(tmp_path, name)) == 2
    assert time.process_time() - began < 5
