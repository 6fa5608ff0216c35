"""A run is calibrated only within a declared region that runs span, with the very code that was measured."""

from fractions import Fraction

import numpy as np
import pytest

import pipeline.evaluation.coverage as coverage
from pipeline.facts.evaluation import MOST_PEOPLE_ROOT_RHO
from pipeline.learners.terms import share_for
from reticent import Card
from tests.campaigns.observed_evaluation import card_of, draw_world
from tests.conftest import card_dict, domain_dict

HEAD = "dynamics,states,horizon,people,share,rho,runs,value_held,gain_held,code\n"


def card(states=8, horizon=5, people=50_000, dynamics="stationary", markov="declared", actions=2):
    labels = [f"s{i}" for i in range(states)]
    domain = domain_dict(horizon, labels, actions, ["end"], dynamics=dynamics, markov=markov)
    return Card.model_validate(card_dict(domain=domain, unit={"user": "user_id", "users_public": people}))


@pytest.fixture(params=list(coverage.MEASURED))
def table(request, tmp_path, monkeypatch):
    def write(*rows, code=None):
        path = tmp_path / "coverage.csv"
        path.write_text(HEAD + "".join(f"stationary,{r},{code or coverage.code_of(request.param)}\n" for r in rows))
        monkeypatch.setitem(coverage.MEASURED, request.param, (path, coverage.MEASURED[request.param][1]))
        region = coverage.Region((2, 20), (2, 10), (3_200, 52_000), 100)
        monkeypatch.setattr(coverage, "REGIONS", {**coverage.REGIONS, request.param: {"stationary": region}})
        return request.param

    return write


GOOD = ("2,2,20000,0.3,0.3,100,0.98,0.97", "20,10,100000,0.3,3,100,0.96,1.0")


@pytest.mark.parametrize(
    ("of", "share", "rho", "inside"),
    [
        ({"states": 2, "horizon": 2, "people": 20_000}, 0.3, Fraction(3, 10), True),
        ({}, 0.3, Fraction(1), True),
        ({"states": 21}, 0.3, Fraction(1), False),
        ({"states": 1}, 0.3, Fraction(1), False),
        ({"horizon": 11}, 0.3, Fraction(1), False),
        ({"horizon": 1}, 0.3, Fraction(1), False),
        ({"people": 10_000}, 0.3, Fraction(1), False),
        ({"people": 10_000}, 0.4, Fraction(1), True),
        ({}, 0.3, Fraction(1, 100), False),
        ({"people": 1_000_000}, 0.3, Fraction(1, 100), True),
        ({"people": 1_000_000}, 0.3, Fraction(1), False),
        ({"states": 20, "people": 40_000}, 0.3, Fraction(3, 10), False),
        ({"people": 10_000}, 0.9, Fraction(1), False),
        ({}, 0.9, Fraction(1), True),
        ({}, 0.3, None, False),
        ({"dynamics": "per_step"}, 0.3, Fraction(1), False),
        ({"markov": "aggregated"}, 0.3, Fraction(1), False),
    ],
)
def test_three_inequalities_decide(table, of, share, rho, inside):
    found = table(*GOOD)
    assert coverage.covered(found, card(**of), share, rho) is inside
    said = coverage.inequalities(found, card(**of), share, rho)
    assert len(said) == (3 if rho and of.get("dynamics") is None else 0)
    assert all(a in said[2].name for a in ("people who judge × √ρ", "52,000")) if said else True


@pytest.mark.parametrize(
    ("of", "share", "rho", "said"),
    [
        ({}, 0.3, Fraction(1), None),
        ({"states": 21}, 0.3, Fraction(1), "from 2 to 20 states, and the card has 21."),
        ({"horizon": 11}, 0.3, Fraction(1), "from 2 to 10 steps, and the card has 11."),
        ({"people": 1_000_000}, 0.3, Fraction(4), "and here are 300,000: [evaluate] people = 0.052 would do."),
        ({}, 0.3, Fraction(1, 100), "and here are 1,500: 110,000 people in all would do, or ρ = 0.046."),
        ({"people": 9_000}, 0.3, Fraction(1), "and here are 2,700: 11,000 people in all would do."),
    ],
)
def test_a_run_outside_of_what_was_measured_is_told_what_would_bring_it_in(table, of, share, rho, said):
    found = table(*GOOD)
    told = coverage.outside(found, card(**of), share, rho)
    assert told is None if said is None else told is not None and said in told
    if told and "people = " in told:
        least = float(told.split("people = ")[1].split()[0])
        assert coverage.covered(found, card(**of), least, rho) and not coverage.covered(
            found, card(**of), least + 0.001, rho
        )


