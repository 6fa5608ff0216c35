"""The rules of docs/card.md once more, as loops over one episode at a time: an independent reference for the tests."""

import math
from collections import defaultdict
from typing import Any

from reticent import Card

Cells = dict[str, str | None]
YES, NO = {"true", "t", "yes", "y", "1", "1.0"}, {"false", "f", "no", "n", "0", "0.0"}


class UnreadableError(Exception):
    """A cell that cannot be read."""


def number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text.strip())
    except ValueError:
        raise UnreadableError from None


def whole(text: str | None) -> int:
    x = number(text)
    if x is None or not math.isfinite(x) or x != int(x):
        raise UnreadableError
    return int(x)


def flag(text: str | None) -> bool:
    if text is not None and text.strip().lower() not in YES | NO:
        raise UnreadableError
    return text is not None and text.strip().lower() in YES


def label(text: str | None, table: dict[str, int]) -> int | None:
    if text is None:
        return None
    if text not in table and text.endswith(".0") and text[:-2].lstrip("-").isdecimal():
        text = text[:-2]
    return table.get(text)


class Row:
    """One row, decoded; ``unreadable`` and ``homeless`` as the rules need them."""

    def __init__(self, cells: Cells, card: Card, used: set[str]) -> None:
        d = card.domain
        self.live = len(d.live_states)
        self.ends = {end: self.live + i for i, end in enumerate(d.states.ends)}
        self.unreadable = self.homeless = False
        self.step = self._read(lambda: whole(cells["step"]))
        if self.step is not None and self.step < 0:
            self.step, self.unreadable = None, True
        self.state = self._state(cells.get("state"), cells.get("bin"), card)
        self.has_next = "next_state" in used and cells["next_state"] is not None
        if d.states.bins is not None and "next_bin" not in used:
            self.has_next = self.has_next and label(cells["next_state"], self.ends) is not None
        self.logged = self._state(cells["next_state"], cells.get("next_bin"), card) if self.has_next else None
        action = label(cells["action"], d.actions.raw_labels())
        self.homeless |= action is None and not d.actions.other
        self.action = len(d.action_labels) - 1 if action is None and d.actions.other else action
        self.terminated = bool(self._read(lambda: flag(cells.get("terminated"))))
        self.truncated = bool(self._read(lambda: flag(cells.get("truncated"))))
        self.reward, self.bad_reward = self._reward(cells["reward"], card)

    def _read(self, read: Any) -> Any:
        try:
            return read()
        except UnreadableError:
            self.unreadable = True
            return None

    def _state(self, text: str | None, value: str | None, card: Card) -> int | None:
        states = card.domain.states
        found = label(text, self.ends)
        if found is None and states.bins is None:
            found = label(text, states.raw_labels())
        elif found is None and states.bins is not None:
            try:
                x = number(value)
            except UnreadableError:
                self.unreadable = True
                return self.live - 1 if states.other else None
            if x is not None and not math.isnan(x):
                found = sum(x >= edge for edge in states.bins.edges)
        if found is None and states.other:
            return self.live - 1
        self.homeless |= found is None
        return found

    @staticmethod
    def _reward(text: str | None, card: Card) -> tuple[float, bool]:
        (low, high), unit = card.reward.range, card.reward.unit
        try:
            x = number(text)
        except UnreadableError:
            return 0.0, True
        if x is None or not math.isfinite(x):
            return 0.0, True
        return low + math.floor((min(max(x, low), high) - low) / unit) * unit, False

    def is_end(self, state: int | None) -> bool:
        return state is not None and state >= self.live


def reference(rows: list[Cells], card: Card, used: set[str]) -> list[tuple[Any, ...]]:
    """(user, episode, step, state, action, reward, next_state, terminated, truncated) of the canonical rows."""
    episodes: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for cells in rows:
        read = {role: cell for role, cell in cells.items() if role in used}
        episodes[str(cells["user"]), int(str(cells["episode"]))].append(Row(read, card, used))
    found = [(*who, *row) for who, group in episodes.items() for row in episode(group, card)]
    return sorted(found, key=lambda row: row[:3])


def episode(group: list[Row], card: Card) -> list[tuple[Any, ...]]:
    d = card.domain
    steps = [row.step for row in group if row.step is not None]
    over = [r.step for r in group if r.step is not None and (r.terminated or r.is_end(r.state) or r.is_end(r.logged))]
    ended = min(over, default=math.inf)
    left = [
        row
        for row in group
        if (row.step is None and not row.is_end(row.state))
        or (row.step is not None and row.step < d.horizon and row.step <= ended and not row.is_end(row.state))
    ]  # fmt: skip
    if any(row.unreadable or row.homeless or row.bad_reward for row in left) or len(set(steps)) < len(steps):
        return []
    if {row.step for row in left} != set(range(len(left))):
        return []
    if not d.states.ends and left:
        short = len(left) < d.horizon or any(row.terminated for row in left if (row.step or 0) < d.horizon - 1)
        if short:
            return []
    at = {row.step: row for row in group}
    return [canonical(row, at.get((row.step or 0) + 1), card) for row in sorted(left, key=lambda r: r.step or 0)]


def canonical(row: Row, after: Row | None, card: Card) -> tuple[Any, ...]:
    following = after.state if after is not None else None
    elsewhere = following is not None and not row.terminated and not row.is_end(row.logged)
    leads = row.logged if row.has_next and not elsewhere else successor(row, following, card)
    return (
        row.step,
        row.state,
        row.action,
        row.reward,
        leads,
        row.terminated or row.is_end(leads),
        row.truncated or leads is None,
    )


def successor(row: Row, following: int | None, card: Card) -> int | None:
    """Rules 2 to 5 of "where a row leads"."""
    d = card.domain
    last = row.step == d.horizon - 1
    ends = d.states.ends
    named = [i for i, name in enumerate(ends) if name.upper() == "END"]
    end = row.live + (named[0] if named else len(ends) - 1) if ends else None
    if d.dynamics == "stationary" and d.horizon > 1 and last and card.source.columns.next_state is None:
        return None
    if row.terminated:
        return following if row.is_end(following) else end
    if following is not None:
        return following
    return end if last and d.dynamics == "per_step" else None
