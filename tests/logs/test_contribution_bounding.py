"""Who counts on a night, and who judges: nobody's part depends on anybody else's rows."""

import hmac
import tempfile
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.declaration.toml import DamagedError
from pipeline.logs import contribution_bounding as bounding
from pipeline.logs.aggregate import count_new, count_rows
from pipeline.logs.contribution_bounding import hash_width, keyed_hash
from pipeline.logs.parts import Split, evaluates, forget, part_key, split_people
from pipeline.logs.store import Snapshot, latest, part_file
from reticent import Card
from tests.conftest import card_dict, slow
from tests.flows.shop import lay_out, rows
from tests.jobs import home_at, ingest_job

KEY = b"k" * 32
# user, episode, state, action: one step each, night by night
STEP = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1), st.integers(0, 1))
NIGHTS = st.lists(st.lists(STEP, max_size=6), min_size=1, max_size=4)


def card_of(recurs: str, m: int) -> Card:
    domain = card_dict()["domain"] | {"horizon": 1}
    unit = {"user": "user_id", "episodes_per_user": m, "users_public": 100, "recurs": recurs}
    return Card.model_validate(card_dict(domain=domain, unit=unit))


def snapshot(folder: Path, number: int, steps: list[tuple[int, int, int, int]]) -> Snapshot:
    """A canonical snapshot of two partitions; the first of two rows of one episode stands."""
    where = folder / f"snapshot-{number:04d}"
    where.mkdir()
    first = {(u, e): (s, a) for u, e, s, a in reversed(steps)}
    rows = pl.DataFrame(
        [(u, e, 0, s, a, 0.0, 2, True) for (u, e), (s, a) in first.items()],
        schema={
            "user_id": pl.Int64, "episode_id": pl.Int64, "step": pl.Int32, "state": pl.Int32, "action": pl.Int32,
            "reward": pl.Float64, "next_state": pl.Int32, "terminated": pl.Boolean,
        },
        orient="row",
    ).sort("user_id", "episode_id")  # fmt: skip
    for i in range(2):
        rows.filter(pl.col("user_id") % 2 == i).write_parquet(part_file(where, i))
    return Snapshot("tiny", number, where, "synthetic", "", "", "", 0, 0, 0, 0, {}, 2)


def ingested(steps: list[tuple[int, int, int, int]], m: int) -> list[tuple[int, int, int, int]]:
    """What ingest keeps of a night: m episodes a person, by the public hash of its cap."""
    kept = chosen(m, set(), {(u, e) for u, e, _, _ in steps})
    return [row for row in steps if row[:2] in kept]


def by_night(card: Card, lay_out: Callable[[Path], Iterable[Snapshot]], **how: bool) -> list[dict[str, np.ndarray]]:
    """What each night counts, one snapshot a night."""
    seen, found = np.empty((0, hash_width(card)), dtype=np.uint64), []
    with tempfile.TemporaryDirectory() as name:
        for night in lay_out(Path(name)):
            tables, fresh = count_new([night], card, seen, KEY, **how)
            seen = np.concatenate([seen, fresh])
            found.append(tables)
    return found


def leaves(card: Card, nights: list[list[tuple[int, int, int, int]]]) -> list[dict[str, np.ndarray]]:
    kept = [ingested(steps, card.unit.episodes_per_user) for steps in nights]
    return by_night(card, lambda folder: (snapshot(folder, i, steps) for i, steps in enumerate(kept)))


def counted(tables: dict[str, np.ndarray]) -> int:
    return int(tables["n_sa"].sum())


