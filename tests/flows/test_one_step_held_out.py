"""A one-step policy that other people confirm and measure: one charge, five stages, a replay, the verifier."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from flows.config.recipe import Setting
from pipeline.audits.attack import Silence
from pipeline.learners.held_out import HeldOutRun, _policy_digest
from pipeline.learners.one_step_learning import OneStepLearner, learn_step, next_question
from pipeline.learners.terms import Privacy, Terms
from pipeline.logs.target_sums import add_targets
from pipeline.privacy.release_file import read_release
from pipeline.transaction.drawing import key_of
from pipeline.worlds.simulated_logs import sample_people
from pipeline.worlds.surrogate import draw_surrogate
from reticent import CardError, load_card, load_recipe
from tests.flows.shop import HELD, bare_recipe, card_text, change
from tests.flows.test_held_out_run import (
    PEOPLE,
    assert_pays_for_both,
    assert_practice,
    assert_verified_and_free_again,
    call,
    ingested,
    ledger,
    replays,
    shop,
    write,
)
from tests.flows.verb import answer, refusal, told
from tests.jobs import home_at, plan_job, run_job

__all__ = ["shop"]
ONE_STEP = {"agent": "dp-one-step", "privacy": "[privacy]\nrho = 4.0"}


@pytest.fixture(scope="module")
def published(shop):
    return call(shop, "run", write(shop, "one_step", **ONE_STEP))["run"]


def test_the_policy_is_the_confirmed_one_and_people_say_what_it_is_worth(shop, published):
    found = told(shop, published)["evaluation"]
    assert found["estimator"] == "one-step-dr"
    assert_practice(found, 0.4)
    assert any("confirm" in name for name in ([d["name"] for d in found["diagnostics"]]))
    assert found["calibrated"] is False, "coverage was measured for other sizes"
    # too few to tell how often the policy comes to a state, and an episode has several steps
    assert found["unweighted"] is True
    # the differences that are summed were cut, and bound nothing: what an episode can pay does
    value, left = (told(shop, published)[k] for k in ("value", "suboptimality"))
    assert left["over"] == "all_policies"
    assert left["upper"] >= value["upper_trivial"] - value["lower"] > left["upper"] / 1.1
    page = (shop / "home" / "runs" / published / "report.md").read_text()
    assert "The best of all policies would gain at most" in page and "no released number says less" in page


def test_one_entry_pays_for_five_stages_and_the_verifier_finds_the_same(shop, published):
    intent = [e for e in ledger(shop).entries() if e.kind == "INTENT"][-1]
    assert_pays_for_both(intent)
    assert Fraction(39, 10) < Fraction(intent.body["rho"]) <= 4
    assert_verified_and_free_again(shop, shop / "one_step.toml", published)


@pytest.fixture(scope="module")
def alone(shop, published):
    """The same, where nobody evaluates."""
    return call(shop, "run", write(shop, "alone", **ONE_STEP, more=""))["run"]


@pytest.mark.parametrize("more", ["pessimism = 3.0", "support = 8.0", "floor = 0.4"])
def test_another_policy_is_another_question_to_the_people_who_evaluate(shop, alone, more):
    """What chooses the policy decides what other people are asked: their answers do not serve for another one."""
    for text, free in ((HELD, True), (f"[one_step]\n{more}\n{HELD}", False), (f"[one_step]\n{more}", True)):
        assert replays(shop / "home", write(shop, "asked", **ONE_STEP, more=text)) is free


def test_another_veto_is_another_question_too(shop, published, tmp_path):
    for veto, same in (('"cold", "call"', True), ('"warm", "call"', False)):
        (tmp_path / "card.toml").write_text((shop / "card.toml").read_text().replace('"cold", "call"', veto))
        assert replays(shop / "home", write(tmp_path, "asked", **ONE_STEP)) is same


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """A shop whose steps share their tables: 3,000 people are heard from rho = 11 on."""
    return lay_out_pooled(tmp_path_factory.mktemp("pooled"))


@pytest.fixture(scope="module")
def moods(tmp_path_factory):
    """The same with states enough for two groups."""
    return lay_out_pooled(tmp_path_factory.mktemp("moods"), '"cold", "warm", "a", "b", "c", "d", "e", "f"')


def lay_out_pooled(folder, moods='"cold", "warm"'):
    card = card_text(cap=300.0, people=PEOPLE).replace('"cold", "warm"', moods)
    return ingested(folder, card.replace("horizon = 3", 'horizon = 3\ndynamics = "stationary"'))


def plan_of(folder, recipe):
    return Setting(load_recipe(recipe), load_card(folder / "card.toml"), home_at(folder / "home")).plan


def test_groups_of_states_are_asked_where_people_are_heard(pooled):
    asked = write(pooled, "heard", agent="dp-one-step", privacy="[privacy]\nrho = 11.0")
    run = call(pooled, "run", asked)["run"]
    folder = pooled / "home" / "runs" / run
    release = read_release(folder)
    names = [m.table for m in release.mechanisms]
    assert names[:6] == ["v_count", "v_sum", "c_count", "c_sum", "q_count", "q_sum"]
    assert release.derived["c_group"].tolist() == [0, 0]
    assert release.joint_rho is not None and Fraction(109, 10) < release.joint_rho <= 11
    assert_verified_and_free_again(pooled, asked, run)
    assert told(pooled, run)["evaluation"]["improvement"]["lower"] > 0, "a call sells to the warm"


def test_groups_are_asked_of_no_one_below_nor_where_nobody_judges_nor_by_step(pooled, shop):
    """The threshold, and what stays as it was; see :func:`pipeline.learners.one_step_learning.with_groups`."""
    for folder, rho, more, groups in (
        (pooled, 11.0, HELD, 1),
        (pooled, 10.8, HELD, 0),
        (pooled, 11.0, "", 0),
        (shop, 11.0, HELD, 0),
    ):
        plan = plan_of(folder, write(folder, "threshold", "dp-one-step", f"[privacy]\nrho = {rho}", more))
        inner = getattr(plan, "plan", plan)
        assert (getattr(inner, "plan", inner)).groups == groups


def test_the_groups_in_a_release_are_those_that_its_policy_rests_on(pooled):
    path = write(pooled, "rests", agent="dp-one-step", privacy="[privacy]\nrho = 11.5")
    folder = pooled / "home" / "runs" / call(pooled, "run", path)["run"]
    plan, release = plan_of(pooled, path), read_release(folder)
    assert plan.learn(release).files().digest == plan.learn(read_release(folder)).files().digest
    lost = {name: table for name, table in release.derived.items() if name != "c_group"}
    with pytest.raises(ValueError, match="other terms"):
        plan.learn(replace(release, derived=lost))


@pytest.fixture(scope="module")
def left_out(pooled):
    """A recipe that says nothing of its policy."""
    path = write(pooled, "left_out", agent="dp-one-step", privacy="[privacy]\nrho = 12.5")
    call(pooled, "run", path)
    return path


@pytest.mark.parametrize("more", ["pessimism = 0.5", "support = 3.0", "floor = 0.4"])
def test_what_a_recipe_sets_of_a_pooled_policy_is_in_its_key(pooled, left_out, more):
    """Left out, these are not the usual ones here: the usual ones, typed, make another policy."""
    typed = write(pooled, "keyed", "dp-one-step", "[privacy]\nrho = 12.5", f"[one_step]\n{more}\n{HELD}")
    assert replays(pooled / "home", left_out) and not replays(pooled / "home", typed)


@pytest.mark.parametrize(("rho", "share"), [(4.0, 0.5), (11.0, 0.5), (12.0, 0.48), (90.0, 0.3)])
def test_auto_is_the_share_that_declared_people_and_budget_ask_for(pooled, rho, share):
    """A number wins; it is the same question, so the same key."""
    keys = []
    for people in ('"auto"', share):
        text = f"[evaluate]\npeople = {people}\n"
        path = write(pooled, "auto", "dp-one-step", f"[privacy]\nrho = {rho}", text)
        keys.append(key_of(load_card(pooled / "card.toml"), 1, plan_of(pooled, path)))
    assert keys[0] == keys[1]


@pytest.mark.parametrize(("rho", "share", "scored"), [(11.0, 0.5, "7/20"), (90.0, 0.3, "1/5")])
def test_scores_get_more_of_the_budget_where_their_noise_is_most_of_an_interval(pooled, rho, share, scored):
    """From declared numbers alone; whatever the shares, the judges' part costs what it may."""
    text = f"[evaluate]\npeople = {share}\n"
    plan = plan_of(pooled, write(pooled, "shares", "dp-one-step", f"[privacy]\nrho = {rho}", text))
    follow, features, values = plan.evaluation.shares.values()
    assert values == Fraction(scored) and follow + features + values == 1 and 3 * follow == 5 * features
    paid, told = plan.charge()
    assert paid is not None and 0.99 * rho < paid <= rho
    judges = told["joint"]["evaluate"]
    assert Fraction(judges["rho_add_remove"]) <= Fraction(judges["rho_exact"]) / 2


