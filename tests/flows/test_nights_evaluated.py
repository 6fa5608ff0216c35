"""A counter whose policy other people evaluate on declared dates: who is asked, what it costs, what is published."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.config.setting import setting
from flows.jobs.nights import nightly_counter
from flows.jobs.pricing import plan_recipe
from flows.jobs.run import register_job
from flows.jobs.snapshots import purge_job
from pipeline.declaration.card import CardError
from pipeline.ledger import steps as book_steps
from pipeline.ledger.attempts import may_have_drawn
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.step_checks import counters_problem
from pipeline.logs.parts import evaluates, part_key
from pipeline.privacy.continual import continual
from pipeline.privacy.factorisation import squared_weights
from pipeline.privacy.fast_noise import TV_BOUND, FastOsNoise
from pipeline.privacy.release_file import describe_mechanism
from pipeline.transaction import continual_draw, continual_release
from pipeline.transaction import transaction as machine
from tests.flows.nights import FIRST, Shop, customers

EVERY_OTHER = "[evaluate]\npeople = 0.3\ndates = [2026-01-02, 2026-01-04]\n"


@pytest.fixture
def shop(tmp_path, monkeypatch) -> Shop:
    return Shop(tmp_path, monkeypatch, kind="synthetic", cap=12.0, evaluate=EVERY_OTHER, public=3000)


def intents(shop: Shop) -> list:
    return [e for e in shop.ledger.entries() if e.kind == "INTENT"]


def told(shop: Shop, run: str, file: str = "report.json") -> dict:
    return json.loads((shop.home.runs / run / file).read_text())


def test_people_evaluate_on_their_dates_each_once_and_are_in_no_leaf(shop):
    runs = [shop.night(n, customers(1000 * (n - 1), 1000, seed=n))["run"] for n in (1, 2, 3, 4)]
    found = [told(shop, run).get("evaluation") for run in runs]
    assert [e is not None for e in found] == [False, True, False, True]
    # those of two nights, who came since they were last asked
    assert all(abs(e["people"] - 600) < 150 for e in found if e)
    assert [e["look"] for e in found if e] == [1, 2] and found[3]["level"] > found[1]["level"]
    assert not any(e["calibrated"] for e in found if e)
    answers = [told(shop, run)["verdict"]["answer"] for run in runs]
    assert answers[0] == answers[2] == "not_evaluated" and answers[3] == "better"
    leaves = told(shop, runs[3])["counter"]
    assert leaves["share"] == "3/10"
    for run in runs:
        assert told(shop, run, "certificate.json")["rho_exact"]


def test_one_charge_pays_for_the_counter_and_every_evaluation(shop):
    register_job(str(shop.folder), shop.home)
    for n in (1, 2, 3, 4):
        shop.append(n, customers(1000 * (n - 1), 1000, seed=n))
    paid = [Fraction(e.body["rho"]) for e in intents(shop)]
    joints = [e.body["joint"] for e in intents(shop) if "joint" in e.body]
    assert len(joints) == 2 and joints[0] == joints[1]
    learn, evaluate = (
        (Fraction(j["rho_exact"]), Fraction(j["rho_add_remove"])) for j in (joints[0]["learn"], joints[0]["evaluate"])
    )
    whole = max(learn[0], evaluate[0], learn[1] + evaluate[1], 2 * evaluate[1])
    assert paid[0] == learn[0] and paid[2] == 0
    assert paid[1] == paid[3] == whole - learn[0] < Fraction(1, 1000)
    assert counters_problem(shop.ledger.entries()) is None


class Killed(BaseException):
    """As kill -9 does."""


def is_killed(*_args: object, **_kwargs: object) -> None:
    raise Killed


def test_an_attempt_that_died_before_it_drew_pays_for_no_evaluation(tmp_path, monkeypatch):
    """Its charge was for the counter; the evaluation's part was once waived against it."""
    once = "[evaluate]\npeople = 0.3\ndates = [2026-01-02]\n"
    shop = Shop(tmp_path, monkeypatch, kind="synthetic", cap=30.0, evaluate=once, public=3000)
    shop.recipe = shop.write("night", f'nights = 8\nfirst = "{FIRST}"\ncounter = "tree"', 3.0)
    register_job(str(shop.folder), shop.home)
    shop.deliver(customers(0, 500))
    with monkeypatch.context() as dead, pytest.raises(Killed):
        dead.setattr(continual_draw.Night, "count", is_killed)
        shop.append(1)
    for n in (2, 3, 4):
        shop.append(n)
    joint = next(e.body["joint"] for e in intents(shop) if "joint" in e.body)
    assert sum(Fraction(e.body["rho"]) for e in intents(shop)) >= Fraction(joint["rho_exact"])
    assert counters_problem(shop.ledger.entries()) is None


