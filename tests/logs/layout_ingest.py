"""A card of ``docs/card.md``, changed and ingested, and what must come of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.logs.conftest import Edition, canonical, ingest
from tests.logs.layouts import LOG, Told, card_of, cards


def changed(head: str, **parts: dict[str, Any]) -> dict[str, Any]:
    values = cards()[head]
    return {k: v | parts[k] if k in parts else v for k, v in values.items()}


def taken(head: str, folder: Path, **parts: dict[str, Any]) -> Edition:
    return ingest(card_of(changed(head, **parts), folder), folder / "home")


def transitions(snapshot: Edition, *columns: str) -> list[tuple[Any, ...]]:
    """Rows by episode, without the ids; episodes in the order of their rows."""
    wanted = columns or ("state", "action", "reward", "next_state")
    rows = canonical(snapshot)
    return sorted(tuple(e.sort("step").select(wanted).rows()) for e in rows.partition_by("user_id", "episode_id"))


def expected(*, untold: bool = False) -> list[tuple[Any, ...]]:
    def led(told: Told, t: int) -> int:
        return 4 if untold and t == told.steps - 1 else told.states[t + 1] - 1

    rows = [
        tuple((t.states[h] - 1, t.actions[h], t.rewards[h], led(t, h)) for h in range(t.steps))
        for t in LOG
    ]  # fmt: skip
    return sorted(rows)
