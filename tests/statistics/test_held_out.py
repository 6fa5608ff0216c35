"""People in two parts: what replacing one costs, within a part and across, through the code that splits and sums."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from pipeline.files import private_folder
from pipeline.logs.aggregate import count_rows, needed, person_rows
from pipeline.logs.parts import Split, evaluates, part_key, split_people
from pipeline.logs.store import Snapshot, part_file
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.held_out import held_out_loss, of_others, part_costs, part_facts, parts_cost
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.target_plan import TargetLayout
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


def losses(card, counts, scores, of, others=1):
    """Largest loss over replacements of one of two people, within and across the parts; ``of`` says who is held out.

    ``others``: how many the second person may be: more than one where ``of`` looks at rows.
    """
    found, adds, all_of = {"within": 0.0, "across": 0.0}, alone(card, counts, scores), everybody(card)
    for a, b in itertools.product(IDS, repeat=2):
        for p, q, fixed in itertools.product(all_of, all_of, all_of[:: 1 - len(all_of)][:others]):
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


@pytest.mark.parametrize("steps", [4, pytest.param(1 << 16, marks=pytest.mark.slow)])
def test_no_replacement_costs_more_than_is_charged_and_one_costs_it(card, steps):
    counts, scores = sums_of(card, steps=steps)
    found, charged = losses(card, counts, scores, by_hash), float(cost(counts, scores))
    assert found["within"] == pytest.approx(float(max(counts.rho, scores.rho)), rel=1e-9)
    # one score and the number of people: who joins pays more than half, so whoever crosses pays most
    assert found["across"] == pytest.approx(charged, rel=1e-9)
    # a twin that charges only the dearer part charges too little
    assert charged > float(max(counts.rho, scores.rho)) * 1.01


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
    """The scores of a policy take four fifths, a third sum the rest, as in older ledgers: one person is in both."""
    counts, _ = sums_of(card)
    scores = MomentLayout("tiny", "synthetic", "stationary", 4).summed(Fraction(4, 5))
    third = MomentLayout("tiny", "synthetic", "stationary", 1).summed(Fraction(1, 5))
    renamed = tuple(replace(m, table=f"b_{m.table}") for m in third.mechanisms)
    told = {"learn": part_facts([counts]), "evaluate": part_facts([scores, third])}
    told["evaluate"]["sums"][1]["tables"] = [m.table for m in renamed]
    listed = (*counts.mechanisms, *scores.mechanisms, *renamed)
    assert held_out_loss(listed, told) == max(counts.rho, scores.rho + third.rho) <= 1
    found = []
    for ends in itertools.product((-1.0, 0.0, 1.0), repeat=5):
        first, second = scores.layout.add_up(np.array([ends[:4]])), third.layout.add_up(np.array([ends[4:]]))
        tables = {**first, **{f"b_{name}": x for name, x in second.items()}}
        found.append(np.concatenate([tables[m.table] / np.sqrt(m.variance) for m in (*scores.mechanisms, *renamed)]))
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

    assert max(losses(card, counts, scores, by_rank, 2).values()) > float(cost(counts, scores)) * 1.1


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


@pytest.mark.parametrize("forged", [{"halved": 4}, {"halved": 20}, {"halved": -1}, {"scores": 1, "halved": 0}])
def test_fewer_or_shorter_scores_than_were_summed_are_refused(forged):
    """What a release says of its sums prices it: nobody lowers the price by saying less."""
    ours = MomentLayout("tiny", "synthetic", "stationary", 5, halved=(3, 4)).summed(Fraction(1, 2))
    whole = part_facts([ours])
    none = {"rho_exact": "0", "rho_add_remove": "0", "sums": []}
    told = {"learn": none, "evaluate": whole}
    assert held_out_loss(ours.mechanisms, told) == ours.rho
    (facts,) = whole["sums"]
    lying = {**facts, "joint": {**facts["joint"], **forged}}
    with pytest.raises(ValueError, match="they cost more"):
        held_out_loss(ours.mechanisms, {"learn": none, "evaluate": {**whole, "sums": [lying]}})


RESERVE = Fraction(3, 4)
TAUGHT = Split(Fraction(1, 4), KEY, RESERVE)


def whoever():
    """An id of each kind: who teaches, who judges, and who is reserved and does neither; two of each."""
    found = {"teaches": [], "judges": [], "neither": []}
    for user in map(str, range(64)):
        (judges,), (reserved,) = (evaluates([user], share, KEY) for share in (TAUGHT.share, RESERVE))
        found["judges" if judges else "neither" if reserved else "teaches"].append(user)
    return [(user, kind) for kind, users in found.items() for user in users[:2]]


def people_of(card, users, folder, number):
    """An edition of these people's rows."""
    rows = [person_rows(p, card).with_columns(pl.lit(u).alias("user_id")) for u, p in users]
    empty = person_rows(everybody(card)[0], card).with_columns(pl.lit("").alias("user_id")).clear()
    pl.concat([empty, *rows]).write_parquet(part_file(private_folder(folder / f"snapshot-{number:04d}"), 0))
    place = folder / f"snapshot-{number:04d}"
    return Snapshot(card.name, number, place, "synthetic", card.domain_hash(), "", str(folder), 1, 1, 1, 1, {}, 1)


