"""Facts of a snapshot, counted by hand; and a check for hidden state that speaks when it should and only then."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.operator import confounding as hidden
from pipeline.worlds.catalog import load_world
from pipeline.worlds.simulated_logs import sample_log, write_log
from reticent import Card, Store, load_card
from tests.conftest import slow
from tests.logs.conftest import make_card, write_csv

SHELF = Path(__file__).resolve().parents[2] / "datasets"
ROWS = [
    ("u", 1, 0, "x", 0, 0), ("u", 1, 1, "y", 1, 1), ("u", 1, 2, "x", 0, 0.5),
    ("v", 1, 0, "x", 0, 0), ("v", 1, 1, "end", 0, 0),
    ("v", 2, 0, "?", 7, 3),
    ("w", 1, 0, "y", 1, 0.7),
]  # fmt: skip


def facts_of(folder: Path, rows: list[tuple[Any, ...]], **card: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    write_csv(folder, rows)
    return seen(make_card(folder, ["log.csv"], **card))


def seen(card: Card) -> dict[str, Any]:
    """What the operator sees of a log that is ingested beside its card."""
    store = Store(card.folder / "home")
    store.ingest(card)
    return store.inspect(card)


def codes(facts: dict[str, Any]) -> set[str]:
    return {w["code"] for w in facts["warnings"]}


def test_the_facts_are_those_of_the_log(tmp_path):
    f = facts_of(tmp_path, ROWS, unit={"episodes_per_user": 2}, tolerance={"gap": 0.5})
    assert (f["rows"], f["users"], f["episodes"], f["snapshot"], f["source_rows"]) == (6, 3, 4, 1, 7)
    rules = {r["rule"]: (r["rows"], round(r["share"], 4), r["tolerance"]) for r in f["rules"]}
    assert rules["unknown_label"] == (1, 0.1429, None) and rules["gap"] == (0, 0.0, 0.5)
    assert f["steps"]["episodes_by_length"] == [3, 0, 1] and f["steps"]["rows_by_step"] == [4, 1, 1]
    assert (f["steps"]["mean"], f["steps"]["median"], f["steps"]["p90"]) == (1.5, 1, 3)
    assert f["people"]["with_several_episodes"] == 1 and f["people"]["most_episodes_kept"] == 2
    assert f["people"]["counted_over_declared"] == 0.3
    # w's only row and v's second episode lead nobody knows where
    assert f["shares"]["unknown_next_state"] == pytest.approx(2 / 6)
    # u leaves by the horizon and v by its end: one live transition each way besides
    assert f["shares"]["ends"] == {"died": 0.0, "end": 0.5}
    assert f["shares"]["other_state"] == f["shares"]["other_action"] == pytest.approx(1 / 6)
    assert f["reward"] == {
        "lowest": 0.0,
        "highest": 1.0,
        "mean": pytest.approx((1 + 0.5 + 1 + 0.5) / 6),
        "clipped_share": pytest.approx(1 / 6),
        "floored_share": pytest.approx(1 / 6),
    }
    assert [b["top_action"] for b in f["behaviour"]] == ["0", "1", "OTHER"]
    json.dumps(f, allow_nan=False)


def test_coverage_is_that_of_the_cards_tables(tmp_path):
    c = facts_of(tmp_path, ROWS, unit={"episodes_per_user": 2})["coverage"]
    # 3 steps x (x, y, OTHER) x the two declared actions; OTHER is never recommended
    assert (c["pooled"], c["cells"], len(c["table"])) == (False, 18, 9)
    assert c["never_seen"] == 18 - 3 and c["seen_fewer_than_few"] == 3
    first = c["table"][0]
    assert (first["step"], first["state"], first["visits"], first["never_seen"]) == (0, "x", 2, 1)
    pooled = {"dynamics": "stationary", "cell_cap": 1, "vetoes": [["x", "1"]]}
    f = facts_of(tmp_path / "pooled", ROWS, domain=pooled, unit={"episodes_per_user": 2})
    c = f["coverage"]
    # step H - 1 has no successor in a pooled table; the veto takes a cell away
    assert (c["pooled"], c["cells"], [r["visits"] for r in c["table"]]) == (True, 5, [2, 1, 0])
    assert f["noise"][0]["rho"] == 1.0 and f["noise"][1]["rho"] == 0.25
    assert f["noise"][1]["deviation_of_visits"] > 1.9 * f["noise"][0]["deviation_of_visits"]


def steady(users: int, action: Any = lambda u, t: (u + t) % 2) -> list[tuple[Any, ...]]:
    return [(f"u{u}", 1, t, "xy"[(u // 2 + t) % 2], action(u, t), u % 3 / 2) for u in range(users) for t in range(3)]


def test_a_sound_log_gets_no_warning(tmp_path):
    assert not codes(facts_of(tmp_path, steady(4000), unit={"users_public": 4000}))


@pytest.mark.parametrize(
    ("code", "rows", "card"),
    [
        ("thin_support", steady(40), {"unit": {"users_public": 40}}),
        ("nearly_deterministic", steady(4000, lambda u, _: int(u % 100 == 0)), {"unit": {"users_public": 4000}}),
        ("people_declared", steady(4000), {"unit": {"users_public": 5000}}),
        ("delta", steady(4000), {"unit": {"users_public": 4000}, "budget": {"rho": 1.0, "delta": 1e-4}}),
        ("several_episodes", [*steady(4000), ("u0", 2, 0, "x", 0, 0)], {"unit": {"users_public": 4000}}),
        ("constant_state", [(*r[:3], "x", *r[4:]) for r in steady(4000)], {"unit": {"users_public": 4000}}),
        ("constant_reward", [(*r[:5], 1) for r in steady(4000)], {"unit": {"users_public": 4000}}),
        ("wide_range", steady(4000), {"unit": {"users_public": 4000}, "reward": {"range": [0.0, 100.0], "steps": 100}}),
        (
            "changed_rewards",
            [(*r[:5], -30 if r[0] < "u11" else r[5]) for r in steady(4000)],
            {"unit": {"users_public": 4000}},
        ),
    ],
)
def test_each_warning_is_given_where_it_is_due(tmp_path, code, rows, card):
    f = facts_of(tmp_path, rows, **card)
    assert code in codes(f)
    assert all(set(w) == {"code", "what", "means", "do"} for w in f["warnings"])


def test_what_the_cap_dropped_is_counted_in_episodes_and_people(tmp_path):
    rows = [("a", e, 0, "x", 0, 0) for e in range(5)] + [("b", e, 0, "x", 0, 0) for e in range(2)] + [ROWS[-1]]
    f = facts_of(tmp_path, rows)
    assert (f["people"]["episodes_dropped_by_cap"], f["people"]["above_cap"]) == (4 + 1, 2)
    store, card = Store(tmp_path / "home"), make_card(tmp_path, ["log.csv"])
    store.purge(card, quarantine_only=True, yes=True)
    purged = store.inspect(card)
    assert purged["people"]["episodes_dropped_by_cap"] is None


@pytest.fixture(scope="module")
def icu():
    return load_card(SHELF / "icu_sepsis_uniform" / "card.toml")


def logged(icu: Card, behaviour: str, people: int, folder: Path) -> tuple[dict[str, Any], Card]:
    """What is seen of a log of ICU-Sepsis through the card's bins, and the card that lies beside it."""
    world = load_world("icu_sepsis", icu.folder)
    rows = sample_log(world, behaviour, icu.domain.horizon, people, np.random.default_rng(1))
    write_log(world, rows, folder / "data")
    unit = icu.unit.model_copy(update={"users_public": people})
    card = icu.model_copy(deep=True, update={"unit": unit}).placed(folder)
    return seen(card), card


