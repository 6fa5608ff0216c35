"""Nights of the one-step agent: epochs, values that stand, people who wait, deaths, replays, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import pipeline.ledger.ledger as book
import pipeline.transaction.continual_draw
import pipeline.transaction.transaction
from flows.cli import app
from flows.config.home import Home
from flows.config.setting import setting
from flows.jobs import foresight
from flows.jobs.intake import ingest_job
from flows.jobs.nights import nightly_counter
from flows.jobs.run import register_job
from pipeline.audits.sampling import Silence
from pipeline.declaration.card import CardError
from pipeline.learners import forecast, one_step
from pipeline.learners.one_step import OneStepLearner
from pipeline.learners.one_step_learning import learn_step, standing_question
from pipeline.learners.terms import Terms
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.step_checks import counters_problem
from pipeline.ledger.steps import step_price
from pipeline.ledger.verify import verify_run
from pipeline.logs.store import snapshots
from pipeline.logs.target_sums import add_targets
from pipeline.privacy.epochs import Epochs
from pipeline.privacy.factorisation import squared_weights
from pipeline.privacy.noise import OsNoise
from pipeline.privacy.release_file import mechanism_from
from pipeline.transaction.continual_step import append_step
from pipeline.transaction.kept_steps import KeptSteps
from tests.flows.test_one_step_run import CARD
from tests.jobs import foresee_job, plan_job, run_job

FIRST = date(2026, 1, 1)
RECIPE = """[recipe]
name = "walk"
card = "card.toml"
agent = "dp-one-step"
[privacy]
rho = 2.0
[nightly]
nights = {nights}
first = 2026-01-01
counter = "{kind}"
"""
NAMES = ("user_id", "episode_id", "step", "state", "action", "next_state")


class KilledError(BaseException):
    """The process is gone: nobody catches it."""


def dies(*_args, **_kwargs):
    raise KilledError


def people(first, count, seed=0):
    """Rows of walks through six states: action 1 cures more often the higher the state."""
    rng = np.random.default_rng([first, seed])
    rows = []
    for user in range(first, first + count):
        state = int(rng.integers(6))
        for step in range(4):
            action = int(rng.choice(3, p=[0.5, 0.3, 0.2]))
            over = step == 3 or rng.random() < 0.5
            well = rng.random() < 0.3 + 0.16 * state * (action == 1) - 0.2 * (action == 2)
            after = ("well" if well else "ill") if over else str(int(rng.integers(6)))
            rows.append((user, 0, step, str(state), action, after))
            if over:
                break
            state = int(after)
    return rows


class Walk:
    """A registered card, a recipe with nights in epochs, and the nights so far."""

    def __init__(self, folder, monkeypatch, *, kind="tree", nights=8, epoch="epoch = 3", dynamics="stationary", **card):
        self.folder, self.home, self._patch = folder, Home(folder / "home"), monkeypatch
        folder.mkdir(exist_ok=True)
        told = CARD.format(dynamics=dynamics)
        for old, new in card.get("change", ()):
            told = told.replace(old, new)
        (folder / "card.toml").write_text(told)
        states = {"state": [str(s) for s in range(6)], "severity": [float(s) for s in range(6)]}
        pq.write_table(pa.table(states), folder / "states.parquet")
        self.recipe = str(folder / "walk.toml")
        (folder / "walk.toml").write_text(RECIPE.format(nights=nights, kind=kind) + epoch + "\n" + card.get("more", ""))
        self.on(1)

    def on(self, night):
        at = datetime(FIRST.year, FIRST.month, FIRST.day, 3, tzinfo=UTC) + timedelta(days=night - 1)
        self._patch.setattr(book, "now", lambda: at)

    def deliver(self, rows):
        told = dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True))
        pq.write_table(pa.table(told), self.folder / "log.parquet")
        ingest_job(str(self.folder / "card.toml"), self.home)

    @property
    def counter(self):
        return nightly_counter(setting(self.recipe, self.home))

    @property
    def ledger(self) -> Ledger:
        return open_ledger(self.home.root / "ledger.db", create=False)

    def append(self, night, rows=None, noise=None):
        self.on(night)
        if rows is not None:
            self.deliver(rows)
        if not (self.home.root / "ledger.db").exists():
            register_job(str(self.folder / "card.toml"), self.home)
        day = FIRST + timedelta(days=night - 1)
        return append_step(self.counter, self.ledger, self.home.store, noise or OsNoise(), day).curated

    def run(self, night, rows=None):
        self.on(night)
        if rows is not None:
            self.deliver(rows)
        return run_job(self.recipe, self.home)

    def charged(self):
        return sum((Fraction(e.body["rho"]) for e in self.ledger.entries() if e.kind == "INTENT"), Fraction(0))


def test_a_week_of_nights_is_charged_once_and_every_night_is_verified(tmp_path, monkeypatch):
    walk = Walk(tmp_path, monkeypatch)
    spent, values, runs = [], {}, []
    for night, rows in ((1, people(0, 900)), (2, people(900, 300)), (4, people(1200, 300)), (5, None)):
        told = walk.run(night, rows)
        folder = walk.home.runs / told["run"]
        runs.append(told["run"])
        spent.append(told["ledger"]["spent_rho"])
        values[night] = [r for r in pq.read_table(folder / "release.parquet").to_pylist() if r["table"] == "v"]
        proof = json.loads((folder / "certificate.json").read_text())
        assert proof["counter"]["epochs"] == {"nights": 3, "opening": ["v_count", "v_sum"]}
        assert "epochs of 3 nights" in (folder / "report.html").read_text()
    assert spent[0] == pytest.approx(2, abs=0.01) and len(set(spent)) == 1
    assert values[1] == values[2] and values[4] == values[5] and values[2] != values[4]
    for run in runs:
        done = CliRunner().invoke(
            app, ["--home", str(walk.home.root), "ledger", "verify", run, "--card", str(tmp_path / "card.toml")]
        )
        assert done.exit_code == 0, done.output
        assert "joint loss" in done.output and "the counter" in done.output
    again = walk.run(5)
    assert again["replayed"] and again["run"] == runs[-1]
    planned = plan_job(walk.recipe, walk.home)
    assert planned["counter"]["epochs"] == {"nights": 3, "opening": ["v_count", "v_sum"], "next": "2026-01-07"}
    assert planned["counter"]["charge_rho"] == 0 and planned["counter"]["replays"]
    told = planned["counter"]["standard_deviation"]["q_sum"]
    assert told["tonight"] <= told["worst"]
    assert planned["rho"] == pytest.approx(2, abs=0.01)


@pytest.mark.parametrize("kind", ["tree", "toeplitz"])
@pytest.mark.parametrize("dynamics", ["stationary", "per_step"])
def test_without_noise_a_night_is_one_step_on_the_pooled_log_of_its_epoch(tmp_path, monkeypatch, kind, dynamics):
    walk = Walk(tmp_path, monkeypatch, kind=kind, dynamics=dynamics)
    for night in (1, 2, 4, 5, 6):
        found = walk.append(night, people(1000 * night, 150), Silence())
        plan, card = setting(walk.recipe, walk.home).plan.plan, walk.counter.card
        opened = 1 if night < 4 else 4
        logs = {s.number: pl.concat(map(pl.read_parquet, s.part_files)) for s in snapshots(walk.home.store, card.name)}
        known = dict(zip((1, 2, 4, 5, 6), logs.values(), strict=False))
        release = found.release
        asked = standing_question(plan, release)
        values = add_targets(plan, None, [log for k, log in known.items() if k <= opened]).tables
        gains = add_targets(plan, asked, [log for k, log in known.items() if opened <= k]).tables
        for name, table in {**values, **gains}.items():
            np.testing.assert_array_equal(release.tables[name], table, err_msg=f"{name}, night {night}")
        # the policy of these sums, each without noise
        exact = Terms("r", "one-step")
        baseline = OneStepLearner().plan(card, exact).plan
        answers = [baseline.stages[s].draw(replace_tables(t), Silence()) for s, t in (("v", values), ("q", gains))]
        pooled = learn_step(baseline, exact, baseline.joined(answers, asked))
        tonight = replace(release, mechanisms=baseline.mechanisms, counter=None, joint=None, joint_rho=None)
        np.testing.assert_array_equal(
            learn_step(baseline, exact, tonight).policy.probabilities, pooled.policy.probabilities
        )


def replace_tables(tables):
    from pipeline.statistics.layout import ExactSums

    return ExactSums("walk", "synthetic", "stationary", tables)


def test_whoever_comes_while_no_run_is_made_opens_the_epoch(tmp_path, monkeypatch):
    """The first run is on night 3, the next on night 6: nights 1 and 4 open epochs, and are not empty."""
    walk = Walk(tmp_path, monkeypatch)
    first = walk.append(3, people(0, 300), Silence()).release
    assert first.tables["v_count"].sum() > 300 and first.tables["q_count"].sum() > 300
    later = walk.append(6, people(300, 100), Silence()).release
    assert later.tables["v_count"].sum() > first.tables["v_count"].sum()
    assert 0 < later.tables["q_count"].sum() < first.tables["q_count"].sum()
    empty = walk.append(8, None, Silence()).release
    assert not empty.tables["q_count"].any()
    np.testing.assert_array_equal(empty.tables["v_count"], later.tables["v_count"])


def test_a_person_enters_when_their_episode_has_closed_and_never_twice(tmp_path, monkeypatch):
    walk = Walk(tmp_path, monkeypatch, nights=6, epoch="epoch = 6")
    closed = [(1, 0, 0, "2", 1, "3"), (1, 0, 1, "3", 0, "well")]
    begun = [(2, 0, 0, "2", 1, "3"), (2, 0, 1, "3", 1, "4")]
    ended = [*begun, (2, 0, 2, "4", 0, "ill")]
    last = [(3, 0, t, str(t), 0, str(t + 1)) for t in range(4)]
    counts = [
        int(walk.append(night, rows, Silence()).release.tables["q_count"].sum())
        for night, rows in ((1, [*closed, *begun]), (2, [*closed, *ended]), (3, [*ended, *last]), (4, ended))
    ]
    # two rows of a person count each: W is 3/5 of four steps, rounded up, is three
    assert counts == [2, 5, 8, 8]


DEATHS = {
    "after INTENT": (pipeline.transaction.continual_draw.Night, "count", False, False),
    "between the stages": (one_step, "next_question", True, False),
    "after the draw": (KeptSteps, "write", True, False),
    "before the rename": (pipeline.transaction.transaction, "write_attempt", True, False),
    "before COMMIT": (Ledger, "commit", True, True),
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_night_that_died_is_recovered_or_pays_for_the_rows_it_draws_again(tmp_path, monkeypatch, death):
    owner, name, drew, survives = DEATHS[death]
    walk = Walk(tmp_path, monkeypatch)
    walk.append(2, people(0, 60))
    whole = walk.charged()
    assert whole == setting(walk.recipe, walk.home).plan.plan.cost
    walk.on(4)
    walk.deliver(people(60, 60))
    with monkeypatch.context() as dead, pytest.raises(KilledError):
        dead.setattr(owner, name, dies)
        walk.append(4)
    assert walk.charged() == whole
    again = walk.append(4)
    assert again.replayed == survives
    plan, counter = setting(walk.recipe, walk.home).plan.plan, Epochs(8, 3, "tree")
    part = Fraction(0)
    for summed, time in zip(plan.stages.values(), (counter.openings, counter), strict=True):
        rows = [row for t in (3, 4) for row in time.rows(t)]
        part += summed.rho * Fraction(squared_weights(rows), time.cost)
    assert walk.charged() == whole + (part if drew and not survives else 0)
    assert counters_problem(walk.ledger.entries()) is None
    walk.append(5, people(120, 60))
    assert counters_problem(walk.ledger.entries()) is None


def test_a_first_charge_for_less_than_all_rows_of_a_counter_is_found(tmp_path, monkeypatch):
    """A broken twin lists that a person is in one row, and charges for one; the nights after it look like any other."""
    walk = Walk(tmp_path, monkeypatch)
    walk.run(1, people(0, 300))
    run = walk.run(2, people(300, 50))["run"]
    entries = walk.ledger.entries()
    at = next(i for i, e in enumerate(entries) if e.kind == "INTENT")
    body = json.loads(json.dumps(entries[at].body))
    for m in body["mechanisms"]:
        m["running"]["cost"] = 1
    listed = [mechanism_from(m) for m in body["mechanisms"]]
    body["rho"] = str(step_price(entries, [], body["counter"], listed, body["joint"]))
    assert Fraction(body["rho"]) < walk.charged() * Fraction(6, 10)
    cheap = [*entries[:at], replace(entries[at], body=body), *entries[at + 1 :]]
    assert counters_problem(entries) is None
    assert f"entry {entries[at].seq} lists another cost" in str(counters_problem(cheap))
    assert any(c.ok is False for c in verify_run(walk.home.runs / run, cheap))


def test_another_epoch_value_share_or_cap_is_another_counter(tmp_path, monkeypatch):
    keys = set()
    for i, (epoch, more) in enumerate(
        [
            ("epoch = 3", ""),
            ("epoch = 4", ""),
            ("", ""),
            ("epoch = 3", "[one_step]\ncap = 2\n"),
            ("epoch = 3", "[one_step]\nvalue_share = 0.2\n"),
        ]
    ):
        keys.add(Walk(tmp_path / str(i), monkeypatch, epoch=epoch, more=more).counter.key)
    same = Walk(tmp_path / "same", monkeypatch, more="[one_step]\npessimism = 1.5\n").counter.key
    assert len(keys) == 5 and same in keys


REFUSED = {
    "people who come back": ({"change": [("[unit]", '[unit]\nrecurs = "capped"\nepisodes_per_user = 2')]}, "one leaf"),
    "an epoch that is too long": ({"epoch": "epoch = 9"}, "longer than all 8 nights"),
    "people who evaluate": ({"more": '[evaluate]\npeople = 0.4\ndates = "monthly"\n'}, "measured by nobody"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_nights_of_this_agent_cannot_do_is_refused(tmp_path, monkeypatch, case):
    more, word = REFUSED[case]
    walk = Walk(tmp_path, monkeypatch, **more)
    done = CliRunner().invoke(app, ["--home", str(walk.home.root), "plan", walk.recipe])
    assert isinstance(done.exception, CardError)
    assert word in str(done.exception)


def test_epochs_of_counts_are_refused(tmp_path, monkeypatch):
    walk = Walk(tmp_path, monkeypatch)
    recipe = tmp_path / "walk.toml"
    recipe.write_text(recipe.read_text().replace("dp-one-step", "dp-apvi"))
    done = CliRunner().invoke(app, ["--home", str(walk.home.root), "plan", walk.recipe])
    assert isinstance(done.exception, CardError) and "begins anew" in str(done.exception)


def test_the_forecast_is_of_the_last_night_of_an_epoch(tmp_path, monkeypatch):
    """Of eight nights and 3 000 people, epochs of three: values of nights 1 to 4, gains of nights 4 to 6."""
    asked, sample = [], forecast.sample_people

    def noted(card, mdp, behaviour, episodes, rng):
        asked.append(episodes)
        return sample(card, mdp, behaviour, episodes, rng)

    monkeypatch.setattr(forecast, "sample_people", noted)
    monkeypatch.setattr(foresight, "_rivals", lambda s: ())
    walk = Walk(tmp_path, monkeypatch)
    assert foresee_job(walk.recipe, walk.home)["draws"] == len(asked) / 2
    assert set(asked[::2]) == {1500} and set(asked[1::2]) == {1125}


def test_the_audit_attacks_both_stages_of_a_counter_of_few_nights(tmp_path, monkeypatch):
    walk = Walk(tmp_path, monkeypatch, nights=40, epoch="epoch = 20")
    plan = setting(walk.recipe, walk.home).plan
    targets = plan.targets(OsNoise())
    whole = plan.whole_plan()
    assert [t.mechanism.split(",")[0] for t in targets] == ["values of practice", "gains of actions"]
    assert sum(t.claimed_rho for t in targets) == pytest.approx(2, abs=0.01)
    assert whole is not None and "8 of 40 nights" in whole.stands_for


@pytest.mark.slow
def test_nights_of_real_people_pay_for_their_gate_and_are_verified(tmp_path, monkeypatch):
    real = [
        ('kind = "synthetic"', 'kind = "real"'),
        ("rho = 10.0", 'rho = 10.0\ndelta = 1e-6\nledger = "ledger.db"\n[tolerance]\nunknown_label = 0.1'),
    ]
    walk = Walk(tmp_path, monkeypatch, kind="toeplitz", change=real)
    register_job(str(tmp_path / "card.toml"), walk.home)
    for night, rows in ((1, people(0, 200)), (2, people(200, 100))):
        told = walk.run(night, rows)
        assert 1.99 < told["ledger"]["spent_rho"] <= 2.0
    proof = json.loads((walk.home.runs / told["run"] / "certificate.json").read_text())
    assert "gate" in proof and "epochs" in proof["counter"]
    asked = ["ledger", "verify", told["run"], "--card", str(tmp_path / "card.toml")]
    done = CliRunner().invoke(app, ["--home", str(walk.home.root), *asked])
    assert done.exit_code == 0, done.output
