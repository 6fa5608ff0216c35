"""A card proposed from a log: for the operator, who changes it by what is known without looking.

What is read off people's records depends on them.  So the card lists in [provenance] which keys were; ``register``
enters the look in the ledger, and the certificate says it.  Counts are told to the operator's terminal and stand in no
file: the card has a reason beside each key, and no number that was counted but those it declares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import polars as pl

from pipeline.operator.advice import Draft, Said
from pipeline.operator.proposed import human, listed, quantile, quoted, reward_of, share
from pipeline.operator.roles import PART, Column, find_roles, look_at, plain_name
from pipeline.operator.traps import Endings, look_at_ends, mixed_people, once
from pipeline.privacy.budget import largest_delta

_RARE, _FEWEST = 0.001, 20
_BINS = (0.25, 0.5, 0.75)
_LONG, _MOST_STEPS = 0.95, 60
# of short episodes
_FEW = 0.01
_IN_WORDS = {
    "user": "person",
    "episode": "episode",
    "order": "order of rows",
    "action": "action (what was done)",
    "reward": "reward (what came of it)",
    "state": "state (what was seen before)",
    "terminated": "end",
}
# rules that empty a log when its format changes
_STOPS = {
    "unparsable": "share of people: above it `run` stops before its budget is spent",
    "unknown_label": "of people with labels that the card does not have",
    "bad_reward": "of people with rewards that are no numbers",
    "repeat": "of people with two rows at one step",
}


def draft_card(
    frame: pl.DataFrame,
    files: Sequence[str],
    given: Mapping[str, str],
    users: Sequence[str],
    name: str,
    today: str,
    malformed: int = 0,
) -> Draft:
    """Propose a card for a log.

    Parameters
    ----------
    frame
        The whole log, one row a step.
    files
        What the card's ``source.files`` will be.
    given, users
        See :func:`~pipeline.operator.roles.find_roles`.
    name
        Of the dataset.
    today
        Date of the look (ISO).
    malformed
        How many records of the files are no rows.

    Raises
    ------
    CardError
        If the columns of people, states and actions cannot be told.
    """
    notes = [f"{malformed:,} lines cannot be read and are set aside"] if malformed else []
    role, guessed = find_roles(look_at(frame), dict(given), users)
    frame = once(frame, role, notes)
    columns = look_at(frame)
    notes += [f"{role[g]!r} is only guessed to be the {_IN_WORDS[g]}: name it with --{g} COLUMN" for g in guessed]
    notes += [f"{c.name!r} holds {c.odd}: ingest reads it as mere text" for c in columns.values() if c.odd]
    state = plain_name(role["state"])
    notes += [
        f"{name!r} may say where a step led: if it does, add next_state = {quoted(name)} to source.columns"
        for name in columns
        if name not in role.values() and plain_name(name) in (f"next_{state}", f"next{state}")
    ]
    people, episode = columns[role["user"]], role.get("episode", role["user"])
    rows = frame.select(pl.Series("user", people.cells), pl.Series("episode", columns[episode].cells)).with_columns(
        **({"order": columns[role["order"]].values} if "order" in role else {"order": pl.lit(0.0)})
    )
    rows = rows.with_row_index("at").drop_nulls("user")
    notes += mixed_people(rows, columns, role, frame[PART] if PART in frame.columns else None)
    if "order" not in role and rows.select(pl.struct("user", "episode").is_duplicated().any()).item():
        notes.append("people have several rows and no column was found that orders them: name it with --order COLUMN")
    horizon, steps = _horizon(rows, role, notes)
    ends = look_at_ends(rows, columns, role, horizon)
    if "terminated" in role and not ends.told:
        notes.append(f"{role.pop('terminated')!r} is true before the last row: it does not tell where an episode ends")
    said = [
        Said("name", quoted(name), "of the dataset in the ledger"),
        *_unit(rows, role, columns, users, notes),
        steps,
        *_domain(role, columns, notes),
        *reward_of(role, columns, ends, notes),
        *_source(rows, role, columns, files, ends, notes),
        *(Said(f"tolerance.{rule}", "0.1", why) for rule, why in _STOPS.items()),
        Said("budget.rho", "1.0", "for the life of this data: agree on it with whoever answers for it"),
        Said("budget.delta", _delta(rows["user"].n_unique()), "a chance far below one in the number of people"),
        Said("budget.ledger", '"ledger.db"', "keep it safe: without its ledger, data of real people is refused"),
    ]
    drafted = [s.key for s in said if s.seen]
    said += [
        Said("provenance.drafted", quoted(today), "the day on which the log was looked at for this card"),
        Said("provenance.from_data", listed(drafted), "take out what an expert has set since"),
    ]
    return Draft(said, notes)


def _unit(
    rows: pl.DataFrame, role: Mapping[str, str], columns: Mapping[str, Column], users: Sequence[str], notes: list[str]
) -> list[Said]:
    n = rows["user"].n_unique()
    each = rows.select("user", "episode").unique().group_by("user").len()["len"]
    most, m = int(each.max() or 1), _covering(each)  # pyright: ignore[reportArgumentType]
    for other in users:
        if other != role["user"]:
            notes.append(
                f"{other!r} has {columns[other].distinct:,} ids for {n:,} in {role['user']!r}: with it, one person "
                "would be protected as several"
            )
    return [
        Said("unit.user", quoted(role["user"]), "whose privacy: everything of one of them is one record",
             f"{n:,} people, {len(rows) / max(1, n):.3g} rows each"),
        Said("unit.episodes_per_user", str(m), "enough for 95 in 100 people; what others have beyond it is dropped",
             f"at most {most} episodes a person"),
        Said("unit.users_public", str(_round(n)), "put the number that is public in its place",
             f"{n:,} counted: that number is yours alone"),
    ]  # fmt: skip


def _horizon(rows: pl.DataFrame, role: Mapping[str, str], notes: list[str]) -> tuple[int, Said]:
    lengths = rows.group_by("user", "episode").len()["len"] if "order" in role else pl.Series([1])
    longest = int(lengths.max() or 1)  # pyright: ignore[reportArgumentType]
    horizon = longest if longest <= 12 else min(_MOST_STEPS, math.ceil(quantile(lengths, _LONG)))
    if horizon < longest:
        notes.append(f"steps {horizon} and later are dropped: {share(lengths > horizon):.1%} of episodes have some")
    seen = f"episodes have {quantile(lengths, 0.5):.0f} rows in the middle, {longest} at most"
    return horizon, Said("domain.horizon", str(horizon), "steps of an episode, at most", seen)


def _domain(role: Mapping[str, str], columns: Mapping[str, Column], notes: list[str]) -> list[Said]:
    state, why, seen = _states(columns[role["state"]], notes)
    actions, odd, told = _labels(columns[role["action"]], "action", notes)
    other = ", other = true" if odd else ""
    return [
        Said("domain.states", state, why, seen),
        Said("domain.actions", f"{{ column = {quoted(role['action'])}, labels = {actions}{other} }}",
             "what was done; labels that stand for the same are grouped", told),
    ]  # fmt: skip


def _states(column: Column, notes: list[str]) -> tuple[str, str, str]:
    name = quoted(column.name)
    if column.numbers >= 0.9 and column.distinct > 12:
        values = column.values.drop_nulls()
        edges = sorted({human(quantile(values, q), quantile(values, 0.75) - quantile(values, 0.25)) for q in _BINS})
        other = ", other = true" if column.missing else ""
        quartiles = ", ".join(f"{quantile(values, q):g}" for q in _BINS)
        seen = f"{quantile(values, 0):g} to {quantile(values, 1):g}; quartiles {quartiles}"
        seen += f"; {column.missing:.1%} missing" if column.missing else ""
        bins = f"{{ by = {name}, edges = {listed(edges)} }}"
        why = "quartiles, rounded: put the thresholds that people decide by in their place"
        return f'{{ column = {name}, bins = {bins}, ends = ["end"]{other} }}', why, seen
    labels, odd, told = _labels(column, "state", notes)
    other = ", other = true" if odd else ""
    return (
        f'{{ column = {name}, labels = {labels}, ends = ["end"]{other} }}',
        "what was seen; 'end' is where an episode leads",
        told,
    )


def _labels(column: Column, what: str, notes: list[str]) -> tuple[str, bool, str]:
    """Labels as TOML, whether some cells are none of them, and how often each was seen."""
    counts = column.cells.drop_nulls().value_counts(sort=True).rows()
    total = max(1, sum(n for _, n in counts))
    groups: dict[str, list[tuple[str, int]]] = {}
    for text, n in counts:
        groups.setdefault(" ".join(plain_name(text).split()), []).append((text, n))
    sums = {key: sum(n for _, n in texts) for key, texts in groups.items()}
    kept = {key: texts for key, texts in groups.items() if sums[key] >= max(_FEWEST, _RARE * total)} or groups
    rare = len(groups) - len(kept)
    names = {texts[0][0].strip(): [text for text, _ in texts] for texts in kept.values()}
    if rare:
        notes.append(f"{rare} rare texts of {what} {column.name!r} are no labels: they become OTHER")
    told = ", ".join(f"{texts[0][0].strip()} {sums[key]:,}" for key, texts in list(kept.items())[:12])
    told += f"; {column.missing:.1%} missing" if column.missing else ""
    several = {name: texts for name, texts in names.items() if texts != [name]}
    if not several:
        return listed(sorted(names)), bool(rare or column.missing), told
    notes.append(f"{what}s {', '.join(map(repr, several))} are written in several ways: the card takes them as one")
    inner = ", ".join(f"{quoted(n)} = {listed(names[n])}" for n in sorted(names))
    return f"{{ {inner} }}", bool(rare or column.missing), told


def _source(
    rows: pl.DataFrame,
    role: Mapping[str, str],
    columns: Mapping[str, Column],
    files: Sequence[str],
    ends: Endings,
    notes: list[str],
) -> list[Said]:
    told = {"user_id": role["user"], "episode_id": role.get("episode", role["user"])}
    found = [Said("source.files", listed(list(files)), "below this card's folder")]
    if "order" in role:
        steps, first = _counted(rows)
        if columns[role["order"]].is_date or not steps:
            found.append(
                Said("source.order_by", quoted(role["order"]), "numbers the rows; see gap_over too",
                     _ordering(rows, role["order"]))
            )  # fmt: skip
        else:
            told["step"] = role["order"]
            lacking = _lacking(rows, first)
            if first:
                found.append(Said("source.first_step", str(first), "steps of the log begin with it", f"{first}"))
            if lacking:
                found.append(Said("source.gap", '"cut"', "an episode that lacks a step ends before it; or 'drop'",
                                  f"{lacking:.1%} of episodes lack a step"))  # fmt: skip
    if ends.short > _FEW and "order" in role and "terminated" not in role:
        seen = f"{ends.short:.1%} of the episodes have fewer rows than the horizon"
        over = '"ends"' if ends.paid_last else '"unknown"'
        found.append(
            Said("source.last_row", over, "'ends' where an episode is over with its last row; or 'unknown'", seen)
        )
        notes.append(
            f"{seen}. last_row = 'unknown' counts their last rows in no table, 'ends' takes them for the end: is an "
            f"episode of this log over with its last row? The card says {over}"
        )
    told |= {r: role[r] for r in ("reward", "terminated") if r in role}
    inner = ", ".join(f"{key} = {quoted(column)}" for key, column in told.items())
    return [*found, Said("source.columns", f"{{ {inner} }}", "which column plays which part", "by name and content")]


def _counted(rows: pl.DataFrame) -> tuple[bool, int]:
    """Whether the order counts steps, and from which number."""
    order = rows["order"].drop_nulls()
    if not len(order) or not (order == order.floor()).all():
        return False, 0
    first = rows.group_by("user", "episode").agg(pl.col("order").min())["order"]
    start = int(quantile(first, 0.5))
    single = share(rows.drop_nulls("order").select(pl.struct("user", "episode", "order").is_unique()).to_series())
    steady = share(first == start) > 0.5
    return start in (0, 1) and steady and single > 0.95, start


def _lacking(rows: pl.DataFrame, first: int) -> float:
    each = rows.group_by("user", "episode").agg(
        pl.col("order").max().alias("most"), pl.col("order").n_unique().alias("n")
    )
    return share(each["most"] - first + 1 != each["n"])


def _ordering(rows: pl.DataFrame, name: str) -> str:
    apart = rows.sort("order").select(pl.col("order").diff().over("user", "episode")).to_series().drop_nulls()
    middle, most = quantile(apart, 0.5), quantile(apart, 1)
    return f"{name}: two rows of an episode are {middle:.3g} apart in the middle, {most:.3g} at most"


def _covering(each: pl.Series) -> int:
    return max(1, math.ceil(quantile(each, _LONG)))


def _round(n: int) -> int:
    """To two digits."""
    unit = 10 ** max(0, len(str(n)) - 2)
    return max(1, round(n / unit) * unit)


def _delta(people: int) -> str:
    return f"1e-{max(6, math.ceil(-math.log10(largest_delta(max(1, people)))))}"
