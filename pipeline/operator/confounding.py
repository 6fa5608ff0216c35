"""Tests for hidden confounding: do logged actions depend on more than the card's states?

Null hypothesis: within a state and a step, the logged action depends neither on any other column of the file nor on
the row before.  If it fails, actions depend on something that the counts do not contain (confounding by indication),
and more data does not help.  The test is the generalised Cochran-Mantel-Haenszel statistic over strata
(Landis, Heyman and Koch 1978): ``Q = d' V⁻ d``, d the summed differences between observed and expected counts of (group
of values, action), V their exact covariance given the margins of each stratum; Q is chi-squared under the null.

Four kinds of columns are tested.  *state*: the raw values that the state stands for.  *beside*: every other measured
column of the file, also those the card leaves out; an effect of the action that the same row reports differs with the
action too, and only the operator can distinguish the two.  *day*: columns of dates, that of the order too.  *past*: the
state and the reward of the row before, among rows with the same action before (and, of the reward, the same state): a
placebo, since a declared state that holds all that matters makes them uninformative; conditioning on the action before
allows for a person's habits.  If the card
says that steps are alike, the *step* is one more column, and rows of all steps are compared.

*later* is the same test of a row's reward and the state after it: within a state, a step and an action they do not
depend on the action before, unless actions have later effects that no state holds.  Each action is tested on its own
too: one that helps once, and not again, moves nothing after the others.

Only a person's *first* visit to each state is used, so that rows of one table belong to different people.  The past
decides which visit is the first; a random one of several would be picked more often after actions that make people
stay, and that alone would look like dependence.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.arrays import Array, Bools, Integers
from pipeline.declaration import source, toml
from pipeline.declaration.card import Card, CardError
from pipeline.facts.promise import Dump
from pipeline.logs.contribution_bounding import keyed_hash
from pipeline.logs.decode import decode, number_of, number_steps, order_of, unfold
from pipeline.logs.readers.batch import cell_type
from pipeline.logs.sources import Sources, choose_reader, examine, read_batches, readers_of
from pipeline.logs.store import Snapshot
from pipeline.operator.look import NUMBER, keys_of

# chance of one false alarm in a whole inspection, all states and columns together
SIGNIFICANCE = 0.001
# least difference between action distributions (total variation, beyond that of chance) that is worth a warning
EFFECT = 0.05
# most people and rows that are read; more would cost time and memory and add little power
PEOPLE, _ROWS = 300_000, 2_000_000
# most columns beside the card's that are tested
_BESIDE = 60
_GROUPS, _ACTIONS, _EXPECTED = 8, 30, 5.0
# fewest people in a group of raw values, and for each action of the table
_SMALL, _PER_ACTION = 100, 10
# least share of numbers in a column of numbers; least share of different texts in a column of ids of rows
_MOST_NUMBERS, _MOST_TEXTS = 0.9, 0.5
# roles that are no measurement before the action
_NOT_MEASURED = (
    "user", "episode", "step", "order", "entered", "action", "reward", "next_state", "next_bin", "terminated",
    "truncated", "behavior_prob", "observation", "next_observation",
)  # fmt: skip
_PAST = {"past@state": "the state before", "past@reward": "the reward before"}
TOO_FEW = "no state was seen with two values of a column often enough"
NO_COLUMN = "the log has no column beside those of the card"
"""Reasons why a log that can be read was not tested."""
_STEP = "step"
_LATER = {"later@reward": "the action before, of the reward", "later@state": "the action before, of the state after"}


def hidden_state(snapshot: Snapshot, card: Card, files: Sequence[Path] | None = None) -> Dump:
    """Test every state of the card against the columns of the source files, read again, and against the row before.

    ``files``: the log, which must still exist; None: the card's files.
    Returns ``checked`` and ``why_not``; ``significance``, ``effect``; ``tests``, one a (state, column) with enough
    rows: ``kind`` (state, beside, day, step, past, later), ``people``, ``p_value``, ``difference`` (largest
    total-variation distance between the actions at one group of values and those of the whole state in the same strata,
    beyond chance), ``at`` (that group), ``speaks``.
    """
    try:
        sources, names = _with_all_columns(examine(card, files), card)
        share = min(1.0, PEOPLE / max(1, snapshot.users), _ROWS / max(1, snapshot.source_rows))
        names |= {} if card.source.order_by is None else {"order": card.source.order_by}
        rows = _rows(sources, card, list(names), share)
    except (CardError, toml.LogError) as e:
        return _facts(str(e), [])
    dates = {role: days for role in names if (days := _days(rows[f"raw_{role}"])) is not None}
    rows = rows.with_columns(**{f"raw_{role}": days for role, days in dates.items()})
    if "order" not in dates:
        names.pop("order", None)
    first = _first_visits(rows)
    first_after = _first_visits(rows.filter(pl.col("past@state").is_not_null()))
    step_role = [_STEP] if card.domain.dynamics == "stationary" and card.domain.horizon > 1 else []
    tables: list[tuple[int, str, str, tuple[Array, list[str]]]] = []
    columns = names | {_STEP: "the step"} | _PAST | _LATER
    for s in range(len(card.domain.live_states)):
        visits, visits_after = first.filter(pl.col("state") == s), first_after.filter(pl.col("state") == s)
        for role in [*names, *step_role, *_PAST, *_LATER]:
            rows_tested = visits_after.drop_nulls(_tested_column(role)) if role in (*_PAST, *_LATER) else visits
            parts = {columns[role]: rows_tested}
            if role in _LATER:
                by_action = rows_tested.partition_by("action", as_dict=True, include_key=True)
                parts |= {
                    f"{columns[role]}, where {card.domain.action_labels[a]} followed": part
                    for (a,), part in sorted(by_action.items())
                }
            for column, part in parts.items():
                if (table := _table(part, role, card)) is not None:
                    tables.append((s, role, column, table))
    if not tables:
        # of labels nothing is left that a state could hide
        alone = card.domain.horizon == 1 and card.domain.states.bins is None
        alone = alone and not any(role.startswith("beside") for role in names)
        return _facts(NO_COLUMN if alone else TOO_FEW, [])
    kinds = {role: "beside" if role.startswith("beside") else "state" for role in names}
    kinds |= {
        _STEP: _STEP,
        **dict.fromkeys(dates, "day"),
        **dict.fromkeys(_PAST, "past"),
        **dict.fromkeys(_LATER, "later"),
    }
    tests: list[Dump] = [
        {"state": card.domain.live_states[s], "column": column, "kind": kinds[role]}
        | _verdict(counts, [_dated(x) for x in labels] if role in dates else labels, len(tables))
        for s, role, column, (counts, labels) in tables
    ]
    return _facts(None, tests)


def _facts(why_not: str | None, tests: list[Dump]) -> Dump:
    return {
        "checked": why_not is None,
        "why_not": why_not,
        "significance": SIGNIFICANCE,
        "effect": EFFECT,
        "tests": tests,
    }


def _with_all_columns(sources: Sources, card: Card) -> tuple[Sources, dict[str, str]]:
    """Sources with every other column under the roles ``beside@i``; and the names of tested columns by role."""
    columns_of, readers, renames = list[dict[str, str]](), readers_of(card), card.source.rename or {}
    for file in sources.files:
        reader = choose_reader(readers, card, file.path, file.name)
        types = reader.types(file.path, file.request) if reader.types is not None else None
        columns = (
            keys_of(file.path) if types is None else [n for n, dtype in types.items() if cell_type(dtype) is not None]
        )
        columns_of.append({renames.get(name, name): name for name in columns})
    more = sorted(set[str]().union(*columns_of) - {*sources.roles.values(), *renames})[:_BESIDE]
    beside = {f"beside@{i}": column for i, column in enumerate(more)}
    files = tuple(
        replace(
            file,
            request=replace(file.request, columns=[*file.request.columns, *(names[c] for c in more if c in names)]),
            aliases={**file.aliases, **{c: [names[c]] for c in more if c in names}},
        )
        for file, names in zip(sources.files, columns_of, strict=True)
    )
    dtypes = {**sources.dtypes, **dict.fromkeys(beside, pl.String())}
    extended = replace(sources, files=files, roles={**sources.roles, **beside}, dtypes=dtypes)
    roles = card.log.steps if card.source.layout == "wide" else sources.roles
    named = {
        role: column if isinstance(column, str) else ", ".join(c for c in column if source.constant(c) is None)
        for role, column in roles.items()
        if role.partition("@")[0] not in _NOT_MEASURED
    }
    # a column of two roles has ends as texts and states as numbers: the numbers are tested
    role_of = {column: role for role, column in named.items()} | {c: r for r, c in named.items() if r == "bin"}
    return extended, {role: column for column, role in role_of.items()} | beside


def _rows(sources: Sources, card: Card, read: list[str], share: float) -> pl.DataFrame:
    """Decode the rows of a share of the people, with ``raw_<role>`` of each role, and values of the row before."""
    frames = [
        _some_people(frame, card.name, share).with_columns(
            pl.lit(index, dtype=pl.Int32).alias("file"), pl.lit(0, dtype=pl.Int64).alias("line")
        )
        for index in range(len(sources.files))
        for _, frame in read_batches(sources, card, index)
    ]
    if not frames:
        raise toml.LogError(f"{card.name}: the files hold no rows")
    raw = pl.concat(frames, how="vertical_relaxed")
    steps = raw
    if card.source.layout == "wide":
        steps = unfold(raw, card)
        beside = [f"raw_{role}" for role in read if role.startswith("beside")]
        steps = steps.with_columns(raw[name].gather(steps["origin"]) for name in beside)
    rows = decode(steps, card)
    if card.source.order_by is not None:
        rows, _ = number_steps(rows, steps, card)
    rows = rows.with_columns(steps[f"raw_{role}"].gather(rows["row"]) for role in read)
    rows = rows.filter(~pl.col("unreadable")).sort("user_id", "episode_id", "step")
    same = (pl.col("user_id") == pl.col("user_id").shift()) & (pl.col("episode_id") == pl.col("episode_id").shift())
    follows = same & (pl.col("step") == pl.col("step").shift() + 1)
    before = {"past@state": "state", "past@action": "action", "past@reward": "reward"}
    rows = rows.with_columns(
        *(pl.when(follows).then(pl.col(name).shift()).alias(role) for role, name in before.items()),
        pl.when(follows.shift(-1)).then(pl.col("state").shift(-1)).fill_null(-1).alias("after"),
    )
    usable = (pl.col("state") < len(card.domain.live_states)) & (pl.col("step") < card.domain.horizon)
    return rows.filter(usable).drop_nulls("action")


def _first_visits(rows: pl.DataFrame) -> pl.DataFrame:
    """Row of each person's first visit to each state."""
    return rows.sort("episode_id", "step").unique(["user_id", "state"], keep="first", maintain_order=True)


