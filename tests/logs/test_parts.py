"""People in two parts: whole, disjoint, by their id alone, and gone when the release is on disk."""

from __future__ import annotations

import hmac
from fractions import Fraction

import polars as pl

from pipeline.logs.parts import Split, evaluates, part_key, split_people
from pipeline.logs.store import latest
from pipeline.logs.summing import forget
from tests.flows.shop import lay_out, rows
from tests.jobs import home_at, ingest_job

SECRET = bytes(range(32))
SHARE = Fraction(3, 10)
SPLIT = Split(SHARE, part_key(SECRET, "shop"))


def ingested(folder, log=None):
    lay_out(folder, log=log)
    ingest_job(folder / "card.toml", home := home_at(folder / "home"))
    return latest(home.store, "shop")


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


def test_parts_are_secret_kept_for_a_retry_and_gone_afterwards(tmp_path):
    snapshot = ingested(tmp_path)
    learn, _ = split_people(snapshot, SPLIT)
    before = learn.part_files[0].stat()
    assert before.st_mode & 0o077 == 0 and learn.folder.stat().st_mode & 0o077 == 0
    assert split_people(snapshot, SPLIT)[0].part_files[0].stat().st_mtime_ns == before.st_mtime_ns
    for name in (".sums", ".sums.partial", ".sums.new"):
        # as older versions kept them
        (snapshot.folder / name).write_bytes(b"raw sums")
    forget(snapshot)
    assert [p.name for p in snapshot.folder.iterdir() if "parts" in p.name or "sums" in p.name] == []


def test_any_id_has_the_part_that_its_keyed_hash_says_under_a_key_of_secret_and_lineage():
    """So a larger share holds the people of a smaller one, and nobody can tell who they are."""
    key, ids = part_key(SECRET, "shop"), ["", "1", "2", "ä", "b" * 999, *map(str, range(2000))]
    told = [int.from_bytes(hmac.digest(key, i.encode(), "sha256")[:8], "big") for i in ids]
    for share in (Fraction(0), SHARE, Fraction(1, 2)):
        held = evaluates(ids, share, key)
        assert held == [x < share * 2**64 for x in told] and abs(sum(held) / len(ids) - share) < 0.05
    for i, x in zip(ids[:5], told, strict=False):
        assert [evaluates([i], Fraction(x + d, 2**64), key)[0] for d in (0, 1)] == [False, True]
    for other in (part_key(SECRET, "b"), part_key(b"x" * 32, "shop")):
        same = map(int.__eq__, evaluates(ids, SHARE, key), evaluates(ids, SHARE, other))
        assert abs(sum(same) / len(ids) - 0.58) < 0.06
