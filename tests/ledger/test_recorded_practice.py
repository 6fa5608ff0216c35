"""Whether a word on practice was registered before the ledger's first answer, read off entries alone."""

from __future__ import annotations

import pytest

from pipeline.ledger.chain import GENESIS, Entry
from pipeline.ledger.looks import recorded_in_time
from pipeline.privacy.release import HELD_OUT

PLAIN, WORD = {}, {"practice": "recorded"}
LOOK, RELEASE = {"joint": {"variant": HELD_OUT}}, {"joint": None}


def ledger(*told: tuple[str, str, dict]) -> list[Entry]:
    return [Entry(n, lineage, kind, "", body, GENESIS, GENESIS) for n, (lineage, kind, body) in enumerate(told, 1)]


SAYS = ("mine", "REGISTER", WORD)
SILENT = ("mine", "REGISTER", PLAIN)
CASES = {
    "nothing answered yet": ([SAYS], True),
    "not said": ([SILENT], False),
    "another lineage says it": ([SILENT, ("other", "REGISTER", WORD)], False),
    "said before the answer": ([SAYS, ("mine", "INTENT", LOOK), ("mine", "COMMIT", {"intent": 2})], True),
    "said after it": (
        [SILENT, ("mine", "INTENT", LOOK), ("mine", "COMMIT", {"intent": 2}), ("mine", "AMEND", WORD)],
        False,
    ),
    "after an answer of another lineage": (
        [("other", "REGISTER", PLAIN), ("other", "INTENT", LOOK), ("other", "COMMIT", {"intent": 2}), SAYS],
        False,
    ),
    "after a release that nobody judged": (
        [SILENT, ("mine", "INTENT", RELEASE), ("mine", "COMMIT", {"intent": 2}), ("mine", "AMEND", WORD)],
        True,
    ),
    # its answer may lie in the store, to be recovered
    "after an attempt that may have drawn": (
        [SILENT, ("mine", "INTENT", LOOK), ("mine", "DRAW", {"intent": 2}), ("mine", "AMEND", WORD)],
        False,
    ),
    "taken back before the answer": (
        [SAYS, ("mine", "AMEND", PLAIN), ("mine", "INTENT", LOOK), ("mine", "COMMIT", {"intent": 3})],
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_word_counts_from_before_the_first_answer(case: str) -> None:
    told, counts = CASES[case]
    assert recorded_in_time(ledger(*told), "mine") == counts