@pytest.mark.parametrize("then", ["the next run", "a purge"])
def test_rows_of_those_who_evaluate_do_not_outlive_a_killed_night(shop, monkeypatch, then):
    register_job(str(shop.folder), shop.home)
    shop.append(1, customers(0, 500))
    shop.deliver(customers(500, 500))
    with monkeypatch.context() as dead, pytest.raises(Killed):
        dead.setattr(Ledger, "commit", is_killed)
        dead.setattr(continual_draw.Night, "__exit__", lambda *_: None)
        shop.append(2)
    assert list(shop.kept.glob("evaluate/*"))
    if then == "a purge":
        purge_job(str(shop.folder / "card.toml"), shop.home, yes=True)
    else:
        shop.append(2)
    assert not list(shop.kept.glob("evaluate/*"))


def verify(shop: Shop, run: str) -> list[str]:
    done = CliRunner().invoke(app, ["--home", str(shop.home.root), "ledger", "verify", run])
    return [] if done.exit_code == 0 else done.output.splitlines()


def test_an_evaluated_night_verifies_and_replays(shop):
    runs = [shop.night(n, customers(1000 * (n - 1), 1000, seed=n))["run"] for n in (1, 2)]
    assert [verify(shop, run) for run in runs] == [[], []]
    entries, files = len(shop.ledger.entries()), {p.name: p.read_bytes() for p in (shop.home.runs / runs[1]).iterdir()}
    again = shop.night(2)
    assert again["replayed"] and again["run"] == runs[1] and len(shop.ledger.entries()) == entries
    assert files == {p.name: p.read_bytes() for p in (shop.home.runs / runs[1]).iterdir()}
    assert not list(shop.kept.glob("evaluate*")), "their rows leave with the night"


def test_a_missed_date_is_made_up_for_by_the_next_night_whatever_arrived(shop):
    shop.night(1, customers(0, 1000))
    late = told(shop, shop.night(3, customers(1000, 1000))["run"])
    assert late["evaluation"]["look"] == 1 and late["counter"]["since"] == 2
    # nobody new came: the evaluation of the date happens all the same
    empty = told(shop, shop.night(5)["run"])
    assert empty["evaluation"]["look"] == 2 and empty["evaluation"]["people"] < 100
    assert empty["verdict"]["answer"] in ("not_told_apart", "withheld")


def test_who_evaluated_or_was_counted_is_never_read_again(shop):
    register_job(str(shop.folder), shop.home)
    log = customers(0, 900)
    shop.append(1, log)
    first = shop.append(2, log).curated.release.tables["b_people"]
    # the same people again, with other rows
    fourth = shop.append(4, customers(0, 900, seed=9)).curated.release.tables["b_people"]
    key = part_key(bytes.fromhex((shop.home.root / "ledger.db.people-key").read_text()), "shop")
    there = sum(evaluates([f"c{u}" for u in range(900)], Fraction(3, 10), key))
    assert abs(int(first[0]) - there) < 50 and abs(int(fourth[0])) < 50
    kept = [np.load(p) for p in shop.kept.glob("seen-*.npy")]
    assert sum(map(len, kept)) == 900 == len(np.unique(np.concatenate(kept), axis=0))