@pytest.mark.parametrize("recurs", ["never", "capped"])
@settings(max_examples=8, deadline=None)
@given(NIGHTS, st.integers(1, 3))
def test_never_counts_everybody_on_their_first_night_alone_and_capped_each_episode_once_up_to_m(recurs, nights, m):
    seen: set[tuple[int, int]] = set()
    kept = [ingested(steps, m) for steps in nights]
    for steps, tables in zip(kept, leaves(card_of(recurs, m), nights), strict=True):
        new = {(u, e) for u, e, _, _ in steps} - seen
        if recurs == "never":
            new = {(u, e) for u, e in new if u not in {user for user, _ in seen}}
        expected = 0
        for user in {u for u, _ in new}:
            room = m - sum(u == user for u, _ in seen)
            expected += min(room, sum(u == user for u, _ in new))
        assert counted(tables) == expected
        # which of them counted is the hash's choice: read it off a second pass of each alone
        seen |= chosen(m, seen, new)


def chosen(m, seen, new):
    """Episodes that count, by the order of the public hash of ingest's cap."""
    order = {pair: int(keyed_hash([f"{pair[0]}\x1f{pair[1]}"], "tiny")[0]) for pair in new}
    found: set[tuple[int, int]] = set()
    for pair in sorted(new, key=order.__getitem__):
        if sum(u == pair[0] for u, _ in seen | found) < m:
            found.add(pair)
    return found


@settings(max_examples=4, deadline=None)
@given(NIGHTS, NIGHTS, st.sampled_from([("never", 1), ("never", 2), ("capped", 2)]))
def test_replacing_one_person_changes_that_persons_part_alone(nights, others, unit):
    """Person 0's rows of all nights are swapped for any other: the rest of every leaf stays as it was."""
    card = card_of(*unit)
    without = [[row for row in steps if row[0] != 0] for steps in nights]
    rest = leaves(card, without)
    for records in (nights, others):
        own = [[row for row in (records[k] if k < len(records) else []) if row[0] == 0] for k in range(len(nights))]
        alone = leaves(card, own)
        both = leaves(card, [a + b for a, b in zip(without, own, strict=True)])
        for name in ("n_0", "n_sa", "n_sas", "r_sa"):
            assert all(np.array_equal(b[name], r[name] + a[name]) for b, r, a in zip(both, rest, alone, strict=True))


def test_a_membership_that_looks_at_others_is_caught(monkeypatch):
    """A broken twin: whoever comes in the first partition decides for all."""

    def crowd(rows, card, seen, *more):
        return original(rows, card, seen, *more) if seen.is_empty() else original(rows, card, seen, *more).clear()

    original = bounding.pick_new
    monkeypatch.setattr(bounding, "pick_new", crowd)
    with pytest.raises(AssertionError):
        test_replacing_one_person_changes_that_persons_part_alone.hypothesis.inner_test(
            [[(1, 0, 0, 0)]], [[(0, 0, 0, 0)]], ("never", 1)
        )


def test_several_snapshots_of_one_night_are_taken_in_their_order(tmp_path):
    card = card_of("never", 1)
    both = [snapshot(tmp_path, 1, [(1, 0, 0, 0)]), snapshot(tmp_path, 2, [(1, 0, 1, 1), (2, 0, 1, 1)])]
    tables, fresh = count_new(both, card, np.empty((0, 2), dtype=np.uint64), KEY)
    assert tables["n_sa"][0].tolist() == [[1, 0], [0, 1]] and len(fresh) == 2


def test_hashes_need_the_key_and_ids_are_their_text(tmp_path):
    card, nobody = card_of("never", 1), np.empty((0, 2), dtype=np.uint64)
    night = snapshot(tmp_path, 1, [(1, 0, 0, 0)])
    one, other = (count_new([night], card, nobody, key)[1] for key in (KEY, b"o" * 32))
    assert one.shape == other.shape == (1, 2) and (one != other).all()
    rows = pl.read_parquet(part_file(night.folder, 1)).with_columns(pl.col("user_id").cast(pl.String))
    rows.write_parquet(part_file(night.folder, 1))
    assert len(count_new([night], card, one, KEY)[1]) == 0
    assert count_rows(rows, card)["n_sa"].sum() == 1


