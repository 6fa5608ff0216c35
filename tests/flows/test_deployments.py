"""Deployments without a server: what is registered, checked, never retried; and what a deployed run may name."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ParameterTypeError, SignatureMismatchError

import flows.server.recorded
from flows.config.home import HOME, SERVED, Work
from flows.config.recipe import Promote
from flows.jobs.promotion import reasons_to_hold
from flows.server.deployments import (
    EXAMPLE_CRON,
    FILE,
    FLOWS,
    deploy,
    nightly,
    read_allowed,
    reproduce,
    simulate,
)
from flows.server.serving import check_schedule, serve_deployments, server_settings
from pipeline.declaration.code import PERMITTED, refuse_unlisted
from pipeline.declaration.toml import read_pairs
from pipeline.facts.answers import Comparison
from pipeline.facts.verdict import Verdict
from reticent import CardError, Store, serve, trigger
from tests.flows.shop import lay_out
from tests.jobs import home_at, nightly_job

pytestmark = pytest.mark.usefixtures("unread")

ROOT = Path(__file__).resolve().parents[2]


def test_prefect_yaml_names_the_same_flows_with_an_example_schedule_that_is_not_active():
    shipped = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    by_name = {d["name"]: d for d in shipped["deployments"]}
    assert set(by_name) == {f.name for f in FLOWS} and shipped["pull"] == []
    for each in FLOWS:
        told = by_name[each.name]
        assert told["entrypoint"] == f"flows.server.deployments.{each.name}"
        assert told["enforce_parameter_schema"] is True
        assert each.name == "nightly" or "schedules" not in told
    assert by_name["nightly"]["schedules"] == [{"cron": EXAMPLE_CRON, "timezone": "UTC", "active": False}]
    nightly.validate_parameters(by_name["nightly"]["parameters"])


def test_serve_refuses_where_prefect_would_start_a_server_without_a_password(tmp_path, monkeypatch):
    """Prefect is loaded here, and read its environment."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(CardError, match=r"Prefect is loaded already.*run `reticent serve` in a shell"):
        serve(port=0, store=Store(tmp_path / "home"))
    assert not (tmp_path / "home" / "prefect").exists()


def test_serve_registers_an_inactive_example_leaves_the_operators_schedule_and_takes_the_one_it_is_given():
    def deployed(*asked: Any) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []

        class Runner:
            def add_flow(self, flow: Any, **settings: Any) -> None:
                assert flow in FLOWS and settings["enforce_parameter_schema"]
                made.append(settings)

        deploy(Runner(), *asked)
        return made

    fresh, *others = deployed("/r.toml", None, "UTC", {})
    assert [(s.cron, s.active) for s in fresh["schedules"]] == [(EXAMPLE_CRON, False)]
    assert all(d["schedules"] == [] and d["parameters"] == {} for d in others)
    mine = DeploymentSchedule(schedule=CronSchedule(cron="7 3 * * *"), active=True, slug="mine")
    there = {"nightly": [], "simulate": [mine]}
    again, simulated, _ = deployed("/r.toml", None, "UTC", there)
    assert again["schedules"] == []
    assert [(s.schedule.cron, s.active, s.slug) for s in simulated["schedules"]] == [("7 3 * * *", True, "mine")]
    asked, *_ = deployed("/r.toml", "5 4 * * *", "Europe/Paris", there)
    assert [(s.cron, s.timezone, s.active) for s in asked["schedules"]] == [("5 4 * * *", "Europe/Paris", True)]
    assert asked["parameters"] == {"recipe": "/r.toml"}


@pytest.mark.parametrize(
    ("cron", "zone"),
    [("0 2 30 2 *", "UTC"), ("99 2 * * *", "UTC"), ("0 2 * * * *", "UTC"), ("15 2 * * *", "Mars/Base")],
)
def test_a_schedule_that_never_comes_due_is_refused_before_anything_is_registered(tmp_path, monkeypatch, cron, zone):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    with pytest.raises(CardError, match=f"--cron '{re.escape(cron)}' with --timezone '{zone}'"):
        serve_deployments(tmp_path, "/r.toml", cron, zone, 1, print)


def test_rare_and_named_schedules_are_taken():
    for cron in ("15 2 29 2 *", "@daily"):
        check_schedule(cron, "Europe/Paris")


@pytest.mark.parametrize(
    ("flow", "parameters"),
    [
        (nightly, {}),
        (nightly, {"recipe": "../elsewhere.toml"}),
        (nightly, {"recipe": "demo", "home": "relative/home"}),
        (nightly, {"recipe": "demo", "retries": 3}),
        (simulate, {"world": "riverswim", "episodes": 0}),
        (simulate, {"world": "../x"}),
        (simulate, {"world": "no-such-world"}),
        (simulate, {"world": "gymnasium:os:path"}),
        (simulate, {"world": "riverswim\nos:path"}),
        (simulate, {"world": "riverswim", "rho": -1}),
        (reproduce, {"name": "003-figure-1a", "full": "perhaps"}),
    ],
)
def test_parameters_are_checked(flow, parameters):
    with pytest.raises((ParameterTypeError, SignatureMismatchError)):
        flow.validate_parameters(parameters)