def read_of(card, adds, log, folder, since):
    """What two people add to both parts, through the code that parts them: of each, rows in two editions, or none.

    ``adds``: what each adds alone.
    """
    private_folder(folder)
    first, second = ([(u, rows[t]) for u, rows in log if rows[t] is not None] for t in (0, 1))
    earlier = [people_of(card, first, folder, 1)]
    parts = split_people(people_of(card, second, folder, 2), TAUGHT, earlier if since else ())
    found = []
    for i, part in enumerate(parts):
        there = set(pl.read_parquet(part.part_files)["user_id"])
        found += [adds[str(rows)][i] for u, rows in second if u in there]
    return sum(found, np.zeros(len(next(iter(adds.values()))[0]))), [
        set(pl.read_parquet(p.part_files)["user_id"]) for p in parts
    ]


def test_whoever_is_reserved_and_does_not_judge_moves_nothing(card, tmp_path):
    adds = alone(card, *sums_of(card))
    for user, kind in whoever():
        moved, (learn, judge) = read_of(card, adds, [(user, (None, everybody(card)[0]))], tmp_path / user, False)
        assert (user in learn, user in judge) == (kind == "teaches", kind == "judges")
        assert moved.any() == (kind != "neither")
    # a twin without a reserve teaches with everybody who does not judge
    twin = Split(TAUGHT.share, KEY)
    frame = pl.DataFrame({"user_id": [u for u, _ in whoever()]})
    assert set(twin.cut(frame)[0]["user_id"]) == {u for u, kind in whoever() if kind != "judges"}


@pytest.mark.parametrize("since", [False, True])
def test_no_change_of_id_rows_or_arrival_costs_more_than_is_charged_and_one_costs_it(card, tmp_path, since):
    """One person of any id, with other rows, who came in with the first edition, with the second, or never."""
    counts, scores = sums_of(card)
    adds = alone(card, counts, scores)
    some = [None, *everybody(card)[:1], *everybody(card)[-1:]]
    # somebody else, whose part must not move
    ids = whoever()
    fixed = [("other", (None, everybody(card)[0]))]
    found = []
    for n, (user, _) in enumerate(ids[::2]):
        for i, rows in enumerate(itertools.product(some, repeat=2)):
            moved, _ = read_of(card, adds, [*fixed, (user, rows)], tmp_path / f"{n}-{i}", since)
            found.append(moved)
    ends = np.array(found)
    loss = float((((ends[:, None] - ends[None]) ** 2).sum(-1) / 2).max())
    # a person is asked once at most, whenever they came: leaving one evaluation for another does not occur
    assert loss == pytest.approx(float(cost(counts, scores)), rel=1e-9)


def test_a_twin_by_which_one_persons_arrival_moves_the_edition_of_all_loses_more(card, tmp_path):
    """Broken: people judge who came after the last edition that brought anybody new, as the rows have it."""
    counts, scores = sums_of(card)
    adds = alone(card, counts, scores)
    judges = [u for u in map(str, range(64)) if evaluates([u], TAUGHT.share, KEY)[0]]
    worst = everybody(card)[-1]
    others = [(u, (worst, worst)) for u in judges[2:6]]

    def asked(moved, folder):
        since = any(rows[0] is None and rows[1] is not None for _, rows in [*others, moved])
        return read_of(card, adds, [*others, moved], folder, since)[0]

    one = asked((judges[1], (worst, worst)), tmp_path / "one")
    two = asked((judges[1], (None, worst)), tmp_path / "two")
    late = asked((judges[1], (None, None)), tmp_path / "none")
    found = max(float(((a - b) ** 2).sum() / 2) for a, b in itertools.combinations((one, two, late), 2))
    assert found > 1.1 * float(cost(counts, scores))
