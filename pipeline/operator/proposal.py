"""A proposed card: its keys with a reason beside each, and what was seen, which no file holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.declaration.toml import CardError
from pipeline.files import whole_file, write_file

_HEAD = "# Proposed from the log by `reticent draft`: change what an expert would set, and say so in [provenance]."


@dataclass(frozen=True)
class Said:
    """One key of the proposal.

    Parameters
    ----------
    key
        As the card has it, with its table.
    value
        As TOML.
    why
        What stands beside it in the card: no counts.
    seen
        What the operator is told: counts too.
    """

    key: str
    value: str
    why: str
    seen: str = ""


@dataclass(frozen=True)
class Draft:
    """A proposed card.

    Parameters
    ----------
    said
        Its keys, in order.
    notes
        What the operator should look at before anything else.
    """

    said: Sequence[Said] = field(repr=False)
    notes: Sequence[str] = ()

    @property
    def toml(self) -> str:
        """The card's text."""
        lines = [_HEAD, "schema_version = 2"]
        table = ""
        for one in self.said:
            head, _, key = one.key.rpartition(".")
            if head != table:
                lines += ["", f"[{head}]"]
                table = head
            lines.append(f"{key} = {one.value}" + (f"  # {one.why}" if one.why else ""))
        return "\n".join(lines) + "\n"

    @property
    def seen(self) -> list[tuple[str, str]]:
        """What was seen in the log, by key: raw facts, for the operator's eyes only."""
        return [(one.key, one.seen) for one in self.said if one.seen]

    def save(self, path: str | Path) -> Path:
        """Write the card.

        Parameters
        ----------
        path
            Of a file that is not there yet.

        Raises
        ------
        CardError
            If it is.
        """
        try:
            with whole_file(Path(path), over=False, alone=False) as fresh:
                write_file(fresh, self.toml)
        except FileExistsError:
            raise CardError(f"{path} exists; name another file, or take it away") from None
        return Path(path)

    def __repr__(self) -> str:
        """The card, and what was seen."""
        return "\n".join([self.toml, *(f"{key}: {seen}" for key, seen in self.seen), *self.notes])
