"""Counts, tallies and their sums: those of a loop over rows, whatever the batch, the partition and the card."""

import hashlib
import math
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.declaration.toml import DamagedError
from pipeline.logs import contribution_bounding as bounding
from pipeline.logs import summing
from pipeline.logs.aggregate import CountSums, aggregate, count_rows
from pipeline.logs.contribution_bounding import IDENTITY
from pipeline.logs.elsewhere import Here, Packed
from pipeline.logs.ingest import ingest, write_rows
from pipeline.logs.regression_sums import TallySums, in_second_half, tally
from pipeline.logs.store import CANONICAL, Snapshot, part_file
from pipeline.logs.summing import Resources, sum_snapshot
from pipeline.statistics.count_layout import reward_lattice
from pipeline.statistics.layout import ExactSums
from reticent import Card, load_card
from tests.flows.shop import lay_out
from tests.flows.shop import rows as customers
from tests.logs.conftest import make_card


def by_hand(rows: pl.DataFrame, card: Card) -> dict[str, np.ndarray]:
    """What a snapshot's tables are, one row at a time."""
    d, lattice, end = card.domain, reward_lattice(card), card.domain.states.default_terminal
    live, cell = len(d.live_states), (d.table_steps, len(d.live_states), len(d.action_labels))
    out = {"n_0": np.zeros(live, np.int64), "n_sa": np.zeros(cell, np.int64), "r_sa": np.zeros(cell, np.int64)}
    out["n_sas"] = np.zeros((*cell, len(d.state_labels)), np.int64)
    records = list(rows.iter_rows(named=True))
    for r in records:
        out["n_0"][r["state"]] += r["step"] == 0

    def keyed(r: dict[str, Any]) -> tuple[Any, ...]:
        text = f"{r['user_id']}|{r['episode_id']}".encode()
        return hashlib.blake2b(text, key=card.name.encode(), digest_size=8).digest(), r["episode_id"], r["step"]

    # nothing comes after a last step whose tables are its own
    last = d.horizon - 1 if d.dynamics == "per_step" else None
    records = [r | ({"next_state": end} if r["next_state"] is None and r["step"] == last else {}) for r in records]
    known = [r for r in records if r["next_state"] is not None]
    if d.cell_cap is not None:
        seen: Counter[Any] = Counter()
        within = []
        for r in sorted(known, key=keyed) if card.unit.episodes_per_user > 1 else known:
            group = r["user_id"], r["state"], r["action"]
            seen[group] += 1
            within += [r] if seen[group] <= d.cell_cap else []
        known = within
    spent: Counter[Any] = Counter()
    for r in sorted(known, key=lambda r: (r["user_id"], r["episode_id"], r["step"])):
        at = r["step"] if d.dynamics == "per_step" else 0, r["state"], r["action"]
        over = end is not None and r["terminated"] and r["next_state"] < live
        out["n_sa"][at] += 1
        out["n_sas"][(*at, end if over else r["next_state"])] += 1
        if card.reward.kind == "estimate":
            k = int(lattice.index(np.array([r["reward"]]))[0])
            if card.reward.total_steps is not None:
                k = min(k, max(card.reward.total_steps - spent[r["user_id"]], 0))
                spent[r["user_id"]] += k
            out["r_sa"][at] += int(lattice.integer(np.array([k]))[0])
    return out


def snapshot(parts: list[pl.DataFrame], folder: Path) -> Snapshot:
    for i, rows in enumerate(parts):
        write_rows(rows, part_file(folder, i))
    n = sum(map(len, parts))
    return Snapshot("tiny", 1, folder, "synthetic", "", "", "", n, n, 0, 0, {}, len(parts))


@st.composite
def cards(draw: st.DrawFn) -> Card:
    dynamics = draw(st.sampled_from(["per_step", "stationary"]))
    ends = draw(st.sampled_from([["died", "end"], []]))
    states = {"column": "s", "labels": ["x", "y"], "ends": ends, "other": draw(st.booleans())}
    cap = draw(st.sampled_from([None, 1, 2])) if dynamics == "stationary" else None
    live, high = 2 + states["other"], draw(st.sampled_from([1.0, 0.3, 7.0]))
    reward: dict[str, Any] = {"range": [0.0, high], "steps": draw(st.sampled_from([1, 3, 10]))}
    if draw(st.booleans()):
        reward["total"] = draw(st.sampled_from([high, 1.5 * high]))
    elif draw(st.booleans()):
        reward = {"range": [0.0, high], "kind": "table", "table": [[0.0, high, 0.0]] * live}
    return make_card(
        Path(),
        ["log.csv"],
        {"next_state": "n"},
        domain={"states": states, "dynamics": dynamics, "cell_cap": cap},
        unit={"episodes_per_user": draw(st.sampled_from([1, 3]))},
        reward=reward,
    )