def test_a_budget_that_would_do_pays_the_gate_as_well(table):
    """Else the run that asks for it is told the same again."""
    found, rho = table(*GOOD), Fraction(98, 10_000)
    told = (coverage.outside(found, card(), 0.3, rho, Fraction(gate, 10_000)) or "" for gate in (0, 2))
    without, asked = (Fraction(text.split("ρ = ")[1].split(". ")[0].rstrip(".")) * Fraction(98, 100) for text in told)
    assert (
        coverage.outside(found, card(), 0.3, without) is not None
        and coverage.outside(found, card(), 0.3, asked) is None
    )


def test_where_another_agent_was_measured_it_is_named():
    cards = card(60, 1, 50_000), card(1_000, 1, 50_000)
    one, many = (coverage.outside(coverage.TABULAR, c, 0.3, Fraction(1)) for c in cards)
    assert one is not None and one.endswith("the card has 60. Those of dp-one-step were measured for such a card.")
    assert coverage.covered(coverage.ONE_STEP, card(60, 1, 50_000), 0.3, Fraction(1))
    assert many is not None and many.endswith("the card has 1,000.")
    # of fewer people than it takes, dp-one-step would refuse the recipe
    for people, said in ((6_000, "for such a card."), (4_000, "such a card, from 1,500 people who judge × √ρ on.")):
        few = coverage.outside(coverage.TABULAR, card(60, 1, people), 0.3, Fraction(1))
        assert few is not None and few.endswith(said)


def test_where_people_are_too_few_another_agent_is_named_if_they_are_enough_for_it():
    four, thirty = (coverage.outside(coverage.ONE_STEP, card(states, 1, 4_000), 0.3, Fraction(1)) for states in (4, 30))
    assert four is not None and four.endswith("would do. Those of dp-apvi were measured for such a card.")
    assert coverage.covered(coverage.TABULAR, card(4, 1, 4_000), 0.3, Fraction(1))
    assert thirty is not None and thirty.endswith("would do.")


@pytest.mark.parametrize("estimator", [coverage.TABULAR, coverage.TABULAR + coverage.LOGGED])
def test_counts_of_one_step_are_measured_for_few_actions(estimator):
    """Of 446 intervals of ten or more actions 22 missed, of thin cells that noise favours; of up to five few."""
    few, more, steps = (card(10, h, 50_000, actions=a) for h, a in ((1, 5), (1, 6), (10, 25)))
    rho = Fraction(1)
    assert all(coverage.covered(estimator, c, 0.3, rho) for c in (few, steps))
    assert coverage.outside(estimator, few, 0.3, rho) is None and not coverage.covered(estimator, more, 0.3, rho)
    told = coverage.outside(estimator, more, 0.3, rho) or ""
    assert "Intervals of one step were measured up to 5 actions, and the card has 6." in told
    # nor is an agent that was not measured there named to others
    scarce = card(10, 1, 4_000, actions=6)
    assert not coverage.measured_elsewhere(coverage.ONE_STEP, scarce, 0.3, rho)
    assert coverage.measured_elsewhere(coverage.ONE_STEP, card(10, 1, 4_000), 0.3, rho)


def test_of_steps_apart_only_counts_are_measured():
    """Nobody teaches the last of them: where a policy leads there no feature shows."""
    assert not coverage.covered(coverage.ONE_STEP, card(8, 5, dynamics="per_step"), 0.3, Fraction(1))
    told = coverage.outside(coverage.ONE_STEP, card(8, 5, dynamics="per_step"), 0.3, Fraction(1)) or ""
    assert told.endswith("and the card's are apart. Those of dp-apvi were measured for such a card.")
    many = coverage.outside(coverage.ONE_STEP, card(300, 5, dynamics="per_step"), 0.3, Fraction(1)) or ""
    assert many.endswith("and the card's are apart.")