def may_count(rows: list[tuple[int, int, int]], horizon: int, m: int) -> bool:
    """What ingest keeps, read one row after the other: in order, none twice, m episodes a person."""
    episodes: dict[int, set[int]] = {}
    for user, episode, _ in rows:
        episodes.setdefault(user, set()).add(episode)
    in_order = all(a < b for a, b in pairwise(rows))
    return in_order and all(0 <= h < horizon for *_, h in rows) and max(map(len, episodes.values()), default=0) <= m


@pytest.mark.parametrize("piece", [1, 2, slow(1 << 17)])
@pytest.mark.parametrize("text", [False, True])
def test_caps_are_refused_where_rows_one_by_one_are(piece, text, constants):
    constants(piece=piece)
    rng, horizon, m = np.random.default_rng(piece), 3, 2
    card = card_of("capped", m)
    card = card.model_copy(update={"domain": card.domain.model_copy(update={"horizon": horizon})})
    verdicts = list[bool]()
    for _ in range(120):
        rows = [(u, e, h) for u in range(1, 4) for e in range(rng.integers(0, m + 1)) for h in range(horizon)]
        if len(rows) and rng.random() < 0.6:
            at, which = rng.integers(len(rows)), rng.integers(3)
            moved = list(rows[at])
            moved[which] += rng.choice([-1, 1])
            rows[at : at + 1] = [[tuple(moved)], [rows[at]] * 2, [], [rows[at], tuple(moved)]][rng.integers(4)]
        frame = pl.DataFrame(rows, dict.fromkeys(bounding.IDENTITY, pl.Int64), orient="row")
        if text:
            frame = frame.with_columns(pl.col("user_id").cast(pl.String))
        told = sorted(rng.integers(0, len(rows) + 1, 2).tolist())
        caps, refused = bounding.CapsAgain(card, [len(rows)]), False
        try:
            for low, high in pairwise([0, *told, len(rows)]):
                caps.check(frame[low:high])
        except DamagedError:
            refused = True
        assert refused != may_count(rows, horizon, m), rows
        verdicts.append(refused)
    assert 30 < sum(verdicts) < 90


# night on which each row arrives after the one before it, and how the episode ends
EPISODE = st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=3), st.sampled_from(["end", "cut", "open"]))
PEOPLE = st.lists(st.lists(EPISODE, min_size=1, max_size=2), min_size=2, max_size=6)


def long_card(recurs: str, m: int) -> Card:
    card = card_of(recurs, m)
    return card.model_copy(update={"domain": card.domain.model_copy(update={"horizon": 3})})


def deliveries(people, folder: Path, nights: int = 7) -> list[Snapshot]:
    """A log that grows: each night's snapshot holds every row that has arrived."""
    rows = []
    for u, episodes in enumerate(people):
        for e, (waits, how) in enumerate(episodes):
            for h, at in enumerate(np.cumsum(waits).tolist()):
                last = h == len(waits) - 1
                ends = (last and how == "end", last and how == "cut")
                rows.append((str(u), e, h, u % 2, 0, 1.0, 2 if ends[0] else e % 2, *ends, at))
    schema = {
        "user_id": pl.String, "episode_id": pl.Int64, "step": pl.Int32, "state": pl.Int32, "action": pl.Int32,
        "reward": pl.Float64, "next_state": pl.Int32, "terminated": pl.Boolean, "truncated": pl.Boolean,
        "at": pl.Int64,
    }  # fmt: skip
    log = pl.DataFrame(rows, schema=schema, orient="row").sort("user_id", "episode_id", "step")
    found = []
    for number in range(nights):
        where = folder / f"snapshot-{number:04d}"
        where.mkdir()
        log.filter(pl.col("at") <= number).drop("at").write_parquet(part_file(where, 0))
        found.append(Snapshot("tiny", number, where, "synthetic", "", "", "", 0, 0, 0, 0, {}, 1))
    return found


def grown(people, card: Card, *, whole: bool) -> list[dict[str, np.ndarray]]:
    """What each night of the growing log counts."""
    return by_night(card, lambda folder: deliveries(people, folder), whole=whole)


def ended(episode) -> int | None:
    """The night on which an episode ends; None: it never does."""
    waits, how = episode
    return int(sum(waits)) if how != "open" or len(waits) == 3 else None


