"""The first screen of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures import known_truth, trivial_lower
from reports.format import clean, interval, loss, number, percent
from reports.page import Opening, Tile

Facts = Mapping[str, Any]
_LEFT = "Budget left"


def opening(facts: Facts) -> Opening:
    """What was learnt, for whom, under which promise, how good it is, and what budget is left."""
    guarantee = facts["guarantee"]
    return Opening(
        title=f"A decision policy for {clean(facts['dataset']['name'])}",
        learnt=_learnt(facts),
        guarantee=clean(guarantee["sentence"]),
        tiles=(_value(facts), loss_tile(guarantee), budget_tile(facts), unit_tile(facts)),
        banner=banner(guarantee),
        claim=f"Claim made for the people in this log: {clean(guarantee['claim'])}." if guarantee.get("claim") else "",
    )


def banner(guarantee: Facts) -> str:
    """The warning of a run whose noise protects nobody, else nothing."""
    if guarantee["noise"] == "os":
        return ""
    source = {"seeded": "its noise can be computed from a seed", "none": "no noise was added"}.get(
        guarantee["noise"], f"its noise source was {clean(guarantee['noise'])}"
    )
    return f"simulation, not private: {source}, so this run protects nobody. Never share it as if it did."


def _learnt(facts: Facts) -> str:
    data, share = facts["dataset"], facts["policy"]["abstain_share"]
    log = "a synthetic log" if data["kind"] == "synthetic" else "a log"
    silent = (
        f"In {percent(share)} of these cases it abstains: not enough evidence, keep current practice."
        if share
        else "It abstains nowhere."
    )
    return (
        f"Which of {number(len(data['actions']))} actions to take in each of {number(len(data['live_states']))} states "
        f"at {_steps(int(data['horizon']))}, learnt by {clean(facts['agent'])} from {log} of "
        f"{number(data['users_public'])} people (declared). {silent}"
    )


def _steps(horizon: int) -> str:
    return "the one step of an episode" if horizon == 1 else f"each of {number(horizon)} steps"


def unit_tile(facts: Facts) -> Tile:
    """Who is protected."""
    guarantee = facts["guarantee"]
    return Tile("Who is protected", f"One {clean(facts['dataset']['user'])}", (clean(guarantee["unit"]),))


def loss_tile(guarantee: Facts) -> Tile:
    """What was spent on them."""
    if guarantee.get("pure") or guarantee.get("rho") is None:
        return Tile("Privacy loss", loss(guarantee))
    notes = (loss({**guarantee, "rho": None}),) if guarantee.get("epsilon") is not None else ()
    return Tile("Privacy loss", f"ρ = {number(guarantee['rho'], toward='up')}", notes)


def _value(facts: Facts) -> Tile:
    value = facts["value"]
    notes = ["an estimate, not a guarantee" if value["status"] == "estimate" else "a bound"]
    if (
        value.get("upper") is not None
        and value["lower"] <= trivial_lower(facts)
        and value["upper"] >= value["upper_trivial"]
    ):
        notes.append("empty: it holds every possible value, so this run says nothing about it")
    if facts["dataset"]["markov"] == "aggregated":
        notes.append("concerns the binned process only")
    uniform = (facts.get("model_baselines") or {}).get("uniform")
    if uniform and value.get("upper") is not None and value["lower"] <= uniform["upper"]:
        notes.append("overlaps that of choosing at random: not told apart by these intervals")
    notes.append(f"possible: {number(trivial_lower(facts))} to {number(value['upper_trivial'])}")
    return Tile("Value of an episode", interval(value, 3), (*notes, *truth_note(facts)))


def truth_note(facts: Facts) -> tuple[str, ...]:
    """The true values of a synthetic world in one line."""
    truth = known_truth(facts)
    names = {"v_policy": "this policy", "v_behavior": "the log's", "v_star": "best"}
    told = [f"{name} {number(truth[key], 3)}" for key, name in names.items() if truth.get(key) is not None]
    return (f"in the true, synthetic world: {', '.join(told)}",) if told else ()


def budget_tile(facts: Facts) -> Tile:
    """What is left."""
    ledger = facts.get("ledger")
    if not ledger:
        return Tile(_LEFT, "Not charged", ("no ledger entry: nothing private was released",))
    return Tile(
        _LEFT,
        f"ρ = {number(ledger['remaining_rho'], toward='down')}",
        (f"after this run, of {number(ledger['cap_rho'])} for the life of {clean(ledger['dataset'])}",),
    )