def _some_people(frame: pl.DataFrame, salt: str, share: float) -> pl.DataFrame:
    """Rows of a share of all people, chosen by a keyed hash of the id."""
    if share >= 1:
        return frame
    people = frame.select(pl.col("raw_user").unique())
    chosen = keyed_hash(people["raw_user"].cast(pl.String), f"{salt} inspect") < int(share * 2**64)
    return frame.join(people.filter(chosen), on="raw_user", how="semi", maintain_order="left")


def _strata(rows: pl.DataFrame, role: str) -> Integers:
    """Stratum of each row: its step (none to test the step itself), and the action (and state) before."""
    if role == _STEP:
        return np.zeros(len(rows), dtype=np.int64)
    given = {"past@state": ["past@action"], "past@reward": ["past@action", "past@state"]}
    given |= {later: ["action"] for later in _LATER}
    return rows.select(pl.struct("step", *given.get(role, [])).rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()


def _table(rows: pl.DataFrame, role: str, card: Card) -> tuple[Array, list[str]] | None:
    """Counts ``(strata, groups, responses)`` of one state, small groups and rare responses merged; None if one is left.

    The response is the action; of ``later`` it is the reward or the state after.
    """
    if len(rows) < 2 * _SMALL:
        return None
    response, responses = _response(rows, role, card)
    raw = rows[_tested_column(role)]
    enough = max(_SMALL, _PER_ACTION * len(np.unique(response)))
    groups = min(_GROUPS, max(2, len(rows) // enough))
    if role == "past@state" or role in _LATER:
        labels = dict(enumerate(card.domain.state_labels if role == "past@state" else card.domain.action_labels))
        group, labels = _texts(raw.replace_strict(labels, default=None, return_dtype=pl.String), groups)
    elif _is_number(raw := _without_units(raw)):
        group, labels = _numbers(raw, groups)
    elif raw.n_unique() > _MOST_TEXTS * len(raw):
        return None
    else:
        group, labels = _texts(raw, groups)
    strata = _strata(rows, role)
    shape = int(strata.max()) + 1, len(labels), responses
    flat = np.ravel_multi_index((strata, group, response), shape)
    counts = np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
    small = counts.sum((0, 2)) < enough
    counts, labels = _merged(counts, small, 1), [x for x, few in zip(labels, small, strict=True) if not few]
    labels += ["the rest"] * (counts.shape[1] - len(labels))
    # merged groups that are still too small are left out; this choice depends on raw values alone
    big = counts.sum((0, 2)) >= enough
    counts, labels = counts.compress(big, 1), [x for x, keep in zip(labels, big, strict=True) if keep]
    if len(labels) <= 1:
        return None
    most = np.argsort(-counts.sum((0, 1)), kind="stable")
    rare = (_expected(counts).min(0) < _EXPECTED) | (np.argsort(most) >= _ACTIONS)
    counts = _merged(counts, rare, 2)
    return (counts, labels) if counts.shape[2] > 1 else None


def _tested_column(role: str) -> str:
    """Column of the values that are tested."""
    if role in _LATER:
        return "past@action"
    return role if role in (_STEP, *_PAST) else f"raw_{role}"


def _response(rows: pl.DataFrame, role: str, card: Card) -> tuple[Integers, int]:
    """Response of each row, as an index, and the number of different responses."""
    if role == "later@reward":
        group, labels = _numbers(rows["reward"], _GROUPS)
        return group, len(labels)
    if role == "later@state":
        return rows["after"].to_numpy() + 1, len(card.domain.state_labels) + 1
    return rows["action"].to_numpy(), len(card.domain.action_labels)


def _days(raw: pl.Series) -> pl.Series | None:
    """Days of a column of dates; None of another."""
    if raw.dtype != pl.String or raw.str.strip_chars().cast(pl.Float64, strict=False).count():
        return None
    days = raw.to_frame("raw_order").select(order_of({"order": pl.String()})).to_series()
    return days if days.count() >= _MOST_NUMBERS * max(1, raw.count()) and days.drop_nulls().n_unique() > 2 else None


def _dated(label: str) -> str:
    """Label of a group of days, as a date."""
    start, _, days = label.rpartition(" ")
    if not days.lstrip("-")[:1].isdigit():
        return label
    # an open end such as 9999-12-31 is printed to six digits
    day = min(max(date(1970, 1, 1).toordinal() + int(float(days)), 1), date.max.toordinal())
    return f"{start} {date.fromordinal(day)}".lstrip()


def _without_units(raw: pl.Series) -> pl.Series:
    """Replace numbers with undeclared units by their ranks among those of the same unit; leave other columns."""
    if raw.dtype != pl.String:
        return raw
    parts = raw.to_frame("x").select(pl.col("x").str.extract_groups(NUMBER)).unnest("x")
    if parts["unit"].null_count() == len(raw) or parts["number"].null_count() > (1 - _MOST_NUMBERS) * len(raw):
        return raw
    number = number_of(pl.col("number").str.replace(",", "."))
    return parts.select((number.rank() / pl.len()).over("unit")).to_series()


def _is_number(raw: pl.Series) -> bool:
    filled = raw.drop_nulls()
    if raw.dtype.is_numeric():
        return True
    numbers = filled.to_frame("x").select(number_of(pl.col("x").cast(pl.String)).is_not_null().sum()).item()
    return numbers >= _MOST_NUMBERS * max(1, len(filled)) and filled.n_unique() > 2


def _merged(counts: Array, merged: Bools, axis: int) -> Array:
    """``counts`` with the entries ``merged`` of an axis summed into one at its end."""
    if not merged.any():
        return counts
    rest = counts.compress(merged, axis).sum(axis, keepdims=True)
    return np.concatenate([counts.compress(~merged, axis), rest], axis)


def _numbers(raw: pl.Series, groups: int) -> tuple[Integers, list[str]]:
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


def _texts(raw: pl.Series, groups: int) -> tuple[Integers, list[str]]:
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


def _verdict(counts: Array, labels: Sequence[str], tests: int) -> Dump:
    """P-value and effect of one table, corrected for the number of ``tests``."""
    from scipy.stats import chi2

    n, rows, columns = counts.sum((1, 2)), counts.sum(2), counts.sum(1)
    weight = np.where(n > 1, 1 / np.maximum(n * n * (n - 1), 1.0), 0.0)
    deviations = counts.sum(0) - _expected(counts)
    margins = [x[:, :, None] * (n[:, None, None] * np.eye(x.shape[1]) - x[:, None, :]) for x in (rows, columns)]
    covariance = np.einsum("hij,hkl,h->ikjl", *margins, weight)
    variance = np.einsum("igig->ig", covariance)
    # the last group and the last action follow from the others
    free = covariance[:-1, :-1, :-1, :-1].reshape((deviations.shape[0] - 1) * (deviations.shape[1] - 1), -1)
    d = deviations[:-1, :-1].reshape(-1)
    statistic, freedom = float(d @ np.linalg.pinv(free, hermitian=True) @ d), int(np.linalg.matrix_rank(free))
    p = float(chi2.sf(statistic, freedom)) if freedom else 1.0
    people = counts.sum((0, 2))
    # mean of |N(0, v)| is sqrt(2 v / pi): the deviation by chance alone
    beyond = (np.abs(deviations) - np.sqrt(2 * variance / np.pi)).sum(1) / (2 * people)
    largest = int(beyond.argmax())
    difference = max(0.0, float(beyond[largest]))
    return {
        "people": int(people.sum()),
        "groups": len(labels),
        "statistic": statistic,
        "degrees_of_freedom": freedom,
        "p_value": p,
        "difference": difference,
        "at": labels[largest],
        "speaks": p < SIGNIFICANCE / tests and difference >= EFFECT,
    }
