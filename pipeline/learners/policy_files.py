"""A policy in a run's folder: ``policy.json`` gives the meaning of the numbers in its Parquet files.

As it is shown, a table of decisions is a plain object a cell for programs, runs of equal steps for people.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import Array, Bools, Integers
from pipeline.declaration.card import CardError
from pipeline.facts.learnt import PolicyView
from pipeline.files import json_text, write_file
from pipeline.ledger.chain import Body
from pipeline.mdp.policy import Policy
from pipeline.privacy.release import Release

if TYPE_CHECKING:
    from pipeline.facts.report import Report

# a spreadsheet may evaluate a cell that begins so, or a part of it behind a character that it takes for a separator
_FORMULA = r"[=+\-@\uFF1D\uFE66\uFF0B\uFE62\uFF0D\uFE63\uFF20\uFE6B]"
_BLANK = r"[\s'\x00-\x1f\u00ad\u200b-\u200f\u2060\ufeff]*"
_START = rf"(?={_BLANK}{_FORMULA}|'*[\t\r\n])"
_INSIDE = rf"(?<=[,;|\t\r\n\"])(?={_BLANK}{_FORMULA})"
_ESCAPE = re.compile(rf"\A{_START}|{_INSIDE}")
_UNESCAPE = re.compile(rf"\A'{_START}|(?<=[,;|\t\r\n\"])'(?={_BLANK}{_FORMULA})")
ABOUT = ("run", "policy_sha256", "guarantee")


@dataclass(frozen=True)
class PolicyFiles:
    """The content of a policy's files, written once; pages are drawn from the values, never from the files.

    ``tables``: stem of each Parquet file -> its columns ``(rows,)``.
    """

    labels: Body
    tables: Mapping[str, Mapping[str, NDArray[Any]]]

    @property
    def digest(self) -> str:
        """Sha256 of all columns: the policy itself, whatever wrote the files."""
        values = {stem: {name: x.tolist() for name, x in columns.items()} for stem, columns in self.tables.items()}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> tuple[str, ...]:
        """Write all files.

        Returns the stems of the Parquet files, whose digests the certificate lists.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        for stem, columns in self.tables.items():
            out = io.BytesIO()
            pq.write_table(pa.table(dict(columns)), out, compression="zstd")
            write_file(folder / f"{stem}.parquet", out.getvalue())
        write_file(folder / "policy.json", json_text(self.labels))
        return tuple(self.tables)


