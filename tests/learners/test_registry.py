"""Offline agents: what is registered, what makes two runs the same, what is asked, its cost, and the policy written."""

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

import pipeline.learners.tabular_learning as learning
from flows.config.recipe import setting
from pipeline.agents.against_behaviour import AgainstPractice
from pipeline.agents.apvi import apvi
from pipeline.declaration.card import load_any_card
from pipeline.learners.learner import AGENTS, Agent, find, plan_run, typeable
from pipeline.learners.linear_request import LinearRequest
from pipeline.learners.policy_files import Exported, PolicyFiles, StoredDecisions, decision_files, policy_of
from pipeline.learners.tabular import Tabular
from pipeline.learners.tabular_facts import measured, practice_facts, proved
from pipeline.learners.tabular_learning import learn
from pipeline.learners.terms import Evaluate, OneStep, Planner, Privacy, Terms, recipe_identity
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import read_release
from pipeline.statistics.linear_sums import released_statistics
from reticent import CardError, load_recipe
from tests.conftest import card_dict, domain_dict
from tests.flows.shop import lay_out, write_recipe
from tests.jobs import home_at, ingest_job, plan_job, run_job
from tests.learners import linear_shop
from tests.learners.linear_shop import lay_out_linear

MODULE = """
from pipeline.agents.apvi import apvi
from pipeline.learners.learner import Agent
from pipeline.learners.tabular import Tabular
from pipeline.learners.tabular_learning import learn
from pipeline.learners.terms import Planner

def planner(counts, task, constants, rng, penalty):
    return apvi(counts, task, constants, rng, penalty)

same = Agent(Tabular(planner=planner), private=True)
"""


def test_twins_are_registered_one_private_and_one_not():
    for name, agent in ((name, find(name)) for name in AGENTS):
        twin = find(str(agent.twin))
        assert twin.private is not agent.private, name
        assert type(twin.learner) is type(agent.learner), name


def test_an_agent_of_ones_own_replays_the_release_of_ours(tmp_path, monkeypatch):
    folder, home = lay_out(tmp_path, cap=3.0), home_at(tmp_path / "home")
    (tmp_path / "own_same.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    ingest_job(str(folder), home)
    ours = run_job(str(write_recipe(folder, "ours")), home)
    asked = str(write_recipe(folder, "theirs", "own_same:same"))
    assert plan_job(asked, home)["replays"]
    theirs = run_job(asked, home)
    assert theirs["replayed"] and theirs["ledger"] == ours["ledger"]
    assert theirs["value"]["lower"] == ours["value"]["lower"] and theirs["value"]["status"] == "modelled"
    # another text is another run, whatever it does
    (tmp_path / "own_same.py").write_text(MODULE + "# edited\n")
    assert run_job(asked, home)["run"] != theirs["run"]


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ("dp-no-such", r"recipe.agent: Input should be 'dp-apvi'.* or module:object; found 'dp-no-such'"),
        ("no_such_module:agent", "finds no module"),
        ("math:pi", "is a float, not of type Agent"),
        ("math:no_such", "module math has no 'no_such'"),
    ],
)
def test_what_is_no_agent_is_said(tmp_path, agent, says):
    with pytest.raises(CardError, match=says):
        load_recipe(write_recipe(tmp_path, "r", agent, ""))


@dataclass(frozen=True)
class Foreign(Tabular):
    """A learner that might draw anything."""


foreign = Agent(Foreign(), private=True)


def test_real_people_are_drawn_by_the_learners_of_the_house_only(tmp_path):
    folder = lay_out(tmp_path, kind="real", ledger="ledger.db", cap=3.0)
    path = write_recipe(folder, "foreign", f"{__name__}:foreign")
    with pytest.raises(CardError, match="by code of its own"):
        _ = setting(str(path), home_at(tmp_path / "home")).plan


def test_a_planner_keeps_to_the_cards_shape_and_vetoes(tmp_path):
    folder, home = lay_out(tmp_path, cap=3.0), home_at(tmp_path / "home")
    ingest_job(str(folder), home)
    asked = str(write_recipe(folder, "ours"))
    release, card = read_release(Path(run_job(asked, home)["folder"])), setting(asked, home).tabular

    def short(counts, task, constants, rng, penalty):
        plan = apvi(counts, task, constants, rng, penalty)
        return replace(plan, policy=Policy(plan.policy.probabilities[1:], plan.policy.abstains[1:]))

    def vetoed(counts, task, constants, rng, penalty):
        plan = apvi(counts, task, constants, rng, penalty)
        worst = np.eye(task.allowed.shape[1])[np.argmin(task.allowed, axis=1)]
        return replace(plan, policy=Policy(np.tile(worst, (task.horizon, 1, 1)), plan.policy.abstains))

    for planner, says in ((short, "must be"), (vetoed, "vetoes there")):
        with pytest.raises(CardError, match=says):
            learn(card, Planner(), release, planner)


