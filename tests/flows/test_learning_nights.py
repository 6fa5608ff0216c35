"""Nights left alone: an outside system plays tonight's policy and logs tomorrow's batch; the world may change."""

import csv
import json
from collections.abc import Callable
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import reticent
from flows.jobs.promotion import Alias
from flows.server.acting import Served
from pipeline.facts.report import read_report
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.privacy.continual import continual, squared_weights
from pipeline.privacy.release_file import read_release
from pipeline.worlds.catalog import riverswim_homogeneous
from pipeline.worlds.simulated_logs import sample_log
from tests.flows.changing import FIRST, Clinic
from tests.flows.shop import change
from tests.flows.verb import answer as call
from tests.flows.verb import refusal
from tests.jobs import home_at, ledger_of

pytestmark = pytest.mark.usefixtures("unread")

STATES, HORIZON = 5, 10
# variances are whole numbers, so that a little of the budget is left
ONCE = pytest.approx(1.0, abs=1e-9)
CARD = f"""
schema_version = 1
name = "river"
kind = "synthetic"
unit = {{ user = "user", users_public = 10000 }}
reward = {{ range = [0.0, 0.1] }}
budget = {{ rho = 1.0 }}
[domain]
horizon = {HORIZON}
states = {{ column = "state", labels = {STATES} }}
actions = {{ column = "action", labels = {{ left = [0], right = [1] }} }}
[source]
files = ["tonight.parquet"]
columns = {{ user_id = "user", episode_id = "episode", step = "step", reward = "reward", next_state = "next_state" }}
"""
# what is shipped, over the card above
RECIPE = (Path(__file__).parents[2] / "flows" / "recipes" / "riverswim_nights.toml").read_text(encoding="utf-8")


class Outside:
    """A river that follows whatever policy is in use, and logs it; ``reticent`` is all that it knows of the program."""

    def __init__(self, folder: Path, reticent: Callable[..., dict[str, Any]], people: int) -> None:
        self.folder, self.reticent, self.people = folder, reticent, people
        self.world, self.rng = riverswim_homogeneous(STATES), np.random.default_rng(7)
        self.mdp, self.losses = self.world.mdp(HORIZON), list[float]()
        self.best = float(self.mdp.start @ optimal_values(self.mdp)[1][0])
        folder.mkdir()
        (folder / "card.toml").write_text(CARD)
        for name, agent in (("explore", "dp-ucbvi"), ("keep", "dp-apvi")):
            own = RECIPE.replace('"riverswim"', '"card.toml"').replace("riverswim_nights", name)
            (folder / f"{name}.toml").write_text(own.replace("dp-ucbvi", agent))

    def policy(self, run: str) -> np.ndarray:
        """What the export of a run says ``(H, S, A)``."""
        found, to = np.zeros(self.mdp.shape), self.folder / "policy.csv"
        self.reticent("policy", "export", run, "--to", to, "--force")
        with to.open(newline="") as file:
            for row in csv.DictReader(file):
                a = ("left", "right").index(row["action"]) if row["action"] else slice(None)
                found[int(row["step"]), int(row["state"]), a] = float(row["probability"] or 0.5)
        return found

    def night(self, k: int) -> dict[str, Any]:
        """Log night ``k`` under the policy in use, then let the program have its night."""
        p = np.full(self.mdp.shape, 0.5) if k == 1 else self.policy("current")
        self.losses.append(self.best - policy_value(self.mdp, p))
        rows = sample_log(self.world, p, HORIZON, self.people, self.rng)
        columns = ("step", "state", "action", "reward", "next_state")
        log = {"user": [f"{k}-{u}" for u in rows.user], "episode": rows.user, **{c: getattr(rows, c) for c in columns}}
        pl.DataFrame(log).write_parquet(self.folder / "tonight.parquet")
        return self.reticent("nightly", self.folder / "explore.toml", "--night", FIRST + timedelta(days=k - 1))

    def kept(self, day: date) -> tuple[float, float]:
        """Loss of what the cautious recipe emits on the same counter, and what is spent after it."""
        found = self.reticent("run", self.folder / "keep.toml", "--night", day)
        return self.best - policy_value(self.mdp, self.policy(found["run"])), found["ledger"]["spent_rho"]


@pytest.fixture
def outside(tmp_path) -> Outside:
    return Outside(tmp_path / "river", lambda *words: call(tmp_path / "home", *words), people=1000)


