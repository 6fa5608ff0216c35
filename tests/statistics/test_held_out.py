"""What an auditor recomputes of joint losses; people in two parts, and what replacing one costs within and across."""

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import polars as pl
import pytest

from pipeline.agents.linear_backup import LinearConstants, linear_task
from pipeline.agents.vapvi import pevi, vapvi
from pipeline.files import private_folder
from pipeline.logs.aggregate import count_rows, needed, person_rows
from pipeline.logs.parts import Split, evaluates, part_key, split_people
from pipeline.logs.store import Snapshot, part_file
from pipeline.online.linear import linear_003
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics import held_out, linear_sums
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms, declared_map, features_digest
from pipeline.statistics.linear_sums import InteractiveRegression, draw_one_shot, true_rho
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.target_plan import TargetLayout
from tests.conftest import slow
from tests.statistics import lq_people
from tests.statistics.test_sensitivity import tiny

ASKS = {
    "centred": LinearTerms(Ask(Fraction(1))),
    "halves": LinearTerms(Ask(Fraction(1)), halves=True),
    "paper's targets": LinearTerms(Ask(Fraction(1)), "paper"),
    "paper's noise": LinearTerms(Ask(Fraction(1), calibration="paper"), "paper"),
    "paper's noise in halves": LinearTerms(Ask(Fraction(1), calibration="paper"), "paper", halves=True),
    "no variance step": LinearTerms(Ask(Fraction(1)), variance=False),
    "one-shot": LinearTerms(Ask(Fraction(1)), "one_shot"),
}


@cache
def released(name: str, episodes: int = 1):
    w, ask = linear_003(0), ASKS[name]
    plan = LinearPlan(LinearDomain("003", "synthetic", 20, 400, episodes=episodes), ask, w.features)
    both = w.counts(400, np.random.default_rng(0))
    visits = {"both": both}
    if ask.halves:
        second = np.random.default_rng(1).binomial(both, 0.5)
        visits |= {"D": both - second, "D'": second}
    rows = linear_sums.count_rows(plan, visits, w.mdp.rewards)
    if ask.variant == "one_shot":
        return plan, draw_one_shot(plan, rows, SeededNoise(0))
    desk = InteractiveRegression(plan, rows, SeededNoise(0))
    c, rng = LinearConstants(), np.random.default_rng(0)
    task = linear_task(plan)
    if ask.variance:
        vapvi(desk, task, c, rng, centred=plan.centred)
    else:
        # the planner that asks for no variances
        pevi(desk, task, c, rng, c.C * task.dimension**0.5, centred=plan.centred)
    return plan, desk.release()


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize("episodes", [slow(1), 3])
def test_the_recomputed_loss_is_the_charge_up_to_the_rounding_of_scales(name, episodes):
    plan, release = released(name, episodes)
    found = held_out.joint_loss(release.mechanisms, release.joint, plan.features)
    assert found <= release.joint_rho <= true_rho(plan)
    # the paper's halves are charged as if D' might be skipped at any step, which costs its people a little more
    slack = 2e-3 if "halves" in name and "paper" in name else 1e-4
    assert float(found) == pytest.approx(float(release.joint_rho), rel=slack)
    assert release.joint_rho < sum(m.rho for m in release.mechanisms)