@pytest.mark.slow
def test_a_uniform_log_hides_nothing_and_is_not_warned_of(tmp_path, icu):
    f, _ = logged(icu, "uniform", 20_000, tmp_path)
    tests = f["hidden_state"]["tests"]
    assert f["hidden_state"]["checked"] and {t["kind"] for t in tests} == {"state", "step", "past", "later"}
    assert not any(t["speaks"] for t in tests) and not codes(f)


def test_clinicians_who_saw_more_than_the_bins_are_noticed(tmp_path, icu):
    f, card = logged(icu, "clinician", 3_000, tmp_path)
    assert {t["state"] for t in f["hidden_state"]["tests"] if t["speaks"]} == set(card.domain.live_states)
    assert "hidden_state" in codes(f)


def binned(folder: Path, rows: list[tuple[Any, ...]], **domain: Any) -> dict[str, Any]:
    """The check on (user, episode, step, number, action) under two bins split at 0."""
    write_csv(folder, [(*row, 0) for row in rows], ("user", "episode", "t", "x", "a", "r"))
    states = {"column": "x", "labels": None, "bins": {"by": "x", "edges": [0.0]}, "ends": [], "other": True}
    card = make_card(folder, ["log.csv"], domain={"states": states} | domain, unit={"episodes_per_user": 50})
    return seen(card)["hidden_state"]


