"""One sentence each for who decides, who approves and who checks: the first screen's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.format import clean, number, percent

Facts = Mapping[str, Any]


def to_decide(facts: Facts) -> str:
    """How the policy stands to practice, and where it says nothing."""
    if facts["dataset"]["dynamics"] == "linear_quadratic":
        return "The gains and what they are worth in the released model; how practice steers is not told by this page."
    silent = percent(facts["policy"]["abstain_share"])
    abstains = f"It abstains in {silent} of the cells." if facts["policy"]["abstain_share"] else "It abstains nowhere."
    told = facts.get("practice")
    if not told or not told["cells"]:
        return f"{abstains} What practice does there is not told by this release."
    agrees = f"{abstains} Practice already agrees with {percent(told['followed_share'])} of it;"
    if told["apart_share"] == 0:
        return f"{agrees} nowhere do the intervals tell the two apart."
    worth = "estimates" if facts["value"]["status"] == "estimate" else "bounds"
    if facts["dataset"]["markov"] == "aggregated":
        worth += ", of the binned process only"
    where = "all" if told["apart_share"] == 1 else percent(told["apart_share"])
    return f"{agrees} in {where} of the cells its interval lies above that of practice ({worth})."


def to_approve(facts: Facts) -> str:
    """Under which model, with which noise, and where the budget stands."""
    promise, ledger = facts["guarantee"], facts.get("ledger")
    if promise["noise"] == "none" or not ledger:
        return "No noise was added and nothing was charged: a baseline on simulated data."
    return (
        f"Trust model {clean(promise['trust_model'])}, relation {clean(promise['relation']).replace('_', ' ')}, "
        f"calibration {clean(promise['calibration'])}; entry {number(ledger['entry'])} of the ledger, "
        f"ρ = {number(ledger['spent_rho'], toward='up')} of {number(ledger['cap_rho'])} spent with it."
    )


def to_check(facts: Facts) -> str:
    """Which algorithm with whose constants, and the command that recomputes the promise."""
    constants = facts["constants"]
    presets = [clean(constants[role]["preset"]) for role in ("policy", "bounds") if constants.get(role)]
    named = presets[0] if len(set(presets)) == 1 else f"{presets[0]} (policy) and {presets[-1]} (interval)"
    return (
        f"{clean(facts['agent'])}, constants: {named}. To recompute the certificate without the data: "
        f"reticent ledger verify {clean(facts['run'])}"
    )
