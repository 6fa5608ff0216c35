"""What a certificate and a report say of a night of a counter."""

from __future__ import annotations

from typing import Any

from pipeline.declaration.card import AnyCard
from pipeline.privacy.release import Release


def counted_once(card: AnyCard) -> list[str]:
    """Who counts on which night, and what the operator decides, as assumptions of the certificate."""
    m = card.unit.episodes_per_user
    counted = (
        "a person counts on the first night that brings rows of theirs; what comes later, corrections included, is "
        "dropped by a keyed hash on the operator's side"
        if card.unit.recurs == "never"
        else f"a person counts with at most {m} episodes over all nights, each as it was first delivered, by keyed "
        "hashes on the operator's side"
    )
    return [
        counted,
        "when the counter began, on which dates it ran, and whether a night's files could be read at all (format, "
        "columns, an id in every row, text that is UTF-8) is the operator's doing and public",
    ]


def counter_facts(release: Release) -> dict[str, Any]:
    """Which counter, which night of it, and how noisy tonight's sums are; ``release.counter`` is not None."""
    told = dict(release.counter or {})
    return told | {
        "standard_deviation": {m.table: m.standard_deviation for m in release.mechanisms},
        # variance beside one release of tonight's sum at the same budget
        "times_one_release": told["cost"] * told["error"],
    }


COUNTER_COMPOSITION = (
    "zCDP: the counter was charged once, for every row that all its nights release; rhos of tables add, and a row that "
    "a died attempt may have drawn was charged again when it was drawn again"
)
