"""People in two parts: what replacing one costs, within a part and across, through the code that splits and sums."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from pipeline.files import private_folder
from pipeline.logs.aggregate import count_rows, needed, person_rows
from pipeline.logs.leaves import CountLeaf, count_new
from pipeline.logs.parts import Split, evaluates, hold_apart, part_key, those_apart
from pipeline.logs.store import Snapshot, part_file
from pipeline.privacy.continual import continual
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.held_out import held_out_loss, of_others, part_costs, part_facts, parts_cost
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.target_layout import TargetLayout
from tests.privacy.test_continual import matrix
from tests.statistics.test_sensitivity import tiny

KEY, SHARE = part_key(bytes(32), "tiny"), Fraction(1, 2)
IDS = [str(i) for i in range(4)]


def sums_of(card, rho=Fraction(1), steps=4):
    counts = count_sum(card, Ask(rho))
    scores = MomentLayout(card.name, "synthetic", "stationary", 1, steps).summed(rho)
    return counts, scores


def everybody(card):
    """Every person of one row, with a score on the lattice that the rows decide."""
    d = card.domain
    rows = itertools.product(
        range(len(d.live_states)), range(len(d.action_labels)), (0.0, 1.0), range(len(d.state_labels))
    )
    return [[[row]] for row in rows]


def alone(card, counts, scores):
    """What each person adds to either part, in units of the noise: squared distances are twice the loss."""
    found = {}
    for person in everybody(card):
        tables = count_rows(person_rows(person, card).select(needed(card)), card)
        learns = np.concatenate([tables[m.table].ravel() / np.sqrt(m.variance) for m in counts.mechanisms])
        # the score is what the row pays, less what its state asks: any function of one person's rows
        state, _, paid, _ = person[0][0]
        moved = scores.layout.add_up(np.array([[2 * paid - 1 + state * 0.5]]))
        evaluates = np.concatenate([moved[m.table] / np.sqrt(m.variance) for m in scores.mechanisms])
        found[str(person)] = np.append(learns, 0 * evaluates), np.append(0 * learns, evaluates)
    return found


def losses(card, counts, scores, of):
    """Largest loss over replacements of one of two people, within and across the parts; ``of`` says who is held out."""
    found, adds, all_of = {"within": 0.0, "across": 0.0}, alone(card, counts, scores), everybody(card)
    for a, b in itertools.product(IDS, repeat=2):
        for p, q, fixed in itertools.product(all_of, all_of, all_of[:1] + all_of[-1:]):
            one, two = [("other", fixed), (a, p)], [("other", fixed), (b, q)]
            held = of(one), of(two)
            at = [sum(adds[str(x)][i in h] for i, x in log) for log, h in zip((one, two), held, strict=True)]
            where = "within" if (a in held[0]) == (b in held[1]) else "across"
            found[where] = max(found[where], float(((at[0] - at[1]) ** 2).sum() / 2))
    return found


def by_hash(log):
    ids = [i for i, _ in log]
    return {i for i, held in zip(ids, evaluates(ids, SHARE, KEY), strict=True) if held}


def small():
    return tiny("stationary", 1, 1, total=1.0)


@pytest.fixture(scope="module")
def card():
    return small()


def cost(counts, scores):
    pairs = [(s.rho, s.layout.cost(s.rates, "add_remove")) for s in (counts, scores)]
    return parts_cost(*pairs)


def facts(counts, scores):
    return {"learn": part_facts([counts]), "evaluate": part_facts([scores])}


@pytest.mark.parametrize("steps", [4, 1 << 16])
def test_no_replacement_costs_more_than_is_charged_and_one_costs_it(card, steps):
    counts, scores = sums_of(card, steps=steps)
    found, charged = losses(card, counts, scores, by_hash), float(cost(counts, scores))
    assert found["within"] == pytest.approx(float(max(counts.rho, scores.rho)), rel=1e-9)
    # one score and the number of people: who joins pays more than half, so whoever crosses pays most
    assert found["across"] == pytest.approx(charged, rel=1e-9)
    assert charged > max(counts.rho, scores.rho)


def test_with_the_scores_of_an_evaluation_nobody_pays_more_for_crossing(card):
    counts, _ = sums_of(card)
    scores = MomentLayout(card.name, "synthetic", "stationary", 4).summed(Fraction(1))
    assert cost(counts, scores) == max(counts.rho, scores.rho)


def test_counts_and_scores_of_those_who_evaluate_cost_their_sum_and_some_pair_the_counts(card):
    """A linear policy's people are counted, then scored: the same tables as of those who learn, by other names."""
    counts, scores = sums_of(card)
    theirs, found = of_others(counts), alone(card, counts, scores).values()
    assert {t.name for t in theirs.layout.tables} == {f"b_{t.name}" for t in counts.layout.tables}
    for of in ("replace", "add_remove"):
        assert theirs.layout.cost(theirs.rates, of) == counts.layout.cost(counts.rates, of) > 0
    both = part_facts([theirs, scores])
    assert Fraction(both["rho_exact"]) == theirs.rho + scores.rho
    # what one person adds, counted and scored at once
    adds = np.array([learns + evaluates for learns, evaluates in found])
    pairs = ((adds[:, None] - adds[None]) ** 2).sum(-1) / 2
    assert pairs.max() <= float(theirs.rho + scores.rho)
    counted = np.array([learns for learns, _ in found])
    assert ((counted[:, None] - counted[None]) ** 2).sum(-1).max() / 2 == pytest.approx(float(theirs.rho), rel=1e-9)
    told = {"learn": part_facts([counts]), "evaluate": both}
    listed = (*counts.mechanisms, *theirs.mechanisms, *scores.mechanisms)
    assert part_costs(listed, told)[1] == (Fraction(both["rho_exact"]), Fraction(both["rho_add_remove"]))
    with pytest.raises(ValueError, match="or of both"):
        part_costs(listed, {**told, "evaluate": part_facts([counts, scores])})