def test_as_many_judge_as_were_measured_where_the_recipe_leaves_it_open():
    assert max(r.people_root_rho[1] for of in coverage.REGIONS.values() for r in of.values()) == MOST_PEOPLE_ROOT_RHO
    for people in (100_000, 100_001, 200_000, 3_000_000, 400_000_000):
        for rho in (Fraction(1, 10), Fraction(1), Fraction(9)):
            share = share_for(people, rho)
            assert coverage.people_root_rho(people * share, float(rho)) <= MOST_PEOPLE_ROOT_RHO and share <= 0.3
            assert coverage.people_root_rho(people * share, float(rho)) > 0.9 * MOST_PEOPLE_ROOT_RHO or share == 0.3


def test_one_step_is_stationary_whatever_the_card_says():
    for dynamics in ("stationary", "per_step"):
        assert coverage.covered(coverage.ONE_STEP, card(300, 1, 100_000, dynamics), 0.3, Fraction(1, 40))
        assert not coverage.covered(coverage.TABULAR, card(300, 1, 100_000, dynamics), 0.3, Fraction(1, 40))


@pytest.mark.parametrize("estimator", list(coverage.MEASURED))
def test_runs_reach_all_ends_of_a_declared_region(estimator):
    """Whoever widens a region measures there first."""
    for region in coverage.REGIONS[estimator].values():
        of = [dynamics for dynamics, same in coverage.REGIONS[estimator].items() if same is region]
        rows = [
            r for r in coverage.measured(estimator) if ("stationary" if r["horizon"] == "1" else r["dynamics"]) in of
        ]
        judged = [coverage.people_root_rho(int(r["people"]) * float(r["share"]), float(r["rho"])) for r in rows]
        each = [x / int(r["states"]) ** 1.5 for x, r in zip(judged, rows, strict=True)]
        assert region.states == (min(int(r["states"]) for r in rows), max(int(r["states"]) for r in rows))
        assert region.steps == (min(int(r["horizon"]) for r in rows), max(int(r["horizon"]) for r in rows))
        assert min(judged) <= 1.05 * region.people_root_rho[0] and max(judged) >= 0.99 * region.people_root_rho[1]
        assert not region.each or min(each) <= 1.06 * region.each


@pytest.mark.parametrize(
    ("rows", "code", "shown"),
    [
        # too few runs, too few inside, one size that fails, nothing measured
        (("2,2,20000,0.3,0.3,100,0.98,0.97",), None, False),
        (("2,2,20000,0.3,0.3,100,0.94,1.0", "20,10,100000,0.3,3,100,0.95,1.0"), None, False),
        (("2,2,20000,0.3,0.3,900,1.0,1.0", "20,10,100000,0.3,3,100,1.0,0.88"), None, False),
        ((), None, False),
        # a size is judged over all its budgets, one of few runs says nothing alone, one of enough runs does
        ((GOOD[0], "20,10,100000,0.3,0.3,10,0.80,1.0", "20,10,100000,0.3,3,90,0.96,1.0"), None, True),
        ((*GOOD, "20,10,90000,0.3,1,5,0.8,0.8"), None, True),
        ((*GOOD, "20,10,90000,0.3,1,20,0.8,0.8"), None, False),
        # other code is another estimator
        (GOOD, "0" * 16, False),
    ],
)
def test_what_was_not_shown_to_hold_is_not_calibrated(table, rows, code, shown):
    assert coverage.covered(table(*rows, code=code), card(2, 2, 20_000), 0.3, Fraction(3, 10)) is shown


@pytest.mark.parametrize("estimator", list(coverage.MEASURED))
def test_a_row_names_the_command_that_anybody_can_type(estimator):
    assert all(r["command"].startswith("python -P -m tests.campaigns.") for r in coverage.measured(estimator))


@pytest.mark.digests
def test_the_committed_tables_are_of_todays_code():
    """An estimator that changes is measured again, or states no coverage."""
    assert coverage.covered(coverage.TABULAR, card(8, 10, 50_000), 0.3, Fraction(1))
    assert coverage.covered(coverage.ONE_STEP, card(240, 12, 50_000), 0.3, Fraction(1))
    assert coverage.covered(coverage.LINEAR, card(5, 8, 50_000, "per_step"), 0.3, Fraction(1))
    assert coverage.covered(coverage.TABULAR + coverage.LOGGED, card(8, 10, 50_000), 0.3, Fraction(1))
    seen = card_of(draw_world(10, 2, 6, np.random.default_rng(1)), 100_000, {"kind": "affine"})
    assert coverage.covered(coverage.OBSERVED, seen, 0.3, Fraction(1)) and not coverage.covered(
        coverage.OBSERVED, seen, 0.3, Fraction(1, 20)
    )