def test_a_containment_row_expires_with_the_code_it_was_measured_with():
    key = {"world": "riverswim", "code": "new"}
    row = key | {"draws": "100", "inside": "100"}
    assert measured([row], key) == row
    assert measured([row | {"code": "old"}], key) is None
    # measured before rows said which code
    assert measured([{k: v for k, v in row.items() if k != "code"}], key) is None


def test_an_interval_is_proved_where_the_theorem_of_the_paper_holds_and_nowhere_else(make_card):
    paid = {"range": [0.0, 1.0], "kind": "table", "table": [[0.0, 1.0], [1.0, 0.0]]}

    def of(reward=paid, unit=None, **domain):
        plain = card_dict()
        domain = plain["domain"] | {"start": {"x": 1.0, "y": 0.0}} | domain
        return make_card(domain=domain, reward=reward, unit=plain["unit"] | (unit or {}))

    def asked(privacy=None, **planner):
        given = Privacy(rho=1.0, release="two_tables") if privacy is None else privacy
        return Terms("r", "dp-apvi", given, planner=Planner(**{"constants": "paper", "bounds": "paper"} | planner))

    assert proved(of(), asked())
    for card in (
        of(unit={"episodes_per_user": 2}),
        of(dynamics="stationary", cell_cap=1),
        of(markov="aggregated"),
        of(start="released"),
        of(reward=card_dict()["reward"]),
    ):
        assert not proved(card, asked())
    for terms in (
        asked(Privacy(rho=1.0)),
        asked(Privacy(epsilon=1.0, release="two_tables")),
        asked(constants="tail"),
        asked(bounds="tail"),
        asked(penalty="hoeffding"),
    ):
        assert not proved(of(), terms)


TERMS = Terms("a.toml", "dp-apvi", Privacy(rho=1.0), evaluate=Evaluate(people=0.3))


@pytest.fixture
def card(make_card):
    return make_card()


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"where": "b.toml"}, True),
        ({"privacy": Privacy(rho=2.0)}, True),
        ({"privacy": Privacy(epsilon=1.0, delta=1e-6)}, True),
        ({"planner": Planner(seed=7)}, True),
        ({"evaluate": None}, True),
        ({"evaluate": Evaluate(people=0.4, since=2, users_since=40)}, True),
        ({"agent": "dp-ucbvi"}, False),
        ({"planner": Planner(failure=0.2)}, False),
        ({"planner": Planner(constants="paper")}, False),
        ({"privacy": Privacy(rho=1.0, release="two_tables")}, False),
        ({"evaluate": Evaluate(people=0.3, probabilities="logged")}, False),
    ],
)
def test_what_may_differ_and_what_makes_another_recipe(card, change, same):
    assert (recipe_identity(card, replace(TERMS, **change)) == recipe_identity(card, TERMS)) is same


def test_a_card_of_other_states_vetoes_features_or_columns_makes_another_recipe_and_another_file_does_not(make_card):
    base = card_dict()
    columns = {**base["source"], "columns": {**base["source"]["columns"], "reward": "other"}}
    changed = [
        {"domain": domain_dict(2, ["y", "x"], ["a", "b"], ["end"])},
        {"domain": {**base["domain"], "vetoes": [["x", "a"]]}},
        {"features": {"kind": "one_hot"}},
        {"source": columns},
    ]
    alike = [{"name": "other"}, {"source": {**base["source"], "files": ["b.csv"]}}, {"budget": {"rho": 3.0}}]
    of = recipe_identity(make_card(), TERMS)
    assert of not in [recipe_identity(make_card(**c), TERMS) for c in changed]
    assert {recipe_identity(make_card(**c), TERMS) for c in alike} == {of}


def test_an_option_typed_as_it_stands_anyway_makes_another_recipe_where_left_out_it_means_something_else(make_card):
    """Groups of states are asked of stationary tables alone, and a budget that may differ decides whether."""
    domain = {**card_dict()["domain"], "dynamics": "stationary"}
    left_out, typed = (replace(TERMS, agent="dp-one-step", one_step=o) for o in (None, OneStep(pessimism=0.5)))
    for card, same in ((make_card(), True), (make_card(domain=domain), False)):
        assert (recipe_identity(card, left_out) == recipe_identity(card, typed)) is same
        assert recipe_identity(card, left_out) == recipe_identity(card, replace(left_out, one_step=OneStep(rows=None)))


