"""The registry of offline agents, and agents of one's own in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from flows.config.recipe import setting
from pipeline.agents.apvi import apvi
from pipeline.learners.learner import AGENTS, Agent, find
from pipeline.learners.tabular import Tabular
from pipeline.learners.tabular_facts import measured, proved
from pipeline.learners.tabular_learning import learn
from pipeline.learners.terms import Planner, Privacy, Terms
from pipeline.mdp.policy import Policy
from pipeline.privacy.release_file import read_release
from reticent import CardError, load_recipe
from tests.conftest import card_dict
from tests.flows.shop import RECIPE, lay_out
from tests.jobs import home_at, ingest_job, plan_job, run_job

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


def recipe(folder: Path, agent: str, privacy: str = "[privacy]\nrho = 1.0\n") -> str:
    path = folder / f"{agent.partition(':')[0]}.toml"
    path.write_text(RECIPE.format(name=path.stem, agent=agent, privacy=privacy))
    return str(path)


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
    ours = run_job(recipe(folder, "dp-apvi"), home)
    asked = recipe(folder, "own_same:same")
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
    (tmp_path / "r.toml").write_text(RECIPE.format(name="r", agent=agent, privacy=""))
    with pytest.raises(CardError, match=says):
        load_recipe(tmp_path / "r.toml")


@dataclass(frozen=True)
class Foreign(Tabular):
    """A learner that might draw anything."""


foreign = Agent(Foreign(), private=True)


def test_real_people_are_drawn_by_the_learners_of_the_house_only(tmp_path):
    folder = lay_out(tmp_path, kind="real", ledger="ledger.db", cap=3.0)
    path = folder / "foreign.toml"
    path.write_text(RECIPE.format(name="r", agent=f"{__name__}:foreign", privacy="[privacy]\nrho = 1.0\n"))
    with pytest.raises(CardError, match="by code of its own"):
        _ = setting(str(path), home_at(tmp_path / "home")).plan


def test_a_planner_keeps_to_the_cards_shape_and_vetoes(tmp_path):
    folder, home = lay_out(tmp_path, cap=3.0), home_at(tmp_path / "home")
    ingest_job(str(folder), home)
    asked = recipe(folder, "dp-apvi")
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