def test_good_parameters_pass():
    nightly.validate_parameters({"recipe": "/srv/shop/private.toml", "home": "/srv/reticent"})
    simulate.validate_parameters({"recipe": "/srv/worlds/agent.toml"})
    for world in ("riverswim", "gymnasium:FrozenLake-v1", "clinic.worlds:ward"):
        simulate.validate_parameters({"world": world, "episodes": 10, "params": ["states=6"]})
    reproduce.validate_parameters({"name": "003-figure-1a", "full": True})


def test_no_flow_and_no_task_is_retried_cached_or_kept(tmp_path, monkeypatch):
    assert all((f.retries, f.persist_result, f.log_prints) == (0, False, False) for f in FLOWS)
    made: list[dict[str, Any]] = []
    record = lambda **settings: made.append(settings) or (lambda work: work)  # noqa: E731
    monkeypatch.setattr(flows.server.recorded, "task", record)
    shop = lay_out(tmp_path / "shop")
    nightly_job(str(shop / "private.toml"), home_at(tmp_path / "home"), Work(flows.server.recorded.task_step))
    assert [t["name"] for t in made] == ["ingest", "release", "plan", "report"]
    assert all(t["retries"] == 0 and t["persist_result"] is False for t in made)
    assert all(t["cache_policy"] is flows.server.recorded.NO_CACHE for t in made)


