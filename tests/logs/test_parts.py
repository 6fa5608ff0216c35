"""People in two parts: whole, disjoint, by their id alone, and gone when the release is on disk."""

from __future__ import annotations

import hmac
from fractions import Fraction

import polars as pl

from flows.config.home import Home
from flows.jobs.intake import ingest_job
from pipeline.logs.parts import Split, evaluates, part_key, split_people
from pipeline.logs.store import latest
from pipeline.logs.summing import forget
from tests.flows.shop import lay_out, rows

SECRET = bytes(range(32))
SHARE = Fraction(3, 10)
SPLIT = Split(SHARE, part_key(SECRET, "shop"))


def ingested(folder, log=None):
    lay_out(folder, log=log)
    home = Home(folder / "home")
    ingest_job(str(folder / "card.toml"), home)
    found = latest(home.store, "shop")
    assert found is not None
    return found


def people(snapshot):
    return pl.concat([pl.read_parquet(part) for part in snapshot.part_files])


def test_parts_are_whole_people_and_all_of_them(tmp_path):
    snapshot = ingested(tmp_path)
    learn, evaluate = split_people(snapshot, SPLIT)
    a, b, all_of = people(learn), people(evaluate), people(snapshot)
    assert not set(a["user_id"]) & set(b["user_id"])
    keys = ["user_id", "episode_id", "step"]
    assert pl.concat([a, b]).sort(keys).equals(all_of.sort(keys))
    assert (learn.rows, evaluate.rows) == (len(a), len(b))
    assert a.sort(keys).equals(a) and b.sort(keys).equals(b)
    assert 0.2 < len(set(b["user_id"])) / 400 < 0.4


def test_what_others_are_in_the_log_moves_nobody(tmp_path):
    log = rows()
    one = ingested(tmp_path / "one", log)
    other = ingested(tmp_path / "other", [r for r in log if r[0] != "c7"])
    for whole, less in zip(split_people(one, SPLIT), split_people(other, SPLIT), strict=True):
        kept = people(whole).filter(pl.col("user_id") != "c7")
        keys = ["user_id", "episode_id", "step"]
        assert kept.sort(keys).equals(people(less).sort(keys))


def test_a_larger_share_holds_the_people_of_a_smaller_one():
    ids, key = [f"c{i}" for i in range(2000)], part_key(SECRET, "shop")
    few, many = (evaluates(ids, Fraction(share), key) for share in ("1/5", "1/2"))
    assert all(b or not a for a, b in zip(few, many, strict=True))
    assert abs(sum(many) / 2000 - 0.5) < 0.05
    assert evaluates(ids, Fraction(0), key) == [False] * 2000


def test_another_secret_or_lineage_is_another_split():
    ids = [f"c{i}" for i in range(2000)]
    splits = [evaluates(ids, SHARE, part_key(s, n)) for s, n in ((SECRET, "shop"), (SECRET, "b"), (b"x" * 32, "shop"))]
    assert all(abs(sum(map(int.__eq__, splits[0], other)) / 2000 - 0.58) < 0.06 for other in splits[1:])


def test_parts_are_secret_kept_for_a_retry_and_gone_afterwards(tmp_path):
    snapshot = ingested(tmp_path)
    learn, _ = split_people(snapshot, SPLIT)
    before = learn.part_files[0].stat()
    assert before.st_mode & 0o077 == 0 and learn.folder.stat().st_mode & 0o077 == 0
    assert split_people(snapshot, SPLIT)[0].part_files[0].stat().st_mtime_ns == before.st_mtime_ns
    forget(snapshot)
    assert [p.name for p in snapshot.folder.iterdir() if "parts" in p.name] == []


def test_any_id_has_the_part_that_its_keyed_hash_says():
    key, ids = part_key(SECRET, "shop"), ["", "1", "2", "ä", "b" * 999]
    told = [int.from_bytes(hmac.digest(key, i.encode(), "sha256")[:8], "big") for i in ids]
    assert evaluates(ids, SHARE, key) == [x < SHARE * 2**64 for x in told]
    one = [
        evaluates([i], Fraction(x, 2**64) + Fraction(d, 2**64), key)[0]
        for i, x in zip(ids, told, strict=True)
        for d in (0, 1)
    ]
    assert one == [False, True] * len(ids)
