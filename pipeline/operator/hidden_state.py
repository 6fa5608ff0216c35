"""Did whoever logged the data see more than the card's states?  A test of logged actions against raw values.

Null hypothesis: within a state and a step, the logged action does not depend on the raw value that the state stands
for.  Where it fails, who got which action depends on something the counts cannot see (confounding by indication), and
more data does not help.  The test is the generalised Cochran-Mantel-Haenszel statistic over steps (Landis, Heyman and
Koch 1978): ``Q = d' V⁻ d``, d the summed differences between observed and expected counts of (raw group, action), V
their exact covariance given the margins of each step; Q is chi-squared under the null.

Only a person's *first* visit to each state is used, so that rows of one table belong to different people.  A first
visit is decided by what came before; a random one of several would be picked more often after actions that make
people stay, and that alone would look like dependence.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card, CardError
from pipeline.declaration.source import StepColumn, constant
from pipeline.declaration.toml import LogError
from pipeline.logs.contribution_bounding import keyed_hash
from pipeline.logs.decode import decode
from pipeline.logs.sources import Sources, examine, read_batches
from pipeline.logs.store import Snapshot
from pipeline.logs.wide import unfold
from pipeline.operator.facts import HiddenState, HiddenTest, Verdict

# chance of one false alarm in a whole inspection, all states and columns together
SIGNIFICANCE = 0.001
# a smaller difference between action distributions (total variation, beyond what chance makes) is not worth a word
EFFECT = 0.05
# people looked at; more would cost time and add no power that matters
PEOPLE = 300_000
_GROUPS, _ACTIONS, _EXPECTED = 8, 30, 5.0
# fewest people in a group of raw values, and for each action that was seen
_SMALL, _PER_ACTION = 100, 10

Array = NDArray[np.float64]


def hidden_state(snapshot: Snapshot, card: Card) -> HiddenState:
    """Test every state of the card against the raw columns it was made from, read again from the source files.

    Parameters
    ----------
    snapshot
        Tells how many people there are; its rows are not read.
    card
        Names the source files, which must still be there, and the raw columns.

    Returns
    -------
    ``checked`` and ``why_not``; ``significance``, ``effect``; ``tests``, one a (state, raw column) with enough rows:
    ``people``, ``p_value``, ``difference`` (largest total-variation distance between the actions at one group of raw
    values and those of the whole state at the same steps, beyond chance), ``at`` (that group), ``speaks``.
    """
    if card.source.order_by is not None:
        return _facts("steps are numbered by order_by, which takes all rows of a person at once", [])
    try:
        sources = examine(card)
    except (CardError, LogError) as e:
        return _facts(str(e), [])
    read = card.log.steps if card.source.layout == "wide" else card.log.roles
    columns = [role for role in ("bin", "state") if role in read]
    rows = _first_visits(sources, card, columns, PEOPLE / max(1, snapshot.users))
    tables = [
        (s, role, table)
        for s in range(len(card.domain.live_states))
        for role in columns
        if (table := _table(rows.filter(pl.col("state") == s), role, card)) is not None
    ]
    if not tables:
        return _facts("no state stands for two raw values that were logged often enough", [])
    names = {
        "bin": _named(card.domain.states.bins.by if card.domain.states.bins else ""),
        "state": _named(card.domain.states.column),
    }
    tests: list[HiddenTest] = [
        {"state": card.domain.live_states[s], "column": names[role], **_verdict(counts, labels, len(tables))}
        for s, role, (counts, labels) in tables
    ]
    return _facts(None, tests)


def _facts(why_not: str | None, tests: list[HiddenTest]) -> HiddenState:
    return {
        "checked": why_not is None,
        "why_not": why_not,
        "significance": SIGNIFICANCE,
        "effect": EFFECT,
        "tests": tests,
    }


def _first_visits(sources: Sources, card: Card, read: list[str], share: float) -> pl.DataFrame:
    """``step``, ``state``, ``action`` and ``raw_<role>`` of each person's first visit to each state."""
    live, kept = len(card.domain.live_states), pl.DataFrame()
    for index in range(len(sources.files)):
        for _, frame in read_batches(sources, card, index):
            some = _some_people(frame, card.name, share)
            if card.source.layout == "wide":
                # the place in the file is asked for and not used
                some = unfold(some.with_columns(file=pl.lit(0), line=pl.lit(0)), card)
            rows = decode(some, card).with_columns(some[f"raw_{role}"] for role in read)
            usable = rows.filter(
                ~pl.col("unreadable") & (pl.col("state") < live) & (pl.col("step") < card.domain.horizon)
            )
            seen = usable.select(
                "user_id", "episode_id", "step", "state", "action", *(f"raw_{role}" for role in read)
            ).drop_nulls("action")
            kept = (
                pl.concat([kept, seen] if len(kept) else [seen])
                .sort("episode_id", "step")
                .unique(["user_id", "state"], keep="first", maintain_order=True)
            )
    return kept


def _named(column: StepColumn) -> str:
    """A column, or those of all steps that are no constants."""
    return column if isinstance(column, str) else ", ".join(c for c in column if constant(c) is None)


def _some_people(frame: pl.DataFrame, salt: str, share: float) -> pl.DataFrame:
    """Rows of a share of all people, chosen by a keyed hash of the id."""
    if share >= 1:
        return frame
    people = frame.select(pl.col("raw_user").unique())
    chosen = keyed_hash(people["raw_user"].cast(pl.String), f"{salt} inspect") < int(share * 2**64)
    return frame.join(people.filter(chosen), on="raw_user", how="semi", maintain_order="left")