@pytest.mark.parametrize("name", ["centred", "halves", "one-shot"])
def test_half_the_variance_of_any_table_costs_more_than_was_charged(name):
    plan, release = released(name)
    # five tables a step: every seventh is each kind of table, at many steps
    for i, m in list(enumerate(release.mechanisms))[:: 7 if len(release.mechanisms) > 7 else 1]:
        cheap = list(release.mechanisms)
        cheap[i] = replace(m, variance=m.variance // 2)
        assert held_out.joint_loss(cheap, release.joint, plan.features) > release.joint_rho


@pytest.mark.parametrize("name", ["centred", "one-shot"])
def test_a_sensitivity_that_the_features_contradict_is_refused(name):
    plan, release = released(name)
    first, *rest = release.mechanisms
    with pytest.raises(ValueError, match="by the declared features"):
        held_out.joint_loss([replace(first, l2_squared=first.l2_squared // 2), *rest], release.joint, plan.features)
    with pytest.raises(ValueError, match="by the declared features"):
        held_out.joint_loss(release.mechanisms, dict(release.joint) | {"episodes": 3}, plan.features)
    # so are tables of something else, or without noise
    for wrong in (replace(first, table="n_sas"), replace(first, variance=None)) if name == "centred" else ():
        with pytest.raises(ValueError, match=r"no linear release|no noise"):
            held_out.joint_loss([wrong, *rest], release.joint, plan.features)


def test_a_digest_tells_maps_apart_and_a_map_reads_back():
    f = linear_003(0).features
    told = {"integers": f.integers.tolist(), "square": f.square, "unit_squared": str(f.unit_squared)}
    assert features_digest(declared_map(told)) == features_digest(f)
    other = f.integers.copy()
    other[0, 0, 0] -= 1
    assert features_digest(replace(f, integers=other)) != features_digest(f)


@pytest.mark.parametrize("quiet", ["gram", "target"])
def test_an_lq_table_without_noise_has_no_loss(quiet):
    plan = lq_people.plan_of()
    facts = {
        "horizon": 2,
        "episodes": 1,
        "steps": plan.layout.steps,
        "square": plan.layout.square,
        "bounds": [1.0, 1.0, 1.0],
    }
    facts["variant"] = "linear_quadratic"
    mechanisms = plan.mechanisms
    assert held_out.lq_loss(mechanisms, facts) == plan.rho
    with pytest.raises(ValueError, match="no noise"):
        held_out.lq_loss([replace(m, variance=None) if m.table == quiet else m for m in mechanisms], facts)


KEY, SHARE = part_key(bytes(32), "tiny"), Fraction(1, 2)
IDS = [str(i) for i in range(4)]


CARD = tiny("stationary", 1, 1, total=1.0)
# every person of one row
EVERYBODY = [[[row]] for row in itertools.product(range(2), range(2), (0.0, 1.0), range(3))]


def scores_of(number=4, steps=None, rho=Fraction(1)):
    sizes = (number,) if steps is None else (number, steps)
    return MomentLayout(CARD.name, "synthetic", "stationary", *sizes).summed(rho)


COUNTS, SCORES = count_sum(CARD, Ask(Fraction(1))), scores_of(1, 4)
LISTED = (*COUNTS.mechanisms, *SCORES.mechanisms)


def widest(points):
    """Largest loss between two people, from what each adds in units of the noise."""
    at = np.array(points)
    return float(((at[:, None] - at[None]) ** 2).sum(-1).max()) / 2


def alone(scores=SCORES):
    """What each person adds to either part, in units of the noise: squared distances are twice the loss."""
    found = {}
    for person in EVERYBODY:
        tables = count_rows(person_rows(person, CARD).select(needed(CARD)), CARD)
        learns = np.concatenate([tables[m.table].ravel() / np.sqrt(m.variance) for m in COUNTS.mechanisms])
        # the score is what the row pays, less what its state asks: any function of one person's rows
        state, _, paid, _ = person[0][0]
        moved = scores.layout.add_up(np.array([[2 * paid - 1 + state * 0.5]]))
        judges = np.concatenate([moved[m.table] / np.sqrt(m.variance) for m in scores.mechanisms])
        found[str(person)] = np.append(learns, 0 * judges), np.append(0 * learns, judges)
    return found


def losses(of, others=1, scores=SCORES):
    """Largest loss over replacements of one of two people, within and across the parts; ``of`` says who is held out.

    ``others``: how many the second person may be: more than one where ``of`` looks at rows.
    """
    found, adds = {"within": 0.0, "across": 0.0}, alone(scores)
    for a, b in itertools.product(IDS, repeat=2):
        for p, q, fixed in itertools.product(EVERYBODY, EVERYBODY, EVERYBODY[:: 1 - len(EVERYBODY)][:others]):
            one, two = [("other", fixed), (a, p)], [("other", fixed), (b, q)]
            held = of(one), of(two)
            at = [sum(adds[str(x)][i in h] for i, x in log) for log, h in zip((one, two), held, strict=True)]
            where = "within" if (a in held[0]) == (b in held[1]) else "across"
            found[where] = max(found[where], widest(at))
    return found


def by_hash(log):
    ids = [i for i, _ in log]
    return {i for i, held in zip(ids, evaluates(ids, SHARE, KEY), strict=True) if held}


def cost(counts=COUNTS, scores=SCORES):
    return held_out.parts_cost(*((s.rho, s.layout.cost(s.rates, "add_remove")) for s in (counts, scores)))


def facts():
    return {"learn": held_out.part_facts([COUNTS]), "evaluate": held_out.part_facts([SCORES])}


@pytest.mark.parametrize("steps", [4, slow(1 << 16)])
def test_no_replacement_costs_more_than_is_charged_and_one_costs_it(steps):
    scores = scores_of(1, steps)
    found, charged = losses(by_hash, scores=scores), float(cost(scores=scores))
    assert found["within"] == pytest.approx(float(max(COUNTS.rho, scores.rho)), rel=1e-9)
    # one score and the number of people: who joins pays more than half, so whoever crosses pays most
    assert found["across"] == pytest.approx(charged, rel=1e-9)
    # a twin that charges only the dearer part charges too little
    assert charged > float(max(COUNTS.rho, scores.rho)) * 1.01


def test_with_the_scores_of_an_evaluation_nobody_pays_more_for_crossing():
    assert cost(scores=scores_of()) == max(COUNTS.rho, scores_of().rho)


def test_counts_and_scores_of_those_who_evaluate_cost_their_sum_and_some_pair_the_counts():
    """A linear policy's people are counted, then scored: the same tables as of those who learn, by other names."""
    theirs, found = held_out.of_others(COUNTS), alone().values()
    assert {t.name for t in theirs.layout.tables} == {f"b_{t.name}" for t in COUNTS.layout.tables}
    for of in ("replace", "add_remove"):
        assert theirs.layout.cost(theirs.rates, of) == COUNTS.layout.cost(COUNTS.rates, of) > 0
    both = held_out.part_facts([theirs, SCORES])
    assert Fraction(both["rho_exact"]) == theirs.rho + SCORES.rho
    # what one person adds, counted and scored at once
    assert widest([learns + judges for learns, judges in found]) <= float(theirs.rho + SCORES.rho)
    assert widest([learns for learns, _ in found]) == pytest.approx(float(theirs.rho), rel=1e-9)
    told, listed = facts() | {"evaluate": both}, (*COUNTS.mechanisms, *theirs.mechanisms, *SCORES.mechanisms)
    assert held_out.part_costs(listed, told)[1] == (Fraction(both["rho_exact"]), Fraction(both["rho_add_remove"]))
    with pytest.raises(ValueError, match="or of both"):
        held_out.part_costs(listed, {**told, "evaluate": held_out.part_facts([COUNTS, SCORES])})


def test_a_third_sum_beside_the_scores_is_paid_by_the_worst_pair_and_nobody_pays_more_for_crossing():
    """The scores of a policy take four fifths, a third sum the rest, as in older ledgers: one person is in both."""
    scores, third = scores_of(4, rho=Fraction(4, 5)), scores_of(1, rho=Fraction(1, 5))
    renamed = tuple(replace(m, table=f"b_{m.table}") for m in third.mechanisms)
    told = facts() | {"evaluate": held_out.part_facts([scores, third])}
    told["evaluate"]["sums"][1]["tables"] = [m.table for m in renamed]
    listed = (*COUNTS.mechanisms, *scores.mechanisms, *renamed)
    assert held_out.held_out_loss(listed, told) == max(COUNTS.rho, scores.rho + third.rho) <= 1
    found = []
    for ends in itertools.product((-1.0, 0.0, 1.0), repeat=5):
        first, second = scores.layout.add_up(np.array([ends[:4]])), third.layout.add_up(np.array([ends[4:]]))
        tables = {**first, **{f"b_{name}": x for name, x in second.items()}}
        found.append(np.concatenate([tables[m.table] / np.sqrt(m.variance) for m in (*scores.mechanisms, *renamed)]))
    assert widest(found) == pytest.approx(float(scores.rho + third.rho), rel=1e-9)
    for twin in (held_out.part_facts([scores]), held_out.part_facts([scores, scores])):
        with pytest.raises(ValueError, match="or of both"):
            held_out.held_out_loss(listed, {**told, "evaluate": twin})


def test_a_twin_whose_split_looks_at_the_rows_loses_more_than_it_charges():

    def by_rank(log):
        """Whoever has the lower half of first states is held out: one person's rows move another's part."""
        ordered = sorted(log, key=lambda told: (told[1][0][0][0], told[1][0][0][2]))
        return {i for i, _ in ordered[: len(ordered) // 2]}

    assert max(losses(by_rank, 2).values()) > float(cost()) * 1.1


def test_a_twin_that_charges_one_part_only_is_refused_by_the_verifier():
    told = facts()
    assert held_out.held_out_loss(LISTED, told) == cost()
    halved = [replace(m, variance=m.variance // 2) for m in COUNTS.mechanisms]
    assert held_out.held_out_loss((*halved, *SCORES.mechanisms), told) > cost()
    assert held_out.held_out_loss((*LISTED[:-1], replace(LISTED[-1], variance=1)), told) > cost()


@pytest.mark.parametrize(
    "broken",
    [
        lambda told: told["evaluate"]["sums"].pop(),
        lambda told: told["learn"]["sums"].append(told["evaluate"]["sums"][0]),
        lambda told: told["learn"]["sums"][0]["add_remove"].__setitem__(0, 0),
    ],
    ids=["a table of no part", "a table of both", "joining costs nothing"],
)
def test_facts_that_make_no_sense_are_refused(broken):
    told = facts()
    broken(told)
    with pytest.raises(ValueError, match=r"part|joins"):
        held_out.held_out_loss(LISTED, told)


def test_stages_of_targets_are_bounded_jointly_there_too():
    stage = TargetLayout(CARD, "v", 1).summed(Fraction(1))
    told = facts() | {"learn": held_out.part_facts([stage])}
    joining = SCORES.layout.cost(SCORES.rates, "add_remove")
    assert held_out.held_out_loss((*stage.mechanisms, *SCORES.mechanisms), told) == held_out.parts_cost(
        (stage.rho, Fraction(1, 2)), (SCORES.rho, joining)
    )


@pytest.mark.parametrize("forged", [{"halved": 4}, {"halved": 20}, {"halved": -1}, {"scores": 1, "halved": 0}])
def test_fewer_or_shorter_scores_than_were_summed_are_refused(forged):
    """What a release says of its sums prices it: nobody lowers the price by saying less."""
    ours = MomentLayout("tiny", "synthetic", "stationary", 5, halved=(3, 4)).summed(Fraction(1, 2))
    whole = held_out.part_facts([ours])
    none = {"rho_exact": "0", "rho_add_remove": "0", "sums": []}
    told = {"learn": none, "evaluate": whole}
    assert held_out.held_out_loss(ours.mechanisms, told) == ours.rho
    (facts,) = whole["sums"]
    lying = {**facts, "joint": {**facts["joint"], **forged}}
    with pytest.raises(ValueError, match="they cost more"):
        held_out.held_out_loss(ours.mechanisms, {"learn": none, "evaluate": {**whole, "sums": [lying]}})


RESERVE = Fraction(3, 4)
TAUGHT = Split(Fraction(1, 4), KEY, RESERVE)


def whoever():
    """An id of each kind: who teaches, who judges, and who is reserved and does neither; two of each."""
    found = {"teaches": [], "judges": [], "neither": []}
    for user in map(str, range(64)):
        (judges,), (reserved,) = (evaluates([user], share, KEY) for share in (TAUGHT.share, RESERVE))
        found["judges" if judges else "neither" if reserved else "teaches"].append(user)
    return [(user, kind) for kind, users in found.items() for user in users[:2]]


def people_of(users, folder, number):
    rows = [person_rows(p, CARD).with_columns(pl.lit(u).alias("user_id")) for u, p in users]
    empty = person_rows(EVERYBODY[0], CARD).with_columns(pl.lit("").alias("user_id")).clear()
    place = folder / f"snapshot-{number:04d}"
    pl.concat([empty, *rows]).write_parquet(part_file(private_folder(place), 0))
    return Snapshot(CARD.name, number, place, "synthetic", CARD.domain_hash(), "", str(folder), 1, 1, 1, 1, {}, 1)


def read_of(adds, log, folder, since):
    """What two people add to both parts, through the code that parts them: of each, rows in two editions, or none.

    ``adds``: what each adds alone.
    """
    private_folder(folder)
    first, second = ([(u, rows[t]) for u, rows in log if rows[t] is not None] for t in (0, 1))
    earlier = [people_of(first, folder, 1)]
    parts = split_people(people_of(second, folder, 2), TAUGHT, earlier if since else ())
    there = [set(pl.read_parquet(part.part_files)["user_id"]) for part in parts]
    found = [adds[str(rows)][i] for i, ids in enumerate(there) for u, rows in second if u in ids]
    return sum(found, 0 * next(iter(adds.values()))[0]), there


def test_whoever_is_reserved_and_does_not_judge_moves_nothing(tmp_path):
    adds = alone()
    for user, kind in whoever():
        moved, (learn, judge) = read_of(adds, [(user, (None, EVERYBODY[0]))], tmp_path / user, False)
        assert (user in learn, user in judge) == (kind == "teaches", kind == "judges")
        assert moved.any() == (kind != "neither")
    # a twin without a reserve teaches with everybody who does not judge
    twin = Split(TAUGHT.share, KEY)
    frame = pl.DataFrame({"user_id": [u for u, _ in whoever()]})
    assert set(twin.cut(frame)[0]["user_id"]) == {u for u, kind in whoever() if kind != "judges"}


@pytest.mark.parametrize("since", [False, True])
def test_no_change_of_id_rows_or_arrival_costs_more_than_is_charged_and_one_costs_it(tmp_path, since):
    """One person of any id, with other rows, who came in with the first edition, with the second, or never."""
    adds = alone()
    # somebody else, whose part must not move
    fixed, some = ("other", (None, EVERYBODY[0])), [None, EVERYBODY[0], EVERYBODY[-1]]
    found = []
    for n, (user, _) in enumerate(whoever()[::2]):
        for i, rows in enumerate(itertools.product(some, repeat=2)):
            found.append(read_of(adds, [fixed, (user, rows)], tmp_path / f"{n}-{i}", since)[0])
    # a person is asked once at most, whenever they came: leaving one evaluation for another does not occur
    assert widest(found) == pytest.approx(float(cost()), rel=1e-9)


def test_a_twin_by_which_one_persons_arrival_moves_the_edition_of_all_loses_more(tmp_path):
    """Broken: people judge who came after the last edition that brought anybody new, as the rows have it."""
    adds = alone()
    judges = [u for u in map(str, range(64)) if evaluates([u], TAUGHT.share, KEY)[0]]
    worst = EVERYBODY[-1]
    others = [(u, (worst, worst)) for u in judges[2:6]]

    def asked(moved, folder):
        since = any(rows[0] is None and rows[1] is not None for _, rows in [*others, moved])
        return read_of(adds, [*others, moved], folder, since)[0]

    histories = (worst, worst), (None, worst), (None, None)
    found = [asked((judges[1], rows), tmp_path / str(i)) for i, rows in enumerate(histories)]
    assert widest(found) > 1.1 * float(cost())