def draws(users: int, seed: int) -> tuple[np.random.Generator, list[tuple[int, int]]]:
    return np.random.default_rng(seed), [(u, t) for u in range(users) for t in range(3)]


def test_a_policy_that_changes_with_the_step_is_no_hidden_state(tmp_path, monkeypatch):
    rng, visits = draws(3000, 0)
    # both the number and the action follow the step, neither the other
    rows = [(f"u{u}", 1, t, t + rng.random(), int(rng.random() < 0.2 + 0.3 * t)) for u, t in visits]
    # the first visit of half the people comes late
    rows = [(u, e, t, x if t or int(u[1:]) % 2 else -x - 1, a) for u, e, t, x, a in rows]
    f = binned(tmp_path, rows)
    assert f["checked"] and not any(t["speaks"] for t in f["tests"])
    # the broken twin forgets the step
    verdict = hidden._verdict
    monkeypatch.setattr(hidden, "_verdict", lambda counts, *a: verdict(counts.sum(0, keepdims=True), *a))
    assert any(t["speaks"] for t in binned(tmp_path, rows)["tests"])


@pytest.mark.parametrize("follows", [True, False])
def test_where_steps_are_said_to_be_alike_an_action_that_follows_the_step_is_seen(tmp_path, follows):
    rng, visits = draws(3000, 1)
    rows = [(f"u{u}", 1, t, rng.uniform(-1, 1), int(rng.random() < 0.2 + 0.3 * t * follows)) for u, t in visits]
    f = binned(tmp_path, rows, dynamics="stationary", cell_cap=3)
    assert {t["kind"] for t in f["tests"]} == {"state", "step", "past", "later"}
    assert {t["kind"] for t in f["tests"] if t["speaks"]} == ({"step"} if follows else set())
    if follows:
        loud = [t for t in f["tests"] if t["speaks"]]
        assert {t["state"] for t in loud} == {"x < 0", "x ≥ 0"} and {t["column"] for t in loud} == {"the step"}


@pytest.mark.parametrize("rebound", [0.0, slow(0.3)])
@pytest.mark.parametrize("moves", ["reward", "state"])
def test_an_effect_that_comes_a_row_later_is_seen_in_what_came_of_it(tmp_path, monkeypatch, moves, rebound):
    rng = np.random.default_rng(4)
    before, lines = np.zeros(3000), list[tuple[Any, ...]]()
    state = rng.integers(0, 2, 3000)
    for t in range(3):
        action = rng.integers(0, 2, 3000)
        late = rebound * before
        reward = (rng.random(3000) < 0.6 - (late if moves == "reward" else 0)).astype(int)
        lines += [(f"u{i}", 1, t, "xy"[state[i]], action[i], reward[i]) for i in range(3000)]
        state = (rng.random(3000) < 0.5 + (late if moves == "state" else 0)).astype(int)
        before = action
    f = facts_of(tmp_path, lines, unit={"episodes_per_user": 2})
    loud = {t["column"].partition(", where ")[0] for t in f["hidden_state"]["tests"] if t["speaks"]}
    named = {"reward": "the action before, of the reward", "state": "the action before, of the state after"}
    assert loud == ({named[moves]} if rebound else set())
    assert ("hidden_course" in codes(f)) == bool(rebound)


