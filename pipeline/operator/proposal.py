"""A proposed card and recipe: their keys, a reason beside each, and facts of the log, which stand in no file."""

import json
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from pathlib import Path

from pydantic import ValidationError

from pipeline.declaration.card import Card
from pipeline.declaration.toml import CardError, explain
from pipeline.evaluation.coverage import TABULAR, outside
from pipeline.facts.evaluation import GATE, people_needed, share_that_judges
from pipeline.files import whole_file, write_file
from pipeline.statistics import ask, calibration

# the drafted recipe's budget, and the share of the people who teach by it
_RHO, _TEACHING = 0.5, 0.5
CARD, RECIPE = "card.toml", "recipe.toml"
"""Names of a proposal's files."""
FRAME_FILE = "frame.parquet"
"""Name, in a card, of the file of a data frame."""

_HEAD = "# Proposed from the log by `reticent draft`: change what an expert would set, and say so in [provenance]."


@dataclass(frozen=True)
class Key:
    """One key of the proposed card; ``seen``: facts of the log that it was read off."""

    key: str
    value: str
    why: str
    seen: str = ""


@dataclass(frozen=True)
class Draft:
    """A proposed card and recipe; ``paths``: the files of the log, none of a frame."""

    keys: Sequence[Key] = field(repr=False)
    notes: Sequence[str] = ()
    paths: Sequence[Path] = ()

    @property
    def toml(self) -> str:
        """Text of the card."""
        lines = [_HEAD, "schema_version = 2"]
        for table, entries in groupby(self.keys, lambda entry: entry.key.rpartition(".")[0]):
            lines += ["", f"[{table}]"] if table else []
            for entry in entries:
                key = entry.key.rpartition(".")[2]
                lines.append(f"{key} = {entry.value}" + (f"  # {entry.why}" if entry.why else ""))
        return "\n".join(lines) + "\n"

    @property
    def agent(self) -> tuple[str, str]:
        """Agent of the recipe, and why it is that one."""
        card = self._card()
        people = card.unit.users_public
        if calibration.signal_to_noise(card, ask.Ask(rho=_RHO), people * _TEACHING).ratio < 1:
            return "dp-one-step", "for this many states and actions noise would drown counts of successors"
        share = share_that_judges(people, "dp-apvi", _RHO)
        if self._single and share and outside(TABULAR, card, share, Fraction(_RHO) * (1 - GATE)):
            return "dp-one-step", "of one step; no interval of dp-apvi was measured for such states, actions and people"
        return "dp-apvi", "pessimistic planning on private counts"

    @property
    def untested(self) -> str | None:
        """Why no interval of counts was measured for the proposed card and recipe; None if some were."""
        if self.agent[0] != "dp-apvi":
            return None
        card = self._card()
        share = share_that_judges(card.unit.users_public, "dp-apvi", _RHO)
        return outside(TABULAR, card, share, Fraction(_RHO) * (1 - GATE)) if share else None

    @property
    def _single(self) -> bool:
        """Whether an episode has one step."""
        return any((entry.key, entry.value) == ("domain.horizon", "1") for entry in self.keys)

    @property
    def recipe(self) -> str:
        """Text of a recipe for the card, which holds people out if there are enough for an evaluation."""
        values = {entry.key: entry.value for entry in self.keys}
        agent, why = self.agent
        share = share_that_judges(int(values["unit.users_public"]), agent, _RHO)
        least = people_needed(None, agent, _RHO)
        judges = f"# no [evaluate]: at this rho it takes {least:,} people to hold some out"
        if agent == "dp-one-step" and not self._single:
            apart = "of steps that are apart none of its intervals was measured, of steps alike (stationary) some were"
            judges = f"# no [evaluate]: {apart}"
        elif share is not None:
            judges = f"[evaluate]\npeople = {share}  # this share does not choose the policy: it tests it, at no cost"
        return f"""\
# For the card that `reticent draft` proposed: `reticent plan` says what it costs, and reads no row.
[recipe]
name = {values["name"]}
card = {quoted(CARD)}
agent = "{agent}"  # {why}

[privacy]
rho = {_RHO}  # of what [budget] has for the life of this data

{judges}
"""

    def _card(self) -> Card:
        """The proposed card, as the recipe would read it."""
        try:
            return Card.model_validate(tomllib.loads(self.toml), context={"folder": Path()})
        except ValidationError as e:
            raise CardError(explain(e, "draft: the proposed card", Card)) from None

    @property
    def seen(self) -> list[tuple[str, str]]:
        """Raw facts of the log by key, for the operator only."""
        return [(entry.key, entry.seen) for entry in self.keys if entry.seen]

    def save(self, folder: str | Path) -> Path:
        """Write ``card.toml`` and ``recipe.toml`` into a folder; returns the card's path.

        Raises CardError if one of them exists, or the folder does not hold the log's files.
        """
        to = Path(folder)
        check_folder(to, self.paths)
        to.mkdir(parents=True, exist_ok=True)
        beside, below = (f"files = {listed(patterns(self.paths, place))}" for place in (None, to))
        card = self.toml.replace(beside, below, 1)
        for name, text in ((CARD, card), (RECIPE, self.recipe)):
            try:
                with whole_file(to / name, over=False, alone=False) as fresh:
                    write_file(fresh, text)
            except FileExistsError:
                raise CardError(f"{to / name} exists; name another folder, or take it away") from None
        return to / CARD

    def __repr__(self) -> str:
        """Format the card, the facts of the log and the notes."""
        return "\n".join([self.toml, *(f"{key}: {seen}" for key, seen in self.seen), *self.notes])


def check_folder(to: Path, paths: Sequence[Path]) -> None:
    """Raise CardError if a card in this folder could not name the files of the log, or a file would be overwritten."""
    if to.suffix == ".toml":
        raise CardError(f"{to}: name the folder: {CARD} and {RECIPE} are written into it")
    for file in paths:
        if not file.resolve().is_relative_to(to.resolve()):
            raise CardError(
                f"{to}: {file} lies elsewhere, and a card reads files below its own folder alone; give a folder "
                f"above the log, such as --to {shlex.quote(str(file.parent))}"
            )
    for name in (CARD, RECIPE):
        if (to / name).exists():
            raise CardError(f"{to / name} exists; name another folder, or take it away")


NAMED = 8
"""More files than that are named by a pattern: their names may be those of people."""


def patterns(paths: Sequence[Path], folder: Path | None = None) -> list[str]:
    """Names or a pattern of files in a card that lies in a folder; None: in their own."""
    if not paths:
        return [FRAME_FILE]
    folders = [Path() if folder is None else path.resolve().parent.relative_to(folder.resolve()) for path in paths]
    first = paths[0]
    if len(paths) > NAMED and {p.resolve() for p in paths} == {
        p.resolve() for p in first.parent.glob(f"*{first.suffix}")
    }:
        return [str(folders[0] / f"*{first.suffix}")]
    return [str(parent / path.name) for parent, path in zip(folders, paths, strict=True)]


def quoted(value: str) -> str:
    """Format a TOML string."""
    return json.dumps(value, ensure_ascii=False)


def listed(values: Sequence[object]) -> str:
    """Format a TOML array."""
    return json.dumps(list(values), ensure_ascii=False)