@dataclass(frozen=True)
class Exported:
    """The run of an exported policy.

    ``play``: the people who meet it, as in ``policy.json``; None: all.
    """

    run: str
    guarantee: str
    sha256: str
    play: Body | None = None

    @property
    def head(self) -> dict[str, object]:
        """The keys with which an exported JSON object begins."""
        play = {} if self.play is None else {"play": self.play}
        return {"schema_version": 1, **dict(zip(ABOUT, (self.run, self.sha256, self.guarantee), strict=True)), **play}

    def csv(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
        """RFC 4180 with a header, each row followed by its run."""
        about = [escape(x) for x in (self.run, self.sha256, self.guarantee)]
        out = io.StringIO(newline="")
        writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
        writer.writerow([*columns, *ABOUT])
        writer.writerows((*row, *about) for row in rows)
        return out.getvalue()

    def json(self, content: Mapping[str, object]) -> str:
        """One object: the run of the policy, then its content."""
        return json.dumps({**self.head, **content}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def refuse_records(wrong: Bools, what: str, hint: str) -> None:
    """Refuse records that have no answer, by number.

    ``wrong``: ``(N,)``.
    Raises CardError if one is.
    """
    if wrong.any():
        numbers = (np.flatnonzero(wrong)[:5] + 1).tolist()
        more = f" and {int(wrong.sum()) - 5} more" if wrong.sum() > 5 else ""
        where = "" if len(wrong) == 1 else f"record {', '.join(map(str, numbers))}{more}: "
        raise CardError(f"{where}{what}; {hint}")


def refuse_steps(steps: Integers, last: int) -> None:
    """Refuse steps outside 0 … ``last``; see :func:`refuse_records`."""
    refuse_records((steps < 0) | (steps > last), "no step of the policy", f"steps count from 0 to {last}")


def refuse_observations(observations: Array, names: Sequence[str]) -> None:
    """Refuse rows that are not p finite numbers, one a name; see :func:`refuse_records`."""
    if observations.ndim != 2 or observations.shape[1] != len(names):
        raise CardError(f"an observation has {len(names)} numbers; give {', '.join(names)}")
    missing = np.asarray(~np.isfinite(observations).all(axis=1))
    refuse_records(missing, "not a finite observation", f"give {', '.join(names)}")


class StoredPolicy(Protocol):
    """A policy with labels, read back from a run's folder: shown, exported, or looked up for one decision."""

    @property
    def of(self) -> Exported:
        """The run of the policy."""
        ...

    def shown(self) -> tuple[Sequence[Mapping[str, object]], list[str]]:
        """One plain object a row, and the same as lines of text."""
        ...

    def as_csv(self) -> str:
        """Texts escaped so that no spreadsheet evaluates a cell."""
        ...

    def as_json(self) -> str:
        """One JSON object with the exact names."""
        ...


@dataclass(frozen=True)
class Codec:
    """Readers of the files of one kind of policy."""

    stems: tuple[str, ...]
    view: Callable[[PolicyFiles, Report, Callable[[], Release]], PolicyView]
    stored: Callable[[PolicyFiles, Body, Exported], StoredPolicy]


def read_policy_files(folder: Path, codec_of: Callable[[str | None], Codec]) -> tuple[PolicyFiles, Codec]:
    """The policy's files, and their codec.

    Raises OSError, ValueError, KeyError if a file is missing or damaged.
    """
    import pyarrow.parquet as pq

    labels = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    codec = codec_of(labels.get("kind"))
    read = {stem: pq.read_table(folder / f"{stem}.parquet") for stem in codec.stems}
    tables = {stem: {c: t[c].to_numpy() for c in t.column_names} for stem, t in read.items()}
    return PolicyFiles(labels, tables), codec


def columns_by_step(values: Array) -> dict[str, NDArray[Any]]:
    """``step, index, weight``: the numbers of each step in a row.

    ``values``: ``(H, size)``.
    """
    H, size = values.shape
    return {
        "step": np.repeat(np.arange(H, dtype=np.int32), size),
        "index": np.tile(np.arange(size, dtype=np.int32), H),
        "weight": values.reshape(-1),
    }


def escape(text: str) -> str:
    """Put an apostrophe before whatever a spreadsheet might evaluate, and before an apostrophe that stands there."""
    return _ESCAPE.sub("'", text)


def unescape(text: str) -> str:
    """The label that :func:`escape` was given."""
    return _UNESCAPE.sub("", text)


# states without any recommendation that a line names
_NAMED = 8


def shown_cells(policy: Policy, states: Sequence[str], actions: Sequence[str], tied: Bools) -> list[dict[str, Any]]:
    """The likeliest action of every cell, step by step; no action where the policy abstains.

    ``tied`` ``(H, L)``: several actions were equally good.
    """
    return [
        {
            "step": h,
            "state": state,
            "abstains": bool(policy.abstains[h, s]),
            "action": None if policy.abstains[h, s] else actions[int(policy.probabilities[h, s].argmax())],
            "probability": None if policy.abstains[h, s] else float(policy.probabilities[h, s].max()),
            "tie": bool(tied[h, s]),
        }
        for h in range(len(policy.abstains))
        for s, state in enumerate(states)
    ]


def shown_lines(cells: Sequence[Mapping[str, Any]], states: int) -> list[str]:
    """State by state, equal neighbouring steps on one line; states without any recommendation together on the last."""
    lines, silent = ["steps    state                    action"], list[str]()
    for s in range(states):
        of_state = cells[s::states]
        if all(cell["abstains"] for cell in of_state):
            silent.append(of_state[0]["state"])
            continue
        for (action, tie), run in groupby(of_state, key=lambda cell: (cell["action"], cell["tie"])):
            steps = [cell["step"] for cell in run]
            when = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
            done = action or "– keep current practice (not enough evidence)"
            lines.append(f"{when:8} {of_state[0]['state']:24} {done}" + ("   (tie: others are as good)" if tie else ""))
    if silent:
        named = ", ".join(silent[:_NAMED]) + (f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else "")
        lines.append(f"elsewhere, in {len(silent)} of {states} states, keep current practice: {named}")
    return lines