def test_key_value_pairs_are_json_where_they_are_and_text_elsewhere():
    pairs = ["episodes=10", "full=true", "world=riverswim", "name=a=b", 'params=["n=6"]', "x="]
    assert read_pairs(pairs, json.loads) == {
        "episodes": 10, "full": True, "world": "riverswim", "name": "a=b", "params": ["n=6"], "x": "",
    }  # fmt: skip
    for wrong in (["episodes"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(CardError, match="key=value"):
            read_pairs(wrong, json.loads)


def test_trigger_without_a_server_says_what_to_set(monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(CardError, match="set PREFECT_API_URL"):
        trigger("nightly")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(CardError, match="no Prefect server answers"):
        trigger("nightly")


_VALUE = {"lower": 0.0, "upper": 1.0, "estimate": None, "status": "estimate"}
NOT_EVALUATED = {"answer": "not_evaluated", "why": "nobody was asked", "improvement": None, "needed": None}
CHANGES = {
    "a": "old", "b": "new", "snapshots": [1, 2], "budget": [], "settings": {},
    "verdict": [NOT_EVALUATED, NOT_EVALUATED],
    "value": {"a": _VALUE, "b": _VALUE, "lower_gain": 0.1, "overlap": True},
    "cells": {"total": 4, "differ": 1, "share": 0.25, "of_ties": 0},
    "abstain_share": [0.1, 0.2],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "held"),
    [
        (Promote(), 0),
        (Promote(lower_gain=0.1, most_changed=0.25), 0),
        (Promote(lower_gain=0.11), 1),
        (Promote(most_changed=0.24), 1),
        (Promote(more_abstaining=False), 1),
        (Promote(status="bound"), 1),
        (Promote(lower_gain=1.0, most_changed=0.0, more_abstaining=False, status="bound"), 4),
    ],
)
def test_every_condition_of_the_rule_holds_a_run_back_on_its_own(rule, held):
    changes = Comparison.model_validate(CHANGES)
    none = Verdict.model_validate(NOT_EVALUATED)
    assert len(reasons_to_hold(rule, "modelled", none, changes)) == held
    assert len(reasons_to_hold(rule, "modelled", none, None)) == (rule.status == "bound")
    other = Comparison.model_validate(CHANGES | {"settings": {"dataset.name": ["a", "b"]}})
    assert len(reasons_to_hold(rule, "modelled", none, other)) == held + 1


@pytest.mark.parametrize(
    ("answer", "status", "held"),
    [
        ("better", "evaluated", 0),
        ("better", "modelled", 1),
        ("worse", "evaluated", 1),
        ("not_told_apart", "evaluated", 1),
        ("nothing_changes", "evaluated", 1),
        ("withheld", "evaluated", 1),
    ],
)
def test_a_run_that_was_evaluated_is_promoted_only_if_its_lower_improvement_is_above_0(answer, status, held):
    improvement = {"estimate": 0.1, "lower": 0.05, "upper": 0.15, "level": 0.95, "status": status}
    verdict = Verdict.model_validate(NOT_EVALUATED | {"answer": answer, "improvement": improvement})
    for changes in (None, Comparison.model_validate(CHANGES)):
        assert len(reasons_to_hold(Promote(), "evaluated", verdict, changes)) == held


@pytest.mark.slow
def test_our_own_server_carries_out_no_automations(monkeypatch, tmp_path):
    """They can send requests to any address: read by Prefect's own settings, as its services do."""
    from prefect.server.events.services.actions import Actions
    from prefect.server.events.services.triggers import ReactiveTriggers
    from prefect.settings import get_current_settings, temporary_settings
    from prefect.settings.models.root import Settings

    assert get_current_settings().server.services.triggers.enabled
    for name, value in server_settings("http://127.0.0.1:4200", "a:b", tmp_path).items():
        monkeypatch.setenv(name, value)
    told = Settings()
    assert not told.server.services.triggers.enabled
    with temporary_settings():
        monkeypatch.setattr("prefect.server.events.services.actions.get_current_settings", lambda: told)
        monkeypatch.setattr("prefect.server.events.services.triggers.get_current_settings", lambda: told)
        assert not Actions.enabled() and not ReactiveTriggers.enabled()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "home"
    found.mkdir()
    monkeypatch.setenv(HOME, str(found))
    monkeypatch.delenv(SERVED, raising=False)
    return found


def test_without_a_list_only_what_is_shipped_and_served_is_allowed(home, tmp_path, monkeypatch):
    monkeypatch.setenv(SERVED, str(tmp_path / "mine.toml"))
    # a file of a shipped name in the working folder is not taken for it
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text("")
    found = read_allowed()
    assert found.recipe("demo").name == "demo.toml" and found.recipe("demo").parent.name == "recipes"
    assert found.recipe(str(tmp_path / "mine.toml")) == tmp_path / "mine.toml"
    assert found.home_of(None) == found.home_of(str(home)) == home
    for wrong in (f"{tmp_path}/other.toml", f"{tmp_path}/mine.toml/../other.toml", "no-such-recipe"):
        with pytest.raises(CardError, match=r"not a recipe|no recipe"):
            found.recipe(wrong)
    with pytest.raises(CardError, match="not a home"):
        found.home_of(str(tmp_path))
    with found.enforced(), pytest.raises(CardError, match="only what its operator lists"):
        refuse_unlisted("clinic.worlds:ward")


def test_what_is_listed_is_allowed_and_a_link_leads_nowhere_else(home, tmp_path):
    for name in ("recipes", "other", "evil"):
        (tmp_path / name).mkdir()
    text = f'plugins = ["clinic.worlds:ward"]\nrecipes = ["{tmp_path}/recipes", "{tmp_path}/one.toml"]\n'
    (home / FILE).write_text(text + f'homes = ["{tmp_path}/other"]\n')
    found = read_allowed()
    for right in ("recipes/a.toml", "recipes/deep/b.toml", "one.toml"):
        assert found.recipe(f"{tmp_path}/{right}") == tmp_path / right
    (tmp_path / "recipes" / "link.toml").symlink_to(tmp_path / "evil" / "x.toml")
    for wrong in ("recipes/link.toml", "recipes/../evil/x.toml", "recipes2/a.toml"):
        with pytest.raises(CardError, match="not a recipe"):
            found.recipe(f"{tmp_path}/{wrong}")
    assert found.home_of(f"{tmp_path}/other") == tmp_path / "other"
    with found.enforced():
        refuse_unlisted("clinic.worlds:ward")
        with pytest.raises(CardError):
            refuse_unlisted("clinic.worlds:other")
    assert PERMITTED not in os.environ


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_list_that_others_may_write_is_refused(home, mode):
    (home / FILE).write_text("")
    (home / FILE).chmod(mode)
    with pytest.raises(CardError, match="others may write"):
        read_allowed()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another account")
def test_a_list_of_another_account_is_refused(home):
    (home / FILE).write_text("")
    os.chown(home / FILE, 65534, 65534)
    with pytest.raises(CardError, match="belongs to another account"):
        read_allowed()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('plugins = ["os"]', "not of the form module:object"),
        ('recipes = ["here.toml"]', "not an absolute path"),
        ('homes = ["here"]', "not an absolute path"),
        ("worlds = []", "unknown key"),
    ],
)
def test_a_wrong_list_is_said(home, text, says):
    (home / FILE).write_text(text)
    with pytest.raises(CardError, match=says):
        read_allowed()


@pytest.mark.parametrize("named", ["", ".reticent"])
def test_a_deployed_run_needs_the_home_of_its_service(monkeypatch, named):
    monkeypatch.setenv(HOME, named)
    with pytest.raises(CardError, match="absolute home"):
        read_allowed()
