"""A run's policy with labels, for other programs: CSV that no spreadsheet evaluates, and JSON with the exact labels.

Reads the run's folder only: released values and declarations.  ``docs/policy.md`` has the columns and the escaping.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flows.jobs.folder import read_policy
from pipeline.declaration.card import CardError
from pipeline.files import whole_file
from pipeline.mdp.policy import Policy

KEEP = "keep current practice: not enough evidence"
USE, NEVER = "use", "never: vetoed"
COLUMNS = ("step", "state", "action", "probability", "advice", "abstains", "tie", "vetoed")
ABOUT = ("run", "policy_sha256", "guarantee")

# a cell that begins so may be evaluated; so may a piece behind a character that some program takes for a separator
_FORMULA = r"[=+\-@\uFF1D\uFE66\uFF0B\uFE62\uFF0D\uFE63\uFF20\uFE6B]"
_BLANK = r"[\s'\x00-\x1f\u00ad\u200b-\u200f\u2060\ufeff]*"
_START = rf"(?={_BLANK}{_FORMULA}|'*[\t\r\n])"
_INSIDE = rf"(?<=[,;|\t\r\n\"])(?={_BLANK}{_FORMULA})"
_ESCAPE = re.compile(rf"\A{_START}|{_INSIDE}")
_UNESCAPE = re.compile(rf"\A'{_START}|(?<=[,;|\t\r\n\"])'(?={_BLANK}{_FORMULA})")


@dataclass(frozen=True)
class PolicyFile:
    """What a run's folder says of its policy.

    Parameters
    ----------
    labels
        ``policy.json``: states, ends, actions, vetoes, and how raw states are decoded.
    tied
        ``(H, L)`` bool: several actions were equally good, the one shown was drawn among them.
    """

    run: str
    policy: Policy
    labels: Mapping[str, Any]
    tied: NDArray[np.bool_]
    vetoed: NDArray[np.bool_]
    guarantee: str
    sha256: str


def read_policy_file(folder: Path) -> PolicyFile:
    """Read ``policy.parquet``, ``policy.json`` and ``report.json`` of a run.

    Raises
    ------
    CardError
        If a file of the folder is missing or damaged.
    """
    try:
        labels = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        policy = read_policy(folder)
        tied = np.zeros(policy.abstains.shape, dtype=bool)
        tied[tuple(np.array(report["policy"]["tied"], dtype=np.int64).reshape(-1, 2).T)] = True
        pairs = [[str(s), str(a)] for s, a in labels["vetoes"]]
        vetoed = np.array([[[s, a] in pairs for a in labels["actions"]] for s in labels["states"]])
        digest = hashlib.sha256((folder / "policy.parquet").read_bytes()).hexdigest()
        return PolicyFile(folder.name, policy, labels, tied, vetoed, report["guarantee"]["sentence"], digest)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as e:
        raise CardError(
            f"{folder.name}: the run's policy cannot be read ({type(e).__name__}); `reticent run` its recipe again: "
            "a committed release is replayed at no cost"
        ) from None


def policy_rows(file: PolicyFile) -> dict[str, list[Any]]:
    """Columns of :data:`COLUMNS`, sorted by step, state and action as declared.

    An action with positive probability has a row; so has a vetoed one, with probability 0.  A state in which the policy
    abstains has one row without action, beside its vetoes: the stand-in of ``policy.parquet`` is no advice.
    """
    p, abstains = file.policy.probabilities, file.policy.abstains
    shown = (p > 0) & ~abstains[..., None] & ~file.vetoed
    empty = np.zeros((*abstains.shape, 1), dtype=bool)
    # the row of an abstention comes before those of actions
    kind = np.concatenate([abstains[..., None], shown | np.broadcast_to(file.vetoed, p.shape)], axis=-1)
    step, state, action = np.nonzero(kind)
    names = np.array(["", *file.labels["actions"]], dtype=object)
    veto = np.concatenate([empty, np.broadcast_to(file.vetoed, p.shape)], axis=-1)[step, state, action]
    keeps = action == 0
    probability = np.concatenate([empty, np.where(shown, p, 0.0)], axis=-1)[step, state, action].astype(object)
    chosen = names[action]
    chosen[keeps] = probability[keeps] = None
    return {
        "step": step.tolist(),
        "state": np.array(file.labels["states"], dtype=object)[state].tolist(),
        "action": chosen.tolist(),
        "probability": probability.tolist(),
        "advice": np.where(keeps, KEEP, np.where(veto, NEVER, USE)).tolist(),
        "abstains": abstains[step, state].tolist(),
        "tie": file.tied[step, state].tolist(),
        "vetoed": veto.tolist(),
    }


def as_json(file: PolicyFile) -> str:
    """The exact labels; one JSON object."""
    rows = policy_rows(file)
    whole = {
        "schema_version": 1,
        "run": file.run,
        "policy_sha256": file.sha256,
        "guarantee": file.guarantee,
        "horizon": file.labels["horizon"],
        "states": file.labels["states"],
        "actions": file.labels["actions"],
        "vetoes": [[str(s), str(a)] for s, a in file.labels["vetoes"]],
        "rows": [dict(zip(COLUMNS, row, strict=True)) for row in zip(*rows.values(), strict=True)],
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(file: PolicyFile) -> str:
    """RFC 4180 with a header; every text cell escaped and quoted, numbers in their shortest exact form."""
    rows = policy_rows(file)
    texts: dict[Any, Any] = {x: escape(x) for column in rows.values() for x in set(column) if isinstance(x, str)}
    texts |= {True: "true", False: "false"}
    words = {
        name: [texts.get(x, x) for x in column] if name not in ("step", "probability") else column
        for name, column in rows.items()
    }
    about = tuple(escape(x) for x in (file.run, file.sha256, file.guarantee))
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow([*COLUMNS, *ABOUT])
    writer.writerows((*row, *about) for row in zip(*words.values(), strict=True))
    return out.getvalue()


def escape(text: str) -> str:
    """Put an apostrophe before whatever a spreadsheet might evaluate, and before an apostrophe that stands there."""
    return _ESCAPE.sub("'", text)


def unescape(text: str) -> str:
    """The label that :func:`escape` was given."""
    return _UNESCAPE.sub("", text)


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write a file at once or not at all; without ``force`` never over another.

    Raises
    ------
    CardError
        If the file exists and ``force`` is not set, or the place takes no file.
    """
    try:
        with whole_file(path, over=force, alone=False) as fresh:
            fresh.write_text(text, encoding="utf-8", newline="")
    except FileExistsError:
        raise CardError(f"{path} exists; name another file, or replace it with --force") from None
    except OSError as e:
        raise CardError(f"{path}: cannot be written ({e.strerror}); name a file in a folder that exists") from None


FORMATS: Mapping[Literal["csv", "json"], Any] = {"csv": as_csv, "json": as_json}