def test_a_refusal_says_how_many_people_or_how_much_budget_it_takes(shop):
    # a rho above 1 is charged, and no verdict comes of it; one up to 1 may bring people enough inside
    said = r"(?s)nothing is measured beside the noise.*have 5,000 people; dp-apvi was measured for such a card"
    for name, rho in (("faint", 1.0), ("loud", 2.7)):
        with pytest.raises(CardError, match=said) as refused:
            run_job(str(write(shop, name, "dp-one-step", f"[privacy]\nrho = {rho}")), home_at(shop / "home"))
        assert "take it out" in str(refused.value)
    text = (shop / "card.toml").read_text().replace(f"users_public = {PEOPLE}", "users_public = 6000")
    (shop / "many.toml").write_text(text)
    low = write(shop, "low", "dp-one-step", "[privacy]\nrho = 0.04")
    change(low, 'card = "card.toml"', 'card = "many.toml"')
    with pytest.raises(CardError, match=r"or ask for a larger rho, up to 1; dp-apvi was"):
        plan_job(str(low), home_at(shop / "home"))
    enough = write(shop, "enough", agent="dp-one-step", privacy="[privacy]\nrho = 2.8")
    assert call(shop, "plan", "--no-quality", enough)


def test_a_usual_option_typed_is_another_recipe_where_it_is_not_what_runs(pooled, left_out):
    """Left out, pessimism is 1 where groups are asked: who types .5 after an answer has chosen by it."""
    more = f"[one_step]\npessimism = 0.5\n{HELD}"
    path = write(pooled, "typed", agent="dp-one-step", privacy="[privacy]\nrho = 12.6", more=more)
    assert "by another recipe" in told(pooled, call(pooled, "run", path)["run"])["evaluation"]["judged_before"]