@st.composite
def logs(draw: st.DrawFn, card: Card) -> list[pl.DataFrame]:
    """Partitions of whole users, each sorted by user, episode, step; some empty, episodes of any length."""
    d, text = card.domain, draw(st.booleans())
    state = st.integers(0, len(d.live_states) - 1)
    successor = st.none() | st.integers(0, len(d.state_labels) - 1)
    action = st.integers(0, len(d.action_labels) - 1)
    reward = st.floats(-0.1, 7.1) if card.reward.kind == "estimate" else st.none()
    step = st.tuples(state, action, reward, successor, st.booleans())
    episode = st.lists(step, max_size=d.horizon)
    person = st.lists(episode, max_size=card.unit.episodes_per_user)
    parts = draw(st.lists(st.lists(person, max_size=4), min_size=1, max_size=3))
    frames, user = [], 0
    for people in parts:
        rows: list[tuple[Any, ...]] = []
        for episodes in people:
            user += 1
            name = f"u{user:02d}" if text else user
            for e, steps in enumerate(episodes):
                rows += [(name, e, h, s, a, r, s2, t, s2 is None, None) for h, (s, a, r, s2, t) in enumerate(steps)]
        frames.append(pl.DataFrame(rows, CANONICAL | {"user_id": pl.String if text else pl.Int64}, orient="row"))
    return frames


def same(got: Any, wanted: dict[str, np.ndarray]) -> None:
    assert set(got) == set(wanted)
    for name, table in wanted.items():
        assert got[name].dtype == np.int64 and got[name].shape == table.shape, name
        assert got[name].tobytes() == table.tobytes(), name


def in_batches(rows: int, made: Snapshot, card: Card) -> ExactSums:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.logs.aggregate.BATCH_ROWS", rows)
        return aggregate(made, card)


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_batches_count_as_the_rows_do_one_by_one(tmp_path_factory, data):
    card = data.draw(cards())
    parts = data.draw(logs(card))
    wanted = by_hand(pl.concat(parts), card)
    same(count_rows(pl.concat(parts), card), wanted)
    made = snapshot(parts, tmp_path_factory.mktemp("store"))
    counts = in_batches(data.draw(st.integers(1, 7)), made, card)
    same(counts.tables, wanted)


def people(n: int, seed: int = 3) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    columns = {
        "user_id": np.repeat(np.arange(n), 3), "episode_id": np.zeros(3 * n), "step": np.tile(np.arange(3), n),
        "state": rng.integers(0, 2, 3 * n), "action": rng.integers(0, 2, 3 * n), "reward": rng.random(3 * n).round(1),
        "next_state": rng.integers(0, 5, 3 * n), "terminated": np.zeros(3 * n, bool),
        "truncated": np.zeros(3 * n, bool), "behavior_prob": np.full(3 * n, 0.5),
    }  # fmt: skip
    return pl.DataFrame(columns).cast(CANONICAL | {"user_id": pl.Int64})  # pyright: ignore[reportArgumentType]


def capped_card() -> Card:
    return make_card(Path(), ["log.csv"], domain={"dynamics": "stationary", "cell_cap": 1}, reward={"total": 1.0})


def test_people_cut_by_a_batch_are_put_together_again(tmp_path, monkeypatch):
    """And a twin that forgets to counts more than one person may add."""
    card, rows = capped_card(), people(50)
    made = snapshot([rows], tmp_path)
    wanted = by_hand(rows, card)
    same(in_batches(4, made, card).tables, wanted)
    assert list(bounding.group_users([rows[:0]])) == []
    monkeypatch.setattr(bounding, "group_users", lambda batches: batches)
    forgetful = in_batches(4, made, card).tables
    assert forgetful["n_sa"].sum() > wanted["n_sa"].sum() and forgetful["r_sa"].sum() > wanted["r_sa"].sum()


def test_a_cap_forgets_no_step_of_tables_by_step():
    # a linear policy is measured by such tables on whatever card
    card, rows = capped_card(), people(20)
    assert card.domain.cell_cap is not None
    apart = card.domain.model_copy(update={"dynamics": "per_step"})
    uncapped = apart.model_copy(update={"cell_cap": None})
    by_step, wanted = (card.model_copy(update={"domain": d}) for d in (apart, uncapped))
    same(count_rows(rows, by_step), by_hand(rows, wanted))


def test_a_person_in_two_places_is_refused_where_a_cap_counts_on_it(tmp_path):
    made = snapshot([pl.concat([people(2), people(2)])], tmp_path)
    with pytest.raises(DamagedError, match="not what ingest wrote"):
        in_batches(4, made, capped_card())