def test_a_third_sum_beside_the_scores_is_paid_by_the_worst_pair_and_nobody_pays_more_for_crossing(card):
    """The scores of a policy take four fifths, the difference to another run's the rest: one person is in both."""
    counts, _ = sums_of(card)
    scores = MomentLayout("tiny", "synthetic", "stationary", 4).summed(Fraction(4, 5))
    third = of_others(MomentLayout("tiny", "synthetic", "stationary", 1).summed(Fraction(1, 5)))
    told = {"learn": part_facts([counts]), "evaluate": part_facts([scores, third])}
    listed = (*counts.mechanisms, *scores.mechanisms, *third.mechanisms)
    assert held_out_loss(listed, told) == max(counts.rho, scores.rho + third.rho) <= 1
    found = []
    for ends in itertools.product((-1.0, 0.0, 1.0), repeat=5):
        first, second = scores.layout.add_up(np.array([ends[:4]])), third.layout.ours.add_up(np.array([ends[4:]]))
        tables = {**first, **{f"b_{name}": x for name, x in second.items()}}
        found.append(
            np.concatenate([tables[m.table] / np.sqrt(m.variance) for m in (*scores.mechanisms, *third.mechanisms)])
        )
    at = np.array(found)
    apart = ((at[:, None] - at[None]) ** 2).sum(-1).max() / 2
    assert apart == pytest.approx(float(scores.rho + third.rho), rel=1e-9)
    for twin in (part_facts([scores]), part_facts([scores, scores])):
        with pytest.raises(ValueError, match="or of both"):
            held_out_loss(listed, {**told, "evaluate": twin})