@pytest.mark.parametrize(
    ("rho", "name", "lie"),
    [
        (13.1, "c_group", lambda x: 1 - x),
        pytest.param(13.2, "v_value", lambda x: x + 1, marks=pytest.mark.slow),
        pytest.param(13.3, "b_weights", lambda x: x // 2, marks=pytest.mark.slow),
        pytest.param(13.4, "b_values", lambda x: x + 1, marks=pytest.mark.slow),
    ],
    ids=["groups", "values", "weights", "model"],
)
def test_a_later_question_that_earlier_answers_do_not_make_is_caught(moods, monkeypatch, rho, name, lie):
    """An insider writes another question beside the noisy numbers, before the ledger knows them."""
    path = write(moods, f"forged_{name}", agent="dp-one-step", privacy=f"[privacy]\nrho = {rho}")
    draw = HeldOutRun.draw

    def forged(self, *asked):
        found = draw(self, *asked)
        other = np.ascontiguousarray(lie(found.derived[name]))
        assert not np.array_equal(other, found.derived[name])
        # the digest of the policy follows from it
        return replace(found, derived={**found.derived, name: other, **of(self, found, name, other)})

    def of(run, found, name, other):
        release = replace(found, derived={**found.derived, name: other})
        mine = {k: v for k, v in release.derived.items() if not k.startswith("b_")}
        tables = {k: v for k, v in release.tables.items() if not k.startswith("b_")}
        known = tuple(m for m in release.mechanisms if m.table in tables)
        learnt = run.plan.learn(replace(release, derived=mine, tables=tables, mechanisms=known))
        return {"b_asked": _policy_digest(learnt)}

    with monkeypatch.context() as insider:
        insider.setattr(HeldOutRun, "draw", forged)
        run = call(moods, "run", path)["run"]
    checks = answer(moods / "home", "ledger", "verify", run, "--card", moods / "card.toml", code=4)
    assert not checks["ok"] and name in checks["problem"], checks


_CONTEXTS = """
import numpy as np
from pipeline.worlds.world import World, WorldFunction


@WorldFunction
def contexts() -> World:
    pays = np.vstack([np.random.default_rng(1).random((12, 5)), np.zeros(5)])
    onto = np.zeros((13, 5, 13))
    onto[..., 12] = 1.0
    return World(
        name="contexts",
        transition=onto,
        visit_reward=pays,
        entry_reward=np.zeros(13),
        start=np.append(np.full(12, 1 / 12), 0.0),
        raw_labels=[*(f"context {i}" for i in range(12)), "over"],
        bin_values={},
        ends={12: "over"},
        policies={"uniform": np.full((13, 5), 0.2)},
        horizon=1,
    )
"""


def test_one_step_an_episode_is_evaluated_on_a_condition_and_without_a_z(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "contexts_world.py").write_text(_CONTEXTS)
    log, world = tmp_path / "log", "contexts_world:contexts"
    more = f'[privacy]\nrho = 1.0\n{HELD}world = "{world}"\nbehaviour = "uniform"'
    recipe = bare_recipe(tmp_path, "step", "dp-one-step", more, log)
    for asked in (("simulate", world, "--logs", "--episodes", 8000, "--to", log), ("ingest", log), ("run", recipe)):
        call(tmp_path, *asked)
    folder = next((tmp_path / "home" / "runs").iterdir())
    report = told(tmp_path, folder.name)
    found, verdict = report["evaluation"], report["verdict"]
    assert found["calibrated"] and found["placebo"] is None and "past" not in found and found["hidden"] is None
    assert verdict["answer"] == "better" and verdict["confounding"]["status"] == "unchecked"
    page = (folder / "report.md").read_text()
    assert "if the recorded state explains the choices" in page and "Episodes have one step" in page
    assert "z = " not in page
    assert "Measured from 1 to 20: steps" in page
    assert "Measured from 1,500 to 30,000: people who judge × √ρ, ρ at most 1" in page


def test_who_judges_begins_where_the_log_began_them_and_the_page_says_so(shop, tmp_path):
    """In the log people begin cold or warm, by the card all of them warm."""
    card = (shop / "card.toml").read_text()
    (tmp_path / "card.toml").write_text(card.replace("[reward]", "start = { warm = 1.0, cold = 0.0 }\n[reward]", 1))
    (tmp_path / "log.csv").write_bytes((shop / "log.csv").read_bytes())
    call(tmp_path, "ingest", tmp_path / "card.toml")
    for agent in ("dp-one-step", "dp-apvi"):
        run = call(tmp_path, "run", write(tmp_path, agent, agent, "[privacy]\nrho = 4.0"))["run"]
        report = told(tmp_path, run)
        assert report["value"]["start"] == "people" and report["value"]["optimal_upper"] is None
        page = (tmp_path / "home" / "runs" / run / "report.md").read_text()
        assert "as of the people who judged it" in page and "not as domain.start declares" in page


WALK = """
schema_version = 1
name = "walk"
kind = "synthetic"
unit = {{ user = "user_id", users_public = 3000 }}
reward = {{ range = [0.0, 1.0], total = 1.0, on_entering = {{ well = 1.0 }} }}
budget = {{ rho = 10.0 }}
[domain]
horizon = 4
dynamics = "{dynamics}"
states = {{ column = "state", features = "states.parquet", ends = ["well", "ill"] }}
actions = {{ column = "action", labels = 3 }}
[source]
files = ["log.parquet"]
columns = {{ user_id = "user_id", episode_id = "episode_id", step = "step", next_state = "next_state" }}
"""


def log_walk(folder, people=3000, seed=1):
    """Six states of one number; action 1 cures more often the higher it is, action 2 never does."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(people):
        state = int(rng.integers(6))
        for step in range(4):
            action = int(rng.choice(3, p=[0.5, 0.3, 0.2]))
            chance = 0.15 + 0.08 * state * (action == 1) - 0.1 * (action == 2)
            over = rng.random() < 0.5
            after = ("well" if rng.random() < chance * 2 else "ill") if over else str(int(rng.integers(6)))
            rows.append((user, 0, step, str(state), action, after))
            if over:
                break
            state = int(after)
    names = ["user_id", "episode_id", "step", "state", "action", "next_state"]
    pl.DataFrame(rows, schema=names, orient="row").write_parquet(folder / "log.parquet")


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    log_walk(folder := tmp_path_factory.mktemp("logged"))
    return folder / "log.parquet"


@pytest.fixture
def shelf(logged, tmp_path):
    shutil.copy(logged, tmp_path)
    table = {"state": [str(s) for s in range(6)], "severity": [float(s) for s in range(6)]}
    pl.DataFrame(table).write_parquet(tmp_path / "states.parquet")

    def write(dynamics="stationary", agent="dp-one-step", more="[privacy]\nrho = 2.0\n"):
        (tmp_path / "card.toml").write_text(WALK.format(dynamics=dynamics))
        return bare_recipe(tmp_path, agent.replace("-", "_"), agent, more)

    return write


@pytest.mark.parametrize("dynamics", ["stationary", "per_step"])
def test_a_run_is_released_in_two_stages_replayed_and_verified(shelf, tmp_path, dynamics):
    recipe, home = shelf(dynamics), tmp_path / "home"
    answer(home, "ingest", tmp_path / "card.toml")
    planned = answer(home, "plan", "--no-quality", recipe)
    assert [m["table"] if "table" in m else m["name"] for m in planned["mechanisms"]]
    assert 1.99 < planned["rho"] <= 2.0
    first = answer(home, "run", recipe)
    again = answer(home, "run", recipe)
    assert again["ledger"]["spent_rho"] == first["ledger"]["spent_rho"] == pytest.approx(2, abs=0.01)
    folder = home / "runs" / first["run"]
    released = pq.read_table(folder / "release.parquet")
    assert released.column_names == ["table", "step", "state", "action", "count", "sum", "value"]
    steps = 4 if dynamics == "per_step" else 1
    assert released["table"].to_pylist().count("q") == steps * 18
    assert json.loads((folder / "policy.json").read_text())["elsewhere"] == "current practice"
    rows = pq.read_table(folder / "policy.parquet").to_pylist()
    assert rows and all(r["probability"] == 1 for r in rows)
    if dynamics == "stationary":
        # whoever is severe gains by the cure, at every step
        assert {r["action"] for r in rows if r["state"] >= 3} == {1}
    proof = answer(home, "ledger", "verify", first["run"], "--card", tmp_path / "card.toml")
    assert proof["ok"] and any("joint loss" in check["what"] for check in proof["checks"])
    assert "1" in json.dumps(answer(home, "policy", "act", first["run"], "--state", "5", "--step", "0"))
    page = (folder / "report.html").read_bytes()
    answer(home, "report", first["run"])
    assert (folder / "report.html").read_bytes() == page


def test_without_noise_both_agents_release_and_learn_the_same(shelf, tmp_path):
    shelf()
    card = load_card(tmp_path / "card.toml")
    rng = np.random.default_rng(3)
    mdp = draw_surrogate(card, rng)
    people = sample_people(card, mdp, np.full(mdp.shape, 1 / 3), 2000, rng)
    private, exact = Terms("r", "dp-one-step", Privacy(rho=1.0)), Terms("r", "one-step")
    baseline, learnt = OneStepLearner().plan(card, exact).plan, []
    for terms in (private, exact):
        plan = OneStepLearner().plan(card, terms).plan

        def drawn(stage, asked, plan=plan):
            """What was drawn, seen as the tables without noise that it is."""
            sums = add_targets(plan, asked, people)
            found = baseline.stages[stage].draw(sums, Silence())
            for name, table in plan.stages[stage].draw(sums, Silence()).tables.items():
                np.testing.assert_array_equal(table, found.tables[name])
            return found

        first = drawn("v", None)
        asked = next_question(baseline, first)
        second = drawn("q", asked)
        learnt.append(learn_step(baseline, exact, baseline.joined((first, second), asked)))
    assert (learnt[0].policy.probabilities == learnt[1].policy.probabilities).all()
    np.testing.assert_array_equal(learnt[0].found.advantage, learnt[1].found.advantage)


@pytest.mark.parametrize(
    ("agent", "more", "word"),
    [
        ("dp-one-step", "[privacy]\nepsilon = 1.0\n", "Gaussian"),
        ("dp-one-step", "[privacy]\nrho = 1.0\ncalibration = 'paper'\nrelease = 'two_tables'\n", "one release"),
        ("dp-apvi", "[privacy]\nrho = 1.0\n[one_step]\nfloor = 0.1\n", "belongs to dp-one-step and one-step"),
        ("dp-one-step", "[privacy]\nrho = 1.0\n[one_step]\nfloor = 1.5\n", "floor"),
        ("one-step", "[privacy]\nrho = 1.0\n", "dp-one-step"),
    ],
)
def test_a_wrong_recipe_is_refused_with_the_line(shelf, tmp_path, agent, more, word):
    assert word in refusal(tmp_path / "home", "plan", shelf(agent=agent, more=more))


def test_a_pooled_walk_without_ends_is_refused(shelf, tmp_path):
    recipe = shelf()
    change(tmp_path / "card.toml", ', ends = ["well", "ill"]', "")
    change(tmp_path / "card.toml", "{ well =", '{ "1" =')
    assert "per_step" in refusal(tmp_path / "home", "plan", recipe)
