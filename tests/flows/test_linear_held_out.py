"""A linear policy that other people measure: its charge, replay and verifier; and people weighed by logged chances."""

import json
import re
from dataclasses import replace
from fractions import Fraction

import polars as pl
import pytest

from flows.terminal.screen import fail
from pipeline.privacy.release_file import read_release
from pipeline.statistics.held_out import held_out_loss, part_costs
from pipeline.statistics.linear_plan import declared_map
from pipeline.statistics.moment_layout import half
from pipeline.transaction.transaction import fits
from reticent import CardError
from tests.flows.shop import HELD, card_text, change, rows, write_log
from tests.flows.test_held_out_run import (
    PEOPLE,
    SHOP,
    assert_pays_for_both,
    assert_practice,
    assert_verified_and_free_again,
    call,
    ingested,
    replays,
    shop,
    write,
)
from tests.flows.verb import answer, reticent, told
from tests.jobs import home_at, ledger_of, run_job
from tests.learners.linear_shop import FEATURES

__all__ = ["shop"]
AGENTS = {"dp-vapvi": "adaptive", "dp-one-shot": "once"}
RHO = "[privacy]\nrho = 4.0"


@pytest.fixture(scope="module", params=AGENTS)
def agent(request):
    return request.param


@pytest.fixture(scope="module")
def published(shop, agent):
    return call(shop, "run", write(shop, AGENTS[agent], agent=agent, privacy=RHO))["run"]


def test_other_people_say_what_the_policy_is_worth(shop, published):
    found = told(shop, published)["evaluation"]
    assert found["estimator"] == "linear-dr"
    assert_practice(found, 0.4)
    assert found["improvement"]["lower"] > 0, "a call sells to the warm"
    # three inequalities: states, steps, and 900 people who judge, of a rho that counts as 1
    assert found["calibrated"] is True
    # the second of the agents is another recipe, after the first one's answer by the same people
    status = "modelled" if "judged_before" in found else "evaluated"
    assert told(shop, published)["verdict"]["improvement"]["status"] == status
    page = (shop / "home" / "runs" / published / "report.md").read_text()
    assert "What practice does there is not known from this release." in page
    # of decisions with advice practice may take most alike: they are not those that change
    assert "**For whom it changes: Advice in " in page


def test_one_entry_pays_for_both_parts_and_the_verifier_finds_the_same(shop, published, agent):
    ledger = ledger_of(home_at(shop / "home"))
    entries, seq = ledger.entries(), told(shop, published, "certificate.json")["ledger"]["entry"]
    commit = next(e for e in entries if e.seq == seq)
    intent = next(e for e in entries if e.seq == commit.body["intent"])
    assert_pays_for_both(intent)
    assert Fraction(37, 10) < Fraction(intent.body["rho"]) <= 4
    assert ("planned_calls" in intent.body) == (agent == "dp-vapvi"), "scales that follow answers are not known before"
    assert_verified_and_free_again(shop, shop / f"{AGENTS[agent]}.toml", published)
    # left uncommitted by a crash, it is held against what was known before its first answer
    release = read_release(shop / "home" / "runs" / published)
    quiet = [replace(m, variance=2 * m.variance) if m.table == "b_sum" else m for m in release.mechanisms]
    assert fits(release, intent) and not fits(replace(release, mechanisms=tuple(quiet)), intent)


