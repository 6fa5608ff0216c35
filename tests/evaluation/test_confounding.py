"""What is said of hidden traits: every status, what wins over what, and where a declaration counts."""

from typing import Any

import pytest

from pipeline.facts.verdict import confounding
from tests.reports.verdicts import CHANGES, evaluation

# the strength of a clean evaluation is .31: four times all that an episode can pay
LONG: dict[str, Any] = {
    "horizon": 20,
    "course": True,
    "alike": False,
    "pays": 0.0775,
    "pays_at_the_end": False,
    "recorded": None,
}
RICH = {**LONG, "pays": 0.0776}
SHORT = {**LONG, "horizon": 1, "course": False}
END = {**LONG, "pays_at_the_end": True}
WORD = {**LONG, "recorded": True}
LATE = {**LONG, "recorded": False}
WORSE = CHANGES["worse"] or {}
OPEN = CHANGES["not_told_apart"] or {}
BLIND = {"reach": None, "hidden": None, "past": None}
# what differs from a clean evaluation, what is declared, the status, and a word of why
TABLE: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("clean", {}, LONG, "checked", "at most 0.012"),
    ("a trait that is new at every step may be worth it", {}, RICH, "not_excluded", "would have to be worth 0.32, 4"),
    ("a loss too", WORSE, RICH, "not_excluded", "new at every step"),
    ("a word excludes it", {}, {**RICH, "recorded": True}, "declared", ""),
    ("a lasting one is said first", {"hidden": 0.0512}, RICH, "not_excluded", "up to 0.052"),
    ("a trait may explain all", {"hidden": 0.0512}, LONG, "not_excluded", "up to 0.052"),
    ("nearly all", {"hidden": 0.0511}, LONG, "checked", "at most 0.052"),
    ("the course leans to the gain", {"placebo": 2.1}, LONG, "not_excluded", "leans"),
    ("the course leans away", {"placebo": -2.1}, LONG, "checked", ""),
    ("the past leans to the gain", {"past": 2.1}, LONG, "not_excluded", "leans"),
    ("the past leans away", {"past": -3.9}, LONG, "checked", ""),
    ("leans to the loss", {**WORSE, "past": -2.1}, LONG, "not_excluded", "leans"),
    ("leans away from the loss", {**WORSE, "past": 2.1}, LONG, "checked", ""),
    ("may explain all of the loss", {**WORSE, "hidden": 0.0219}, LONG, "not_excluded", "0.021"),
    ("may not", {**WORSE, "hidden": 0.0218}, LONG, "checked", ""),
    ("no difference to clear", OPEN, LONG, "not_excluded", "holds 0"),
    ("the course shows a trait", {"placebo": -4.1}, LONG, "seen", "4.1 standard errors"),
    ("the past shows a trait", {"past": 4.1}, LONG, "seen", "4.1 standard errors"),
    ("at 4 it is not seen", {"past": -4.0}, LONG, "checked", ""),
    ("rewards at the end", {}, END, "unchecked", "end of an episode"),
    ("the reach is short, so nothing is bounded", {"reach": 0.099, "hidden": None}, LONG, "unchecked", "reach 0.099"),
    ("the reach suffices", {"reach": 0.1}, LONG, "checked", ""),
    (
        "steps alike",
        {},
        {**LONG, "alike": True},
        "checked",
        "a choice, chance or reward that follows",
    ),
    ("steps alike, a word", {}, {**WORD, "alike": True}, "checked", "the card says that steps are alike"),
    ("no reach", BLIND, LONG, "unchecked", "No check"),
    ("no bound", {"hidden": None}, LONG, "unchecked", "No check"),
    ("one step", {**BLIND, "placebo": None}, SHORT, "unchecked", "one step"),
    ("one step, with earlier episodes", {"placebo": None}, SHORT, "checked", ""),
    ("one step, whose reach is short", {"placebo": None, "reach": 0.02}, SHORT, "unchecked", "reach 0.02"),
    ("unchecked wins over a lean", {"placebo": 2.1}, END, "unchecked", ""),
    ("a word", BLIND, WORD, "declared", "the operator declares"),
    ("a word, at the end", {}, {**END, "recorded": True}, "declared", "nothing on the log proves it"),
    ("a word, one step", {**BLIND, "placebo": None}, {**SHORT, "recorded": True}, "declared", ""),
    ("a word, the past not clean", {"past": -2.1}, WORD, "checked", "what was paid before a choice goes with it"),
    ("a word, the course not clean", {"placebo": -2.1}, WORD, "checked", "which does not count"),
    ("a word, the course alone not clean", {**BLIND, "placebo": 2.1}, WORD, "unchecked", "2.1 standard errors"),
    ("a word, the course not asked", {**BLIND, "placebo": None}, WORD, "unchecked", "was not checked"),
    ("seen wins over a word", {"past": 4.1}, WORD, "seen", ""),
    ("seen wins over the end", {"placebo": 4.1}, END, "seen", ""),
    ("a word too late", BLIND, LATE, "unchecked", "after the ledger's first answer"),
    ("too late, and checked anyhow", {}, LATE, "checked", "after the ledger's first answer"),
    ("too late, and not excluded", {"hidden": 0.07}, LATE, "not_excluded", "after the ledger's first answer"),
]


@pytest.mark.parametrize(("changes", "declared", "status", "why"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE])
def test_status_and_why(changes, declared, status, why):
    told = confounding(evaluation(**changes), **declared)
    assert told is not None
    assert told.status == status and why.lower() in told.why.lower(), told
    assert told.why.endswith(".") and told.excluded == (status in ("checked", "declared"))
    assert told.strength == 0.31


def test_nothing_is_said_of_what_nobody_asked_and_of_what_changes_nothing():
    assert confounding(None, **LONG) is None
    assert confounding(evaluation(changes=False, placebo=9.0), **LONG) is None
    unknown = confounding(evaluation(strength=None), **LONG)
    assert unknown is not None and unknown.strength is None and unknown.status == "not_excluded"


def test_one_step_is_alike_without_a_word():
    told = confounding(evaluation(placebo=None, **BLIND), **SHORT | {"alike": True})
    assert told is not None and "steps are alike" not in told.why


@pytest.mark.parametrize(
    ("declared", "condition"),
    [
        (LONG, "outcomes"),
        (WORD, "outcomes"),
        (END, "choices and outcomes"),
        ({**SHORT, "recorded": True}, None),
        ({**SHORT, "recorded": True, "course": True}, "outcomes"),
    ],
)
def test_what_the_state_must_explain(declared, condition):
    told = confounding(evaluation(), **declared)
    assert told is not None and told.condition == condition
    assert ("Effects that come later" in told.why) == declared["course"]