def test_a_twin_whose_split_looks_at_the_rows_loses_more_than_it_charges(card):
    counts, scores = sums_of(card)

    def by_rank(log):
        """Whoever has the lower half of first states is held out: one person's rows move another's part."""
        ordered = sorted(log, key=lambda told: (told[1][0][0][0], told[1][0][0][2]))
        return {i for i, _ in ordered[: len(ordered) // 2]}

    assert max(losses(card, counts, scores, by_rank).values()) > float(cost(counts, scores)) * 1.1


def test_a_twin_that_charges_only_the_dearer_part_charges_too_little(card):
    counts, scores = sums_of(card)
    assert losses(card, counts, scores, by_hash)["across"] > float(max(counts.rho, scores.rho)) * 1.01


def test_a_twin_that_charges_one_part_only_is_refused_by_the_verifier(card):
    counts, scores = sums_of(card)
    told = facts(counts, scores)
    mechanisms = (*counts.mechanisms, *scores.mechanisms)
    assert held_out_loss(mechanisms, told) == cost(counts, scores)
    halved = [replace(m, variance=m.variance // 2) for m in counts.mechanisms]
    assert held_out_loss((*halved, *scores.mechanisms), told) > cost(counts, scores)
    quiet = replace(scores.mechanisms[2], variance=1)
    dear = held_out_loss((*counts.mechanisms, *scores.mechanisms[:2], quiet), told)
    assert dear > cost(counts, scores)


@pytest.mark.parametrize(
    "broken",
    [
        lambda told: told["evaluate"]["sums"].pop(),
        lambda told: told["learn"]["sums"].append(told["evaluate"]["sums"][0]),
        lambda told: told["learn"]["sums"][0]["add_remove"].__setitem__(0, 0),
    ],
    ids=["a table of no part", "a table of both", "joining costs nothing"],
)
def test_facts_that_make_no_sense_are_refused(card, broken):
    counts, scores = sums_of(card)
    told = facts(counts, scores)
    broken(told)
    with pytest.raises(ValueError, match=r"part|joins"):
        held_out_loss((*counts.mechanisms, *scores.mechanisms), told)


def test_stages_of_targets_are_bounded_jointly_there_too(card):
    stage = TargetLayout(card, "v", 1).summed(Fraction(1))
    _, scores = sums_of(card)
    told = {"learn": part_facts([stage]), "evaluate": part_facts([scores])}
    assert held_out_loss((*stage.mechanisms, *scores.mechanisms), told) == parts_cost(
        (stage.rho, Fraction(1, 2)), (scores.rho, scores.layout.cost(scores.rates, "add_remove"))
    )


NIGHTS, ASKED = 3, (2, 3)


def night_sums(card, rho=Fraction(1), steps=4):
    counts = count_sum(card, Ask(rho, counter=continual("tree", NIGHTS)))
    return counts, MomentLayout(card.name, "synthetic", "stationary", 1, steps).summed(rho)


def over_the_nights(card, counts, scores, user, person, night, folder, *, apart=True, once=True):
    """All that one person adds to the rows of a counter and to two evaluations, in units of the noise.

    Through the code that counts and asks: ``apart`` and ``once`` are False in broken twins.
    """
    split, seen, key = Split(SHARE, KEY), np.empty((0, 2), dtype=np.uint64), b"key"
    rows = person_rows(person, card).with_columns(pl.lit(int(user)).alias("user_id"))
    rows.write_parquet(part_file(private_folder(folder), 0))
    there = Snapshot(card.name, 1, folder, "synthetic", card.domain_hash(), "", "", 1, 1, 1, 1, {}, 1)
    leaves, asked = [], []
    for tonight in range(1, NIGHTS + 1):
        new = [there] if tonight == night else []
        tables, fresh = count_new(new, card, seen, key, CountLeaf(card), split if apart else None)
        leaves.append(np.concatenate([tables[m.table].ravel() / np.sqrt(m.variance) for m in counts.mechanisms]))
        mine = np.empty((0, 2), dtype=np.uint64)
        if tonight in ASKED:
            since = [there] if night <= tonight else []
            home = folder / f"asked-{tonight}"
            mine = hold_apart(since, card, split, seen, key, home)
            people = sum(pq.read_metadata(p).num_rows for p in those_apart(home, card).part_files)
            state, _, paid, _ = person[0][0]
            moved = scores.layout.add_up(np.array([[2 * paid - 1 + state * 0.5]] * people).reshape(-1, 1))
            asked.append(np.concatenate([moved[m.table] / np.sqrt(m.variance) for m in scores.mechanisms]))
        seen = np.concatenate([seen, fresh, *([mine] if once else [])])
    drawn = matrix(continual("tree", NIGHTS))[0] @ np.array(leaves)
    # of nobody the layout says what stands in the tables without them
    nobody = np.concatenate(
        [scores.layout.add_up(np.zeros((0, 1)))[m.table] / np.sqrt(m.variance) for m in scores.mechanisms]
    )
    return np.concatenate([drawn.ravel(), *(a - nobody for a in asked)])


def worst(card, folder, **twin):
    """Largest loss of replacing one person by another, of any id, rows and night."""
    counts, scores = night_sums(card)
    ids = [next(i for i in IDS if evaluates([i], SHARE, KEY) == [held]) for held in (False, True)]
    found = [
        over_the_nights(card, counts, scores, user, person, night, folder / f"{user}-{i}-{night}", **twin)
        for user in ids
        for i, person in enumerate(everybody(card))
        for night in range(1, NIGHTS + 1)
    ]
    ends = np.array(found)
    return float((((ends[:, None] - ends[None]) ** 2).sum(-1) / 2).max()), counts, scores


def test_over_all_nights_no_replacement_costs_more_than_is_charged_and_one_costs_it(card, tmp_path):
    loss, counts, scores = worst(card, tmp_path)
    told = facts(counts, scores)
    charged = held_out_loss((*counts.mechanisms, *scores.mechanisms), told)
    (_, leaf), (_, joining) = part_costs((*counts.mechanisms, *scores.mechanisms), told)
    assert charged == max(counts.rho, scores.rho, leaf + joining, 2 * joining)
    assert loss == pytest.approx(float(charged), rel=1e-9)


@pytest.mark.parametrize("twin", [{"apart": False}, {"once": False}], ids=["counted too", "asked on every date"])
def test_twins_that_use_a_person_twice_lose_more_than_is_charged(card, tmp_path, twin):
    loss, counts, scores = worst(card, tmp_path, **twin)
    assert loss > 1.1 * float(held_out_loss((*counts.mechanisms, *scores.mechanisms), facts(counts, scores)))