@settings(max_examples=4, deadline=None)
@given(PEOPLE)
def test_an_episode_is_counted_whole_on_the_night_that_delivers_its_end(people):
    by_night = grown(people, long_card("capped", 2), whole=True)
    for night, tables in enumerate(by_night):
        lengths = [len(e[0]) for episodes in people for e in episodes if ended(e) == night]
        assert int(tables["n_sa"].sum()) == sum(lengths)
    # where a person counts once, they wait until all of theirs that are there have ended
    total, expected = grown(people, long_card("never", 2), whole=True), 0
    for episodes in people:
        for night in range(7):
            there = [e for e in episodes if e[0][0] <= night]
            if there and all(ended(e) is not None and ended(e) <= night for e in there):
                expected += sum(len(e[0]) for e in there)
                break
    assert sum(int(tables["n_sa"].sum()) for tables in total) == expected


def test_an_episode_that_midnight_cuts_is_caught():
    """The twin is what counters did before: the part that came first is all that ever counts."""
    people, card = [[([0, 1, 1], "end")]], long_card("never", 1)
    assert [int(t["n_sa"].sum()) for t in grown(people, card, whole=False)][:4] == [1, 0, 0, 0]
    assert [int(t["n_sa"].sum()) for t in grown(people, card, whole=True)][:4] == [0, 0, 3, 0]
    # and one without an end never counts
    assert not sum(t["n_sa"].sum() for t in grown([[([0, 1], "open")]], card, whole=True))


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(PEOPLE, PEOPLE, st.sampled_from([("never", 2), ("capped", 2)]))
def test_whose_episodes_wait_depends_on_their_own_rows_alone(people, others, unit):
    card = long_card(*unit)
    for first in (people[0], others[0]):
        both = grown([first, *people[1:]], card, whole=True)
        alone = grown([first], card, whole=True)
        # person 0 with nothing at all, the others as they are
        rest = grown([[], *people[1:]], card, whole=True) if len(people) > 1 else None
        for night, tables in enumerate(both):
            for name in ("n_sa", "n_sas", "r_sa"):
                others_part = 0 if rest is None else rest[night][name]
                assert np.array_equal(tables[name], alone[night][name] + others_part)


SECRET = bytes(range(32))
SHARE, KEYS = Fraction(3, 10), ["user_id", "episode_id", "step"]
SPLIT = Split(SHARE, part_key(SECRET, "shop"))


def shop_of(folder, log=None):
    lay_out(folder, log=log)
    ingest_job(folder / "card.toml", home := home_at(folder / "home"))
    return latest(home.store, "shop")


def people(snapshot):
    return pl.concat([pl.read_parquet(part) for part in snapshot.part_files])


def test_parts_are_whole_people_and_all_of_them(tmp_path):
    snapshot = shop_of(tmp_path)
    learn, evaluate = split_people(snapshot, SPLIT)
    a, b, all_of = people(learn), people(evaluate), people(snapshot)
    assert not set(a["user_id"]) & set(b["user_id"])
    assert pl.concat([a, b]).sort(KEYS).equals(all_of.sort(KEYS))
    assert (learn.rows, evaluate.rows) == (len(a), len(b))
    assert a.sort(KEYS).equals(a) and b.sort(KEYS).equals(b)
    assert 0.2 < len(set(b["user_id"])) / 400 < 0.4


def test_what_others_are_in_the_log_moves_nobody(tmp_path):
    log = rows()
    one = shop_of(tmp_path / "one", log)
    other = shop_of(tmp_path / "other", [r for r in log if r[0] != "c7"])
    for whole, less in zip(split_people(one, SPLIT), split_people(other, SPLIT), strict=True):
        kept = people(whole).filter(pl.col("user_id") != "c7")
        assert kept.sort(KEYS).equals(people(less).sort(KEYS))


def test_parts_are_secret_kept_for_a_retry_and_gone_afterwards(tmp_path):
    snapshot = shop_of(tmp_path)
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