def test_the_plan_prices_the_whole_life(shop):
    def asked(night: int):
        shop.on(night)
        return plan_recipe(shop.recipe, shop.home).counter

    register_job(str(shop.folder), shop.home)
    before = asked(1)
    e = before.evaluations
    assert (e.share, e.dates, e.drawn, e.tonight, e.next) == (0.3, 2, 0, False, "2026-01-02")
    for n in (1, 2, 3, 4):
        assert asked(n).evaluations.tonight == (n in (2, 4))
        shop.append(n, customers(500 * (n - 1), 500, seed=n))
    paid = sum((Fraction(i.body["rho"]) for i in intents(shop)), Fraction(0))
    assert float(paid) == pytest.approx(e.life_rho, rel=1e-12) and asked(5).evaluations.drawn == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[evaluate]\npeople = 0.3\n", "on which dates"),
        ('[evaluate]\ndates = "monthly"\n', "held out of a"),
        ('[evaluate]\npeople = 0.1\ndates = "weekly"\n', "fewer than 500"),
        ('[evaluate]\npeople = 1.0\ndates = "weekly"\n', "less than 1"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_with_the_reason(tmp_path, monkeypatch, text, words):
    shop = Shop(tmp_path, monkeypatch, kind="synthetic", evaluate=text, public=3000)
    with pytest.raises(CardError, match=words):
        nightly_counter(setting(shop.recipe, shop.home))


def test_people_who_come_back_do_not_evaluate(tmp_path, monkeypatch):
    capped = 'episodes_per_user = 2\nrecurs = "capped"'
    shop = Shop(tmp_path, monkeypatch, kind="synthetic", evaluate=EVERY_OTHER, public=3000, unit=capped)
    with pytest.raises(CardError, match="would evaluate twice"):
        nightly_counter(setting(shop.recipe, shop.home))


def test_another_share_is_another_counter_and_no_share_is_the_old_one(tmp_path, monkeypatch):
    keys = []
    for i, text in enumerate(("", EVERY_OTHER, EVERY_OTHER.replace("0.3", "0.4"), EVERY_OTHER.replace("-04", "-06"))):
        shop = Shop(tmp_path / str(i), monkeypatch, kind="synthetic", evaluate=text, public=3000)
        keys.append(nightly_counter(setting(shop.recipe, shop.home)).key)
    assert len(set(keys)) == 3 and keys[1] == keys[3], "dates are no part of the counter"


def test_a_rule_waits_for_a_night_that_is_evaluated(tmp_path, monkeypatch):
    rule = EVERY_OTHER + '[promote]\nstatus = "modelled"\n'
    shop = Shop(tmp_path, monkeypatch, kind="synthetic", cap=12.0, evaluate=rule, public=3000)
    first = shop.job(1, customers(0, 500))["promotion"]
    assert not first["promoted"] and "none of the dates" in first["held"][0]
    second = shop.job(2, customers(500, 500))["promotion"]
    assert not any("none of the dates" in why for why in second["held"])


def test_a_lost_evaluation_is_paid_for_when_its_people_are_asked_again(shop, monkeypatch):
    register_job(str(shop.folder), shop.home)
    shop.append(1, customers(0, 500))
    shop.deliver(customers(500, 500))
    with monkeypatch.context() as dead, pytest.raises(KeyboardInterrupt):
        dead.setattr(machine, "write_attempt", dies)
        shop.append(2)
    # the next night is none of the dates, but that of the second is still due
    shop.append(3)
    joint = intents(shop)[-1].body["joint"]
    counter = continual("tree", 8)
    rows = squared_weights([row for t in (2,) for row in counter.rows(t)])
    again = Fraction(intents(shop)[0].body["rho"]) * Fraction(rows, counter.cost) + Fraction(
        joint["evaluate"]["rho_exact"]
    )
    assert Fraction(intents(shop)[-1].body["rho"]) >= again
    assert counters_problem(shop.ledger.entries()) is None


def test_a_date_that_is_asked_again_lists_its_share_of_delta_again(shop, monkeypatch):
    """What died is on no page; over all that may have drawn, the ledger lists no less than they did."""
    monkeypatch.setattr(FastOsNoise, "tv_bound", lambda self, variance: TV_BOUND)
    recipe = Path(shop.recipe)
    recipe.write_text(recipe.read_text().replace("[privacy]\n", '[privacy]\nsampler = "table"\n'))
    register_job(str(shop.folder), shop.home)
    shop.append(1, customers(0, 500))
    shop.deliver(customers(500, 500))
    with monkeypatch.context() as dead, pytest.raises(KeyboardInterrupt):
        dead.setattr(machine, "write_attempt", dies)
        shop.append(2)
    shop.append(2)
    one = setting(shop.recipe, shop.home).plan.evaluation.sums
    asked = [e for e in intents(shop) if "joint" in e.body and may_have_drawn(shop.ledger.entries(), e)]
    assert [e.body["counter"]["night"] for e in asked] == [2, 2]
    for m in (m for s in one.values() for m in s.mechanisms):
        listed = [Fraction(d["delta_slack"]) for e in asked for d in e.body["mechanisms"] if d["table"] == m.table]
        # each INTENT those of both dates
        assert listed == 2 * [2 * m.delta_slack] and m.delta_slack > 0


def dies(*_):
    raise KeyboardInterrupt


def test_a_ledger_that_asks_lost_people_again_for_nothing_is_found(shop, monkeypatch):
    """A broken twin: it prices an evaluation as if nobody had been asked before."""
    register_job(str(shop.folder), shop.home)
    shop.append(1, customers(0, 500))
    shop.deliver(customers(500, 500))
    with monkeypatch.context() as dead, pytest.raises(KeyboardInterrupt):
        dead.setattr(machine, "write_attempt", dies)
        shop.append(2)
    real = book_steps.step_price

    def cheap(entries, before, counter, mechanisms, joint=None):
        asked_before = any("joint" in e.body for e in before)
        of_people = Fraction(joint["evaluate"]["rho_exact"]) if joint and asked_before else Fraction(0)
        return real(entries, before, counter, mechanisms, joint) - of_people

    with monkeypatch.context() as twin:
        twin.setattr(continual_release, "step_price", cheap)
        shop.append(3)
    assert "without paying" in counters_problem(shop.ledger.entries())


def test_delta_counts_the_fast_sampler_on_every_date_that_is_declared(shop, monkeypatch):
    """One night's certificate speaks for the whole counter, and on each date other people are answered with noise."""
    # sums of scores have wide noise, which no table holds: here they are said to be drawn a little off
    monkeypatch.setattr(FastOsNoise, "tv_bound", lambda self, variance: TV_BOUND)
    recipe = Path(shop.recipe)
    recipe.write_text(recipe.read_text().replace("[privacy]\n", '[privacy]\nsampler = "table"\n'))
    one = setting(shop.recipe, shop.home).plan.evaluation.sums
    each = {m.table: m.delta_slack for s in one.values() for m in s.mechanisms}
    runs = [shop.night(n, customers(1000 * (n - 1), 1000, seed=n))["run"] for n in (1, 2)]
    planned = nightly_counter(setting(shop.recipe, shop.home)).listed(2, setting(shop.recipe, shop.home).plan)
    charged = next(e.body["mechanisms"] for e in intents(shop) if "joint" in e.body)
    certified = told(shop, runs[1], "certificate.json")["mechanisms"]
    assert all(slack > 0 for slack in each.values())
    for listed in (charged, certified, [describe_mechanism(m) for m in planned]):
        said = {m["table"]: Fraction(m["delta_slack"]) for m in listed}
        assert {name: said[name] for name in each} == {name: 2 * slack for name, slack in each.items()}
    assert [verify(shop, run) for run in runs] == [[], []]
    assert shop.night(2)["replayed"]