def test_only_what_the_tables_need_is_read(tmp_path):
    """Undeclared rewards are not; whose row it is always is, because the caps are checked again."""
    rows = people(20)
    made = snapshot([rows.select(*IDENTITY, "state", "action", "next_state", "terminated", "reward")], tmp_path)
    same(aggregate(made, make_card(Path(), ["log.csv"])).tables, by_hand(rows, make_card(Path(), ["log.csv"])))
    write_rows(rows.select(*IDENTITY, "state", "action", "next_state"), part_file(tmp_path, 0))
    card = make_card(
        Path(),
        ["log.csv"],
        {"next_state": "n"},
        domain={"states": {"column": "s", "labels": 5}},
        reward={"kind": "table", "table": [[0.0] * 3] * 5},
    )
    same(aggregate(made, card).tables, by_hand(rows, card))


def test_parts_count_alike_in_one_scan_or_in_several(tmp_path, constants):
    made, card = snapshot([people(3), people(0), people(2, seed=7)], tmp_path), make_card(Path(), ["log.csv"])
    wanted = aggregate(made, card).tables
    for most in (1, 4, 11):
        constants(scan=most)
        same(aggregate(made, card).tables, wanted)


@pytest.mark.parametrize("card", ["plain", "capped"])
def test_progress_is_told_in_rows(card, tmp_path, constants):
    told: list[tuple[int, int | None]] = []
    made = snapshot([people(3), people(0), people(2)], tmp_path)
    constants(parts=2)
    chosen = capped_card() if card == "capped" else make_card(Path(), ["log.csv"])
    aggregate(made, chosen, Resources(progress=lambda *at: told.append(at)))
    assert told == sorted(set(told)) and told[0] < told[-1] == (15, 15)


BEYOND: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "rows again": lambda rows: pl.concat([rows, rows[-3:]]),
    "a step again": lambda rows: pl.concat([rows, rows[-1:]]),
    "an episode more": lambda rows: pl.concat([rows, rows[-1:].with_columns(pl.col("episode_id") + 1)]),
    "a step beyond the horizon": lambda rows: rows.with_columns(pl.col("step") + 50),
    "a step before the first": lambda rows: rows.with_columns(pl.col("step") - 1),
    "another order": lambda rows: rows.reverse(),
}


@pytest.mark.parametrize(("batch_rows", "capped"), [(2, True), (1000, False)])
@pytest.mark.parametrize("beyond", BEYOND)
def test_nobody_has_more_than_their_share_in_what_is_summed(tmp_path, beyond, capped, batch_rows):
    """One person's three rows once counted as often as they stood in a part file: 1 089 visits of 200 people."""
    card = capped_card() if capped else make_card(Path(), ["log.csv"])
    whole = [people(5), people(4).with_columns(pl.col("user_id") + 100)]
    same(in_batches(batch_rows, snapshot(whole, tmp_path), card).tables, by_hand(pl.concat(whole), card))
    for damaged in (0, 1):
        parts = [BEYOND[beyond](p) if i == damaged else p for i, p in enumerate(whole)]
        with pytest.raises(DamagedError, match="Ingest again"):
            in_batches(batch_rows, snapshot(parts, tmp_path), card)


def three_episodes() -> pl.DataFrame:
    rows = pl.concat(people(40, seed).with_columns(pl.lit(seed).alias("episode_id")) for seed in range(3))
    return rows.cast({"episode_id": pl.Int64}).sort("user_id", "episode_id", "step")


def test_a_declared_total_is_that_of_a_person_and_not_of_an_episode(tmp_path):
    rows = three_episodes()
    card = make_card(Path(), ["log.csv"], reward={"total": 1.0}, unit={"episodes_per_user": 3})
    got = aggregate(snapshot([rows], tmp_path), card).tables
    same(got, by_hand(rows, card))
    assert card.reward.total_steps is not None and got["r_sa"].sum() <= 40 * card.reward.total_steps


PARTS = 6


def opened(folder: Path) -> Snapshot:
    return Snapshot("tiny", 1, folder, "synthetic", "", "", "", 90, 90, 0, 0, {}, PARTS)


def work(which: str) -> Any:
    if which == "counts":
        return CountSums(make_card(Path(), ["log.csv"]))
    if which == "capped":
        return CountSums(capped_card())
    return TallySums(make_card(Path(), ["log.csv"]), 64, (0, 64), split=True)


def sums(which: str, found: Snapshot, resources: Resources = summing.HERE) -> dict[str, np.ndarray]:
    return dict(sum_snapshot(work(which), found, resources))


@pytest.fixture
def folder(tmp_path):
    snapshot([people(5, seed) for seed in range(PARTS)], tmp_path)
    return tmp_path


def test_a_sum_adds_every_group_and_keeps_nothing_on_disk(folder, constants):
    whole = {which: sums(which, opened(folder)) for which in ("counts", "capped", "linear")}
    before = sorted(folder.iterdir())
    constants(parts=1)
    for which, wanted in whole.items():
        progress = list[tuple[int, int | None]]()
        same(sums(which, opened(folder), Resources(progress=lambda *at, told=progress: told.append(at))), wanted)
        assert progress[-1] == (90, 90) and sorted(folder.iterdir()) == before