def test_what_both_parts_cost_is_computed_again_from_scales_and_features(shop, published):
    folder = shop / "home" / "runs" / published
    release, features = read_release(folder), declared_map(told(shop, published, "policy.json")["features"])
    stated = release.joint_rho
    assert Fraction(999, 1000) * stated < held_out_loss(release.mechanisms, release.joint, features) <= stated
    learn, _ = part_costs(release.mechanisms, release.joint, features)
    assert learn[1] <= Fraction(release.joint["learn"]["rho_add_remove"]) < learn[0] * 0.501
    cheap = [replace(m, variance=max(1, m.variance // 4)) for m in release.mechanisms]
    assert held_out_loss(cheap, release.joint, features) > 2 * stated, "a twin with half of the noise"
    with pytest.raises(ValueError, match="no part"):
        held_out_loss(release.mechanisms, {**release.joint, "learn": release.joint["evaluate"]}, features)
    with pytest.raises(ValueError, match="no linear release"):
        held_out_loss(release.mechanisms, {**release.joint, "evaluate": {"sums": []}}, features)
    with pytest.raises(ValueError, match="not at hand"):
        held_out_loss(release.mechanisms, release.joint)


def test_features_that_were_not_charged_for_are_caught(shop, published):
    folder = shop / "home" / "runs" / published
    path, kept = folder / "policy.json", (folder / "policy.json").read_text()
    try:
        facts = json.loads(kept)
        facts["features"]["integers"].reverse()
        path.write_text(json.dumps(facts))
        assert "other features" in answer(shop / "home", "ledger", "verify", published, code=4)["problem"]
    finally:
        path.write_text(kept)


@pytest.mark.slow
def test_another_policy_is_another_question_where_planning_again_is_free(shop):
    recipe = lambda text: write(shop, "asked", agent="dp-one-shot", privacy=RHO, more=text)  # noqa: E731
    other = "[linear]\nC = 0.5\n"
    for text in (HELD, ""):
        call(shop, "run", recipe(text))
        assert replays(shop / "home", recipe(text)) and replays(shop / "home", recipe(other + text)) is (text == "")


@pytest.mark.parametrize(
    ("privacy", "more", "why"),
    [
        ("[privacy]\nepsilon = 1.0", "", "Gaussian"),
        (RHO, "[linear]\nhalves = true\n", "splits people as well"),
        (RHO, "", "81 cells; up to 80"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_charged(shop, constants, privacy, more, why):
    constants(cells=80 if "cells" in why else 10_000)
    with pytest.raises((CardError, ValueError), match=why):
        run_job(str(write(shop, "refused", "dp-vapvi", privacy, more + HELD)), home_at(shop / "home"))


def test_parts_of_real_people_that_cost_more_than_was_asked_are_refused(tmp_path, monkeypatch):
    """One feature is so much longer than all others that to be added costs nearly what being replaced does."""
    longer = "[features]\nkind = 'product'\nstates = [[1, 0], [0, 5]]\nactions = [[1], [1], [3]]\nbalanced = false\n"
    ingested(tmp_path, card_text(kind="real", cap=40.0, people=PEOPLE) + longer, "register")
    card, recipe = tmp_path / "card.toml", write(tmp_path, agent="dp-vapvi", privacy=RHO)
    for verb in ("plan", "run"):
        refused = reticent("--home", "home", verb, recipe, cwd=tmp_path)
        assert refused.returncode == 2 and "more than the 4 asked" in refused.stderr
    with monkeypatch.context() as older:
        older.setattr("flows.config.recipe._refuse_more", lambda *_: None)
        spent = call(tmp_path, "run", recipe)["ledger"]["spent_rho"]
    # what a version without this rule committed is replayed
    assert call(tmp_path, "plan", "--no-quality", recipe)["replays"]
    again = call(tmp_path, "run", recipe)
    assert again["replayed"] and again["ledger"]["spent_rho"] == spent > 4
    change(card, "balanced = false", "balanced = true")
    assert call(tmp_path, "plan", "--no-quality", recipe)["rho"] <= 4


LOGGED = f'{HELD}probabilities = "logged"\n'
# rows of different customers: empty cells tell nothing, the others are no chances
ODD = {0: "0", 10: "1.5", 20: "", 30: "-0.2", 40: "many", 50: "nan"}


def make(folder, chance=1 / 3, *, odd=False, mapped=True):
    chances = ', behavior_prob = "chance"' if mapped else ""
    (folder / "card.toml").write_text(SHOP.replace('terminated = "left"', f'terminated = "left"{chances}') + FEATURES)
    told_of = ODD if odd else {}
    write_log(folder, ((*row, told_of.get(i, chance)) for i, row in enumerate(rows(PEOPLE))), ",chance")
    call(folder, "ingest", folder / "card.toml")
    return folder


@pytest.fixture(scope="module")
def odds(tmp_path_factory):
    """A shop whose rows tell the chances of its actions, some of which are none."""
    return make(tmp_path_factory.mktemp("shop"), odd=True)


@pytest.fixture(scope="module", params=["dp-apvi", "dp-vapvi"])
def weighed(odds, request):
    recipe = write(odds, request.param, agent=request.param, privacy="[privacy]\nrho = 4.0", more=LOGGED)
    return call(odds, "run", recipe)["run"]


def test_the_page_and_the_certificate_say_that_rows_told_practice(odds, weighed):
    found = told(odds, weighed)["evaluation"]
    assert re.fullmatch("(tabular|linear)-dr-logged", found["estimator"])
    assert abs(found["ratios"]) < 4 and found["improvement"]["lower"] > 0, "a call sells to the warm"
    certificate = told(odds, weighed, "certificate.json")
    assert certificate["joint"]["estimator"] == found["estimator"]
    (scores,) = [s for s in certificate["joint"]["evaluate"]["sums"] if "b_sum" in s["tables"]]
    told_of = scores["joint"]["scores"], scores["joint"]["halved"]
    assert told_of == (6, 2), "the check has a sum of its own, in the price of all"
    page = (odds / "home" / "runs" / weighed / "report.md").read_text()
    assert re.search(r"Logged probabilities \| z = [-−]?\d.* \| in the same release", page)
    assert call(odds, "ledger", "verify", weighed)["ok"]
    assert call(odds, "run", odds / f"{weighed.rsplit('-', 1)[0]}.toml")["replayed"]
    # all six sums have one price
    release = read_release(odds / "home" / "runs" / weighed)
    sums = next(m for m in release.mechanisms if m.table == "b_sum")
    assert sums.shape == (6,) and sums.l2_squared == 4 * (4 * 2**32 + 2 * half(2**16) ** 2)
    if "regressions" not in release.joint["learn"]:
        assert held_out_loss(release.mechanisms, release.joint) == release.joint_rho
    entries = ledger_of(home_at(odds / "home")).entries()
    asked = [e.body for e in entries if e.kind == "INTENT" and e.body["joint"]["estimator"].endswith("-logged")]
    assert asked and all(Fraction(38, 10) < Fraction(body["rho"]) <= 4 for body in asked)


def test_plan_says_it_before_anything_is_spent(odds):
    said = call(odds, "plan", "--no-quality", write(odds, "planned", privacy="[privacy]\nrho = 1.0", more=LOGGED))
    assert "J = 6 scores" in json.dumps(said) and "tabular-dr-logged" in json.dumps(said)


def test_what_is_no_chance_is_set_aside_and_stops_no_run(odds):
    """0 of what was done, more than 1, less than 0, or a word: filed with its episode; an empty cell stays."""
    snapshot = odds / "home" / "store" / "shop" / "snapshot-0001"
    parts = pl.concat([pl.read_parquet(p) for p in sorted(snapshot.glob("part-*.parquet"))])
    assert set(parts["behavior_prob"].drop_nulls()) == {1 / 3} and 0 < parts["behavior_prob"].null_count() <= 2
    filed = pl.concat([pl.read_parquet(p) for p in sorted(snapshot.glob("quarantine-*.parquet"))])
    assert set(filed["rule"]) == {"unparsable"} and 4 <= len(filed) <= 12


def test_chances_that_are_not_those_of_practice_withhold_the_answer(tmp_path):
    odds = make(tmp_path, 0.6)
    run = call(odds, "run", write(odds, privacy="[privacy]\nrho = 4.0", more=LOGGED))["run"]
    report = told(odds, run)
    assert report["evaluation"]["ratios"] < -4, "weights are a half of what they should be"
    assert report["verdict"]["answer"] == "withheld" and "logged probabilities" in report["verdict"]["why"]
    assert abs(told(odds, call(odds, "run", write(odds, "plain", more=HELD))["run"])["evaluation"]["placebo"]) < 4


def test_the_release_is_asked_unless_the_recipe_says_otherwise(odds):
    plain = told(odds, call(odds, "run", write(odds, "released", more=f'{HELD}probabilities = "released"\n'))["run"])
    assert plain["evaluation"]["estimator"] == "tabular-dr" and "ratios" not in plain["evaluation"]
    assert call(odds, "run", write(odds, "same", more=HELD))["replayed"], "it is the same question"


@pytest.mark.parametrize(
    ("agent", "more", "mapped", "why"),
    [
        ("dp-apvi", LOGGED, False, r"shop maps no column to source\.columns\.behavior_prob"),
        ("dp-one-step", LOGGED, True, "dp-one-step weighs nothing by them; take it out"),
        ("dp-apvi", '[evaluate]\nprobabilities = "logged"\n', True, "nobody evaluates; give people"),
        ("dp-apvi", f'{HELD}probabilities = "guessed"\n', True, "released"),
    ],
)
def test_what_cannot_be_weighed_is_refused_before_anything_is_charged(tmp_path, agent, more, mapped, why):
    odds = make(tmp_path, mapped=mapped)
    with pytest.raises((CardError, ValueError), match=why) as refused:
        run_job(str(write(odds, "wrong", agent, "[privacy]\nrho = 4.0", more)), home_at(odds / "home"))
    assert fail(refused.value, as_json=True) == 2
    assert not (odds / "home" / "ledger.db").exists(), "nothing was charged"