def _table(rows: pl.DataFrame, role: str, card: Card) -> tuple[Array, list[str]] | None:
    """Counts ``(H, groups, actions)`` of one state with small groups and rare actions merged; None if one is left."""
    raw = rows[f"raw_{role}"]
    enough = max(_SMALL, _PER_ACTION * rows["action"].n_unique())
    groups = min(_GROUPS, max(2, len(rows) // enough))
    group, labels = _numbers(raw, groups) if role == "bin" else _texts(raw, groups)
    shape = card.domain.horizon, len(labels), len(card.domain.action_labels)
    flat = np.ravel_multi_index((rows["step"].to_numpy(), group, rows["action"].to_numpy()), shape)
    counts = np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
    small = counts.sum((0, 2)) < enough
    counts, labels = _merged(counts, small, 1), [x for x, few in zip(labels, small, strict=True) if not few]
    labels += ["the rest"] * (counts.shape[1] - len(labels))
    # what is too small even together stands aside: it is chosen by its raw values alone
    big = counts.sum((0, 2)) >= enough
    counts, labels = counts.compress(big, 1), [x for x, keep in zip(labels, big, strict=True) if keep]
    if len(labels) <= 1:
        return None
    most = np.argsort(-counts.sum((0, 1)), kind="stable")
    rare = (_expected(counts).min(0) < _EXPECTED) | (np.argsort(most) >= _ACTIONS)
    counts = _merged(counts, rare, 2)
    return (counts, labels) if counts.shape[2] > 1 else None


def _merged(counts: Array, which: NDArray[np.bool_], axis: int) -> Array:
    """``counts`` with the entries ``which`` of an axis summed into one at its end."""
    if not which.any():
        return counts
    rest = counts.compress(which, axis).sum(axis, keepdims=True)
    return np.concatenate([counts.compress(~which, axis), rest], axis)


def _numbers(raw: pl.Series, groups: int) -> tuple[NDArray[np.int64], list[str]]:
    """Groups of a number: its distinct values, or at most ``groups`` ranges with about as many rows each."""
    cell = raw.str.strip_chars() if raw.dtype == pl.String else raw
    x = cell.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    values = np.unique(x[np.isfinite(x)])
    if len(values) > groups:
        values = np.unique(np.quantile(x[np.isfinite(x)], np.arange(groups) / groups, method="higher"))
        labels = [f"from {low:g}" for low in values]
    else:
        labels = [f"{value:g}" for value in values]
    group = np.searchsorted(values, x, side="right") - 1
    return np.where(np.isnan(x), len(values), np.maximum(group, 0)), [*labels, "(no number)"]


def _texts(raw: pl.Series, groups: int) -> tuple[NDArray[np.int64], list[str]]:
    """Groups of a label: the most frequent ones, and the rest."""
    text = raw.cast(pl.String)
    often = text.drop_nulls().value_counts().sort("count", text.name, descending=[True, False])[text.name]
    named = often.head(groups - 1).to_list()
    table = pl.Series(named, dtype=pl.String), pl.Series(range(len(named)), dtype=pl.Int64)
    group = text.replace_strict(*table, default=len(named), return_dtype=pl.Int64)
    return group.to_numpy(), [*named, "the rest"]


def _expected(counts: Array) -> Array:
    """Expected counts ``(groups, actions)`` under the null, given the margins of each step."""
    n = np.maximum(counts.sum((1, 2)), 1.0)
    return np.einsum("hg,ha,h->ga", counts.sum(2), counts.sum(1), 1 / n)


def _verdict(counts: Array, labels: list[str], tests: int) -> Verdict:
    """P-value and effect of one table, judged as one of ``tests``."""
    from scipy.stats import chi2

    n, rows, columns = counts.sum((1, 2)), counts.sum(2), counts.sum(1)
    weight = np.where(n > 1, 1 / np.maximum(n * n * (n - 1), 1.0), 0.0)
    apart = counts.sum(0) - _expected(counts)
    spread = [x[:, :, None] * (n[:, None, None] * np.eye(x.shape[1]) - x[:, None, :]) for x in (rows, columns)]
    covariance = np.einsum("hij,hkl,h->ikjl", *spread, weight)
    variance = np.einsum("igig->ig", covariance)
    # the last group and the last action follow from the others
    kept = covariance[:-1, :-1, :-1, :-1].reshape((apart.shape[0] - 1) * (apart.shape[1] - 1), -1)
    d = apart[:-1, :-1].reshape(-1)
    statistic, freedom = float(d @ np.linalg.pinv(kept, hermitian=True) @ d), int(np.linalg.matrix_rank(kept))
    p = float(chi2.sf(statistic, freedom)) if freedom else 1.0
    people = counts.sum((0, 2))
    # mean of |N(0, v)| is sqrt(2 v / pi): what chance alone would show
    beyond = (np.abs(apart) - np.sqrt(2 * variance / np.pi)).sum(1) / (2 * people)
    widest = int(beyond.argmax())
    difference = max(0.0, float(beyond[widest]))
    return {
        "people": int(people.sum()),
        "groups": len(labels),
        "statistic": statistic,
        "degrees_of_freedom": freedom,
        "p_value": p,
        "difference": difference,
        "at": labels[widest],
        "speaks": p < SIGNIFICANCE / tests and difference >= EFFECT,
    }