def test_a_night_explores_what_no_night_has_seen_and_costs_nothing_more(outside):
    first = outside.night(1)
    assert first["promotion"]["promoted"] and first["ledger"]["spent_rho"] == ONCE
    # it never abstains: where nothing is known it tries
    assert outside.policy("current").sum(-1) == pytest.approx(np.ones((HORIZON, STATES)))
    assert read_report(Path(first["folder"])).policy.abstain_share == 0.0
    second = outside.night(2)
    assert second["run"] != first["run"] and second["ledger"]["spent_rho"] == ONCE
    # pessimism on the same counter is post-processing: another policy, and no charge
    lost, spent = outside.kept(FIRST + timedelta(days=1))
    assert spent == ONCE and lost >= 0


@pytest.mark.slow
def test_ten_nights_learn_under_one_budget(outside):
    nights = [outside.night(k) for k in range(1, 11)]
    assert [n["ledger"]["spent_rho"] for n in nights] == [ONCE] * 10
    assert all(n["promotion"]["promoted"] for n in nights)
    # uniform choice loses .088 an episode of .091; one night in fifty tries in earnest what lost before, late ones too
    assert np.mean(outside.losses) < 0.5 * outside.losses[0]
    assert sorted(outside.losses)[3] < 0.02 * outside.losses[0]
    lost, spent = outside.kept(FIRST + timedelta(days=9))
    assert spent == ONCE and lost < 0.2 * outside.losses[0]


@pytest.fixture
def alerts(tmp_path, monkeypatch):
    """What somebody was told."""
    program, told = tmp_path / "tell", tmp_path / "alerts"
    program.write_text(f'#!/bin/sh\necho "$1" >> {told}\n')
    program.chmod(0o700)
    monkeypatch.setenv("RETICENT_ALERT", str(program))
    return lambda: told.read_text().splitlines() if told.exists() else []


def clinic_in(folder: Path, **told) -> Clinic:
    return Clinic(folder / "clinic", lambda *words: call(folder / "home", *words), **told)


@pytest.mark.slow
def test_a_change_is_answered_within_two_nights_and_forgotten_after_the_window(tmp_path, alerts):
    clinic, home = clinic_in(tmp_path, window=3, changes=4), home_at(tmp_path / "home")
    before = [clinic.night(k) for k in (1, 2, 3)]
    assert all(n["promotion"]["promoted"] for n in before) and not alerts()
    assert "played" not in before[0]["night"]
    told = before[2]["night"]["played"]
    assert not told["drift"] and told["policy"] > told["practice"] + 1
    assert told["practice"] == pytest.approx(2.5, abs=0.2)
    fell, day = clinic.night(4), FIRST + timedelta(days=3)
    [said] = alerts()
    assert f"left_alone: the run in use did worse than current practice on {day}: practice serves until" in said
    assert not fell["promotion"]["promoted"] and fell["promotion"]["now"] is None
    assert fell["promotion"]["practice_since"] == str(day)
    # what was in use is gone for good, and whoever asks is told to keep practice
    assert not (home.runs / "current").exists()
    assert fell["promotion"]["before"] in Alias(home.runs).rejected
    asked = json.dumps({"state": "calm", "step": 0, "person": "1"}).encode()
    kept = Served(home, "current", None).answer(asked)
    assert (kept["run"], kept["arm"], kept["action"], kept["propensity"]) == (None, "practice", None, None)
    asked = "policy", "act", "current", "--state", "calm", "--step", "0"
    assert "keep current practice" in refusal(home.root, *asked)
    # the same night once more says the same, and moves nothing
    again = clinic.night(4)
    assert again["replayed"] and again["promotion"]["held"] == fell["promotion"]["held"]
    later = [clinic.night(k) for k in range(5, 9)]
    assert [n["promotion"]["promoted"] for n in later] == [False, False, True, True]
    assert later[-1]["night"]["played"]["policy"] > later[-1]["night"]["played"]["practice"] + 1
    # all of it for the one charge, which a checker recomputes
    assert later[-1]["ledger"]["spent_rho"] == pytest.approx(1.0, abs=1e-9)
    assert call(home.root, "ledger", "verify")["ok"]
    for n in (fell, later[-1]):
        proof = reticent.Store(home.root).open(n["run"], clinic.folder).verify()
        assert proof.ok and any("policy.json, made again" in c.what and c.ok for c in proof.checks)