@pytest.mark.parametrize("again", [0.1, 0.8])
def test_an_action_that_works_once_is_seen_where_it_follows_itself(tmp_path, again):
    """Practice takes it in a tenth of the rows, so that its own rows say nothing beside those of all others."""
    rng, used, lines = np.random.default_rng(5), np.zeros(15_000, bool), list[tuple[Any, ...]]()
    for t in range(3):
        action = rng.random(len(used)) < 0.1
        reward = rng.random(len(used)) < np.where(action, np.where(used, again, 0.8), 0.5)
        lines += [(f"u{u}", 1, t, "x", int(a), int(r)) for u, (a, r) in enumerate(zip(action, reward, strict=True))]
        used |= action
    f = facts_of(tmp_path, lines)
    loud = {t["column"] for t in f["hidden_state"]["tests"] if t["speaks"]}
    assert loud == ({"the action before, of the reward, where 1 followed"} if again < 0.8 else set())


def test_people_with_habits_are_no_hidden_state_however_often_they_come(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    habit, number = rng.integers(0, 2, 250), rng.random(250)
    rows = [(f"u{u}", e, 0, number[u], habit[u]) for u in range(250) for e in range(40)]
    f = binned(tmp_path, rows)
    assert f["checked"] and not any(t["speaks"] for t in f["tests"])
    # the broken twin counts every row as if each were another person's
    monkeypatch.setattr(hidden, "_first_visits", lambda rows: rows)
    assert any(t["speaks"] for t in binned(tmp_path, rows)["tests"])


def test_a_dependence_on_the_number_is_found_in_its_bin_only(tmp_path):
    rng, visits = draws(4000, 5)
    rows = []
    for u, t in visits:
        x = rng.uniform(-1, 1)
        rows.append((f"u{u}", 1, t, x, int(rng.random() < (0.3 + 0.4 * (x > 0.5) if x > 0 else 0.5))))
    f = binned(tmp_path, rows)
    assert {t["state"] for t in f["tests"] if t["speaks"]} == {"x ≥ 0"}
    assert next(t for t in f["tests"] if t["speaks"])["difference"] > 0.15


def test_false_alarms_are_as_rare_as_declared():
    """P-values of independent tables are uniform: few below 5 %, some below 50 %; of one stratum, those of scipy."""
    from scipy.stats import chi2_contingency

    counts = np.random.default_rng(2).integers(20, 60, (1, 3, 4)).astype(float)
    ours, theirs = hidden._verdict(counts, ["a", "b", "c"], 1), chi2_contingency(counts[0], correction=False)
    assert ours["degrees_of_freedom"] == theirs.dof == 6
    assert ours["statistic"] == pytest.approx(theirs.statistic * (counts.sum() - 1) / counts.sum())
    rng = np.random.default_rng(11)
    p = []
    for _ in range(400):
        step, group = rng.integers(0, 3, 900), rng.integers(0, 4, 900)
        action = (rng.random(900) * (step + 2)).astype(int)
        counts = np.zeros((3, 4, 4))
        np.add.at(counts, (step, group, action), 1.0)
        p.append(hidden._verdict(counts, ["a", "b", "c", "d"], 1)["p_value"])
    # 99.9 % intervals of Binomial(400, ·)
    assert 7 <= np.sum(np.array(p) < 0.05) <= 36
    assert 167 <= np.sum(np.array(p) < 0.5) <= 233


def test_without_the_files_it_says_why_nothing_was_checked(tmp_path):
    facts_of(tmp_path, ROWS)
    (tmp_path / "log.csv").unlink()
    f = Store(tmp_path / "home").inspect(make_card(tmp_path, ["log.csv"]))
    gone = f["hidden_state"]
    assert not gone["checked"] and "nothing matches" in gone["why_not"]
    told = {w["code"]: w for w in f["warnings"]}["hidden_state_unchecked"]
    assert "says nothing about confounding" in told["means"] and "nothing matches" in told["what"]


def ward(
    folder: Path, people: int = 3000, *, order: bool = False, past: bool = False, changed: bool = False
) -> dict[str, Any]:
    """Three visits; ``lab`` drives the treatment; ``past``: a hidden trait drives it and the reward.

    ``changed``: what drives it is the half of the year; some dates are open ends, and ``noise`` has zeros and blanks.
    """
    draw, rows = np.random.default_rng(7), list[tuple[Any, ...]]()
    for who in range(people):
        trait = draw.random() < 0.5
        for t in range(3):
            x, lab = draw.uniform(-1, 1), draw.uniform(0, 100)
            chance = 0.2 + 0.6 * (trait if past else lab > 60)
            good = draw.random() < (0.2 + 0.6 * trait if past else 0.5)
            action = int(draw.random() < chance)
            noise = draw.choice(["0", "1", ""] if changed else ["k", "l"])
            month = 1 + who % 12
            on = f"2026-{month:02}-{1 + 3 * t:02}" if order or not changed or month < 12 else "9999-12-31"
            if changed:
                action = int(draw.random() < (0.2 if month < 7 else 0.8))
            rows.append((f"u{who}", on, t, f"{x:.3f}", f"{lab:.1f}", noise, action, int(good)))
    write_csv(folder, rows, ("user", "on", "t", "x", "lab", "noise", "a", "r"))
    states = {"column": "x", "labels": None, "bins": {"by": "x", "edges": [0.0]}, "ends": ["end"], "other": True}
    card = make_card(folder, ["log.csv"], domain={"states": states})
    values = card.model_dump()
    values["source"]["columns"] |= {"user_id": "user", "episode_id": "user", "step": None if order else "t"}
    values["source"] |= {"order_by": "on"} if order else {}
    f = seen(Card.model_validate(values).placed(folder))
    return f | {"told": {w["code"]: w for w in f["warnings"]}}


@pytest.mark.parametrize("order", [slow(False), True])
def test_a_column_that_the_card_leaves_out_and_that_drove_the_treatment_is_named(tmp_path, order):
    f = ward(tmp_path, order=order)
    assert {t["column"] for t in f["hidden_state"]["tests"] if t["speaks"]} == {"lab"}
    assert {"lab", "noise", "x", "the state before", "the reward before"} <= {
        t["column"] for t in f["hidden_state"]["tests"]
    }
    told = f["told"]["hidden_column"]
    assert 'from = ["x", "lab"]' in told["do"] and "markov = 'aggregated'" in told["do"] and "lab" in told["what"]
    assert "hidden_past" not in f["told"]


@pytest.mark.parametrize("order", [False, True])
def test_a_practice_that_changed_within_the_log_shows_in_its_dates(tmp_path, order):
    """It was said that nothing could be tested, where a date was all there is beside the card's columns."""
    f = ward(tmp_path, order=order, changed=True)
    told = f["told"]["hidden_day"]
    assert "depends on the date: on. At on from 2026-" in told["what"] and "same_as" in told["do"]
    assert {t["column"] for t in f["hidden_state"]["tests"] if t["kind"] == "day"} == {"on"}
    assert "hidden_column" not in f["told"]


def test_a_trait_that_no_column_holds_shows_in_the_past(tmp_path):
    f = ward(tmp_path, past=True)
    loud = {t["column"].partition(", where ")[0] for t in f["hidden_state"]["tests"] if t["speaks"]}
    # a trait that lasts moves what comes later, too
    assert loud == {"the reward before", "the action before, of the reward"}
    assert "hidden_past" in f["told"] and "hidden_column" not in f["told"]