@dataclass(frozen=True)
class Forgetful(Here):
    """Who does not do the last task."""

    def each(self, tasks: Iterable[Any], seen: Callable[[int], None]) -> Iterator[tuple[Any, Any]]:
        return super().each(list(tasks)[:-1], seen)


def test_a_sum_without_some_partition_is_refused(folder):
    same(sums("counts", opened(folder), Resources(elsewhere=Here())), sums("counts", opened(folder)))
    with pytest.raises(RuntimeError, match="some partitions are in no sum; nothing was drawn"):
        sums("counts", opened(folder), Resources(elsewhere=Forgetful()))


@given(st.lists(st.integers(-(2**40), 2**40) | st.just(0), min_size=1, max_size=60))
def test_packed_sums_add_up_to_what_they_were(values):
    table = np.array(values, dtype=np.int64)
    total = {"a": np.ones((len(values), 1), dtype=np.int64)}
    Packed.of({"a": table.reshape(-1, 1)}).add_to(total)
    np.testing.assert_array_equal(total["a"][:, 0], table + 1)


Q, ENDS = 64, (0, 64)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    root = tmp_path_factory.mktemp("tallies")
    log = [(*r[:5], round(0.37 * r[5] + 0.01 * i % 1.3, 3), r[6]) for i, r in enumerate(customers(150))]
    card = load_card(lay_out(root / "shop", log=log) / "card.toml")
    return card, ingest(card, root / "store")


def plain(snapshot, keep) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Visits (H, L, A, L + END), rewards and first states, a row at a time; rewards are in halves of the range 2."""
    n, r, first = np.zeros((3, 2, 3, 3), int), np.zeros((3, 2, 3), int), np.zeros(2, int)
    for part in snapshot.part_files:
        for row in pl.read_parquet(part).iter_rows(named=True):
            if not keep(row["user_id"]):
                continue
            h, s, a, to = row["step"], row["state"], row["action"], row["next_state"]
            first[s] += h == 0
            if row["terminated"]:
                to = 2
            if to is None:
                continue
            n[h, s, a, to] += 1
            r[h, s, a] += min(max(math.floor(row["reward"] / 2 * Q + 1e-9), 0), Q)
    return n, r, first


def test_everybody_and_the_halves_are_what_a_loop_counts(shop):
    card, snapshot = shop
    both = tally(snapshot, card, Q, ENDS, split=False)["both"]
    halves = tally(snapshot, card, Q, ENDS, split=True)
    second = {u: bool(in_second_half(pl.Series([u]), card.name)[0]) for u in (f"c{i}" for i in range(150))}
    wanted = {"D": lambda u: not second[u], "D'": lambda u: second[u]}
    for found, keep in [(both, lambda u: True), *((halves[k], wanted[k]) for k in wanted)]:
        n, r, first = plain(snapshot, keep)
        np.testing.assert_array_equal(found.visits, n)
        np.testing.assert_array_equal(found.rewards, r)
        np.testing.assert_array_equal(found.first, first)
    assert 0.3 < np.mean(list(second.values())) < 0.7
    counts = aggregate(snapshot, card).tables
    np.testing.assert_array_equal(both.visits, counts["n_sas"])
    np.testing.assert_array_equal(both.first, counts["n_0"])


def test_declared_rewards_are_taken_from_the_card_and_none_is_read(shop, tmp_path):
    card, snapshot = shop
    table = [[0.0, 1.0, 2.0], [0.5, 0.25, 1.5]]
    declared = card.model_validate(card.model_dump() | {"reward": {"kind": "table", "range": [0, 2], "table": table}})
    found = tally(snapshot, declared, Q, ENDS, split=False)["both"]
    each = np.floor(np.array(table) / 2 * Q).astype(int)
    np.testing.assert_array_equal(found.rewards, each * found.visits.sum(-1))


def test_the_halves_are_fixed_by_the_id_alone():
    ids = pl.Series(range(50))
    assert in_second_half(ids, "s").reverse().equals(in_second_half(ids.reverse(), "s"))
    assert in_second_half(ids, "s").equals(in_second_half(ids.cast(pl.String), "s"))
    assert (in_second_half(ids, "s") != in_second_half(ids, "t")).any()


def test_a_long_id_takes_no_memory_for_each_row_of_others():
    """A row of one person with an id of 1 MiB once took a terabyte for a batch of others, after the charge."""
    ids = pl.Series([*map(str, range(500)), "z" * 20_000])
    tracemalloc.start()
    halves = in_second_half(ids, "s")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 21 and halves[:500].equals(in_second_half(ids[:500], "s"))