def test_without_a_window_practice_serves_until_somebody_promotes_by_name(tmp_path, alerts):
    clinic, home = clinic_in(tmp_path, changes=2), home_at(tmp_path / "home")
    nights = [clinic.night(k) for k in (1, 2, 3)]
    assert [n["promotion"]["promoted"] for n in nights] == [True, False, False] and len(alerts()) == 1
    assert "until somebody promotes a run by name" in nights[-1]["promotion"]["held"][0]
    call(home.root, "promote", nights[-1]["run"])
    assert "practice_since" not in json.loads((home.runs / ".current.json").read_text())
    assert clinic.night(4)["night"]["played"] is not None


PLACES = {
    "before the note": "Alias._write_record",
    "after the note": "remove_file",
    "after the pointer": "_worse_than_practice",
}


@pytest.mark.parametrize("dies", [pytest.param(p, marks=pytest.mark.slow if "after" in p else ()) for p in PLACES])
def test_a_night_killed_while_it_withdraws_the_run_is_done_by_the_next_attempt(tmp_path, alerts, dies_at, dies):
    clinic, home = clinic_in(tmp_path, window=3, changes=2), home_at(tmp_path / "home")
    first, day, store = clinic.night(1), FIRST + timedelta(days=1), reticent.Store(home.root)
    clinic.log(2).write_parquet(clinic.folder / "tonight.parquet")
    with dies_at(f"flows.jobs.promotion.{PLACES[dies]}"):
        reticent.nightly(clinic.recipe, night=day, store=store)
    assert (Alias(home.runs).now() == first["run"]) == (dies != "after the pointer")
    night = reticent.nightly(clinic.recipe, night=day, store=store)
    assert night.replayed and Alias(home.runs).now() is None and Alias(home.runs).practice_since == day
    assert first["run"] in Alias(home.runs).rejected and len(alerts()) == 1


def test_the_table_is_charged_with_the_counter_and_a_redraw_pays_for_it_too(tmp_path, dies_at):
    clinic, home = clinic_in(tmp_path, people=60), home_at(tmp_path / "home")
    first = clinic.night(1)
    ledger = ledger_of(home)
    [intent] = [e for e in ledger.entries("clinic") if e.kind == "INTENT"]
    listed = {m["table"]: m for m in intent.body["mechanisms"]}
    played = listed.pop("played")
    alone, counted = Fraction(played["rho_exact"]), sum(Fraction(m["rho_exact"]) for m in listed.values())
    assert Fraction(49, 1000) < alone == Fraction(played["l2_squared"], 2 * played["variance"]) <= Fraction(5, 100)
    assert Fraction(intent.body["rho"]) == counted + alone
    release = read_release(home.runs / first["run"])
    assert release.tables["played"].shape == (2, 2) and "play" not in intent.body["counter"]
    # a night that dies after its draw draws all its rows again, this table's among them: the cap has no room for that
    clinic.log(2).write_parquet(clinic.folder / "tonight.parquet")
    day, store = FIRST + timedelta(days=1), reticent.Store(home.root)
    with dies_at("pipeline.transaction.continual_step.KeptSteps.write"):
        reticent.nightly(clinic.recipe, night=day, store=store)
    assert ledger.account("clinic").spent == Fraction(intent.body["rho"])
    with pytest.raises(reticent.BudgetError, match="asked ρ"):
        reticent.nightly(clinic.recipe, night=day, store=store)
    change(clinic.folder / "card.toml", "rho = 1.0", "rho = 2.0")
    store.register(clinic.folder, amend=True)
    reticent.nightly(clinic.recipe, night=day, store=store)
    again = [e for e in ledger.entries("clinic") if e.kind == "INTENT"][-1]
    counter = continual("toeplitz", 30)
    part = Fraction(squared_weights(counter.rows(2)), counter.cost)
    assert Fraction(again.body["rho"]) == part * counted + alone
    assert again.body["counter"]["play"]["share"] == 0.5
    assert call(home.root, "ledger", "verify")["ok"]


def test_what_the_table_needs_is_said_before_a_row_is_read(tmp_path):
    clinic = clinic_in(tmp_path)
    text = clinic.recipe.read_text()
    for old, new, words in (
        ("share = 0.5", "share = 1.0", "share below 1"),
        ("[play]\nshare = 0.5", "", "share below 1"),
        ('[promote]\nstatus = "modelled"', "", "needs [promote]"),
        ("drift = 0.05", "drift = 0.9", "nightly.drift"),
        ("drift = 0.05", "drift = 0.05\nwindow = 30", "fewer nights than all 30"),
    ):
        assert old in text
        clinic.recipe.write_text(text.replace(old, new))
        assert words in refusal(tmp_path / "home", "plan", clinic.recipe), words