def test_a_reader_of_ones_own_may_make_anything_of_rows_so_its_text_is_part(make_card, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    card, found = make_card(source={**card_dict()["source"], "format": "one_reader:read"}), set()
    for text in ("read = 1\n", "read = 2\n"):
        (tmp_path / "one_reader.py").write_text(text)
        found.add(recipe_identity(card, TERMS))
    assert len(found) == 2


def test_code_of_ones_own_may_read_anything_so_only_dates_may_differ(card, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (("one_way", "agent = 1\n"), ("copy_way", "agent = 1\n"), ("other_way", "agent = 2\n")):
        (tmp_path / f"{name}.py").write_text(text)
    mine = replace(TERMS, agent="one_way:agent")
    of = recipe_identity(card, mine)
    assert of == recipe_identity(card, replace(mine, agent="copy_way:agent")), "its text, not its name"
    others = [{"agent": "other_way:agent"}, {"privacy": Privacy(rho=2.0)}, {"planner": Planner(seed=7)}]
    others += [{"evaluate": Evaluate(people=0.4)}, {"agent": "one_way:another"}]
    assert of not in [recipe_identity(card, replace(mine, **other)) for other in others]


def linear_run(folder: Path, name: str) -> LinearRequest:
    return setting(str(lay_out_linear(folder) / f"{name}.toml"), home_at(folder / "home")).plan


def released(mechanisms, tables=None, **more) -> Release:
    """Of nobody and without noise, if no tables are given."""
    zero = {m.table: np.zeros(m.shape, np.int64) for m in mechanisms}
    return Release("shop", "synthetic", "per_step", mechanisms, tables or zero, "seeded", "seeded", **more)


def test_a_typeable_budget_has_six_digits_and_is_never_more():
    assert typeable(0.123456789) == 0.123456
    assert typeable(2 / 3) == 0.666666
    assert typeable(1234567.0) == 1234560.0


@pytest.mark.parametrize(
    ("agent", "privacy", "says"),
    [
        ("dp-apvi", {"calibration": "paper"}, "needs release = 'two_tables'"),
        ("dp-one-step", {"calibration": "paper"}, "one release, tight"),
        ("dp-one-step", {"release": "two_tables"}, "one release, tight"),
    ],
)
def test_what_no_paper_prints_is_refused(agent, privacy, says):
    learner = find(agent).learner
    learner.check(Terms("here", agent, Privacy(rho=1.0)))
    with pytest.raises(ValueError, match=says):
        learner.check(Terms("here", agent, Privacy.model_validate({"rho": 1.0} | privacy)))


@pytest.mark.parametrize("agent", ["dp-apvi", "dp-vapvi", "dp-one-shot"])
def test_a_budget_too_small_for_an_evaluation_is_refused_and_no_fault_of_the_program(tmp_path, agent):
    folder = lay_out_linear(tmp_path)
    card = load_any_card(folder / "card.toml")
    terms = Terms("here", agent, Privacy(rho=1e-15), evaluate=Evaluate(people=0.4))
    unit = card.unit.model_copy(update={"users_public": 5000})
    with pytest.raises(CardError, match=r"here: \[evaluate\] people = 0\.4: .*noise leaves 64-bit"):
        plan_run(card.model_copy(update={"unit": unit}), terms)


def test_what_fits_a_pure_recipe_is_all_that_is_left(tmp_path):
    """A loss of ε costs ε²/2 in zCDP: 2 are left, so ε = 2 fits and no more."""
    plan = setting(str(lay_out(tmp_path) / "pure.toml"), home_at(tmp_path / "home")).plan
    found = plan.fitting(Fraction(2))
    assert found is not None and found["epsilon"] == pytest.approx(2.0, rel=1e-5)


def test_nothing_is_published_where_two_solvers_disagree(tmp_path, monkeypatch):
    plan = setting(str(lay_out(tmp_path) / "private.toml"), home_at(tmp_path / "home")).plan
    proof = SimpleNamespace(holds=False, largest_relative_difference=0.5, tolerance=1e-6)
    monkeypatch.setattr(learning, "prepare", lambda *_: SimpleNamespace(certify=lambda: proof, counts=None))
    with pytest.raises(RuntimeError, match="nothing is published"):
        plan.learn(released(plan.privatizer.mechanisms))


def test_the_first_states_cost_their_share_to_the_last_integer(tmp_path):
    request = linear_run(tmp_path, "once")
    (first,), share = request.start.mechanisms, request.start_rho
    assert first.rho <= share < first.rho * Fraction(first.variance, first.variance - 1)


def test_an_audit_attacks_at_most_two_steps(tmp_path, monkeypatch):
    plan, seen = linear_run(tmp_path, "linear"), list[int]()
    monkeypatch.setattr("pipeline.audits.tables.linear_target", lambda p: seen.append(p.domain.horizon))
    assert plan.plan.domain.horizon == 3
    plan.targets(SeededNoise(0))
    assert seen == [2]


def test_a_log_of_nothing_has_half_the_evidence_that_speaks(tmp_path, monkeypatch):
    """Zero sums leave ridge and shift in every direction, short or long; twice of both is asked of a state."""
    monkeypatch.setattr(linear_shop, "FEATURES", linear_shop.FEATURES.replace("[1, 1]", "[2, 1]"))
    request = linear_run(tmp_path, "once")
    release = released(request.mechanisms(), joint_rho=request.rho)
    learnt = request.learn(release)
    task, backup = request.task, learnt.result.backups[0]
    assert ((task.reference * task.unit) ** 2).sum(-1).min() < 0.5, "some features are so short that they once spoke"
    np.testing.assert_allclose(backup.evidence(task.reference), learnt.threshold / 2)
    assert learnt.policy.abstains.all()
    assert backup.evidence(np.zeros((1, task.dimension))) == 0


def test_one_shot_statistics_say_what_noise_is_in_them(tmp_path):
    """Tables of noise alone: their spread is the stated one, and rewards are read off the last row."""
    request = linear_run(tmp_path, "once")
    mechanisms, rng = request.mechanisms(), np.random.default_rng(0)
    tables = {m.table: np.rint(rng.normal(0, m.standard_deviation, m.shape)).astype(np.int64) for m in mechanisms}
    assert request.plan.features.unit < 0.8
    found = released_statistics(request.plan, released(mechanisms, tables))
    assert found.successors.std() == pytest.approx(found.successor_sd, rel=0.3)
    assert found.rewards.std() == pytest.approx(found.reward_sd, rel=0.3)
    tables["target"][:, -1] = 0
    again = released_statistics(request.plan, released(mechanisms, tables))
    assert not again.rewards.any() and again.successors.any()


def test_it_is_read_back_as_emitted(make_card, tmp_path):
    """A state with one likely action is no state in which the policy abstains."""
    p = np.zeros((2, 2, 2))
    p[0, 0], p[1, 1] = [1.0, 0.0], [0.25, 0.75]
    policy = Policy(p, p.sum(-1) == 0)
    files = decision_files(make_card(), policy)
    written = {stem: pq.read_table(tmp_path / f"{stem}.parquet") for stem in files.write(tmp_path)}
    labels = json.loads((tmp_path / "policy.json").read_text(encoding="utf-8"))
    tables = {stem: {name: table[name].to_numpy() for name in table.column_names} for stem, table in written.items()}
    back = policy_of(PolicyFiles(labels, tables))
    np.testing.assert_array_equal(back.probabilities, policy.probabilities)
    np.testing.assert_array_equal(back.abstains, policy.abstains)


@pytest.mark.parametrize(("silent", "more"), [(8, ""), (9, " and 1 more")])
def test_eight_silent_states_are_named_and_the_rest_is_counted(silent, more):
    policy = Policy(np.zeros((1, silent, 2)), np.ones((1, silent), dtype=bool))
    labels = [f"s{i}" for i in range(silent)]
    tied, stored = np.zeros((1, silent), dtype=bool), {"states": labels, "actions": ["go", "stay"]}
    line = StoredDecisions(Exported("", "", ""), policy, stored, tied, tied).shown()[1][-1]
    assert line.endswith(": " + ", ".join(labels[:8]) + more)


def test_shares_of_practice_are_of_the_cells_that_speak():
    p = np.zeros((2, 2, 2))
    p[..., 0] = 1
    policy = Policy(p, np.array([[False, False], [False, True]]))
    gain = np.array([[1.0, np.nan], [np.nan, np.nan]])
    facts = practice_facts(AgainstPractice(np.ones((2, 2)), gain, np.zeros((2, 2), dtype=bool)), policy)
    assert facts.known_share == pytest.approx(1 / 3) and len(facts.cells) == 1
    nobody = Policy(np.zeros((2, 2, 2)), np.ones((2, 2), dtype=bool))
    assert practice_facts(AgainstPractice(gain, gain * np.nan, gain > 9), nobody).known_share == 0
