"""Rules for rows outside the declared domain: a table, and an expression over decoded rows for each rule.

Every rule depends on one user's rows only, so replacing a user changes no other user's rows (privacy.md §1.2).
The table's order is the order of precedence: a dropped row is filed once, under the first rule that dropped it.
``docs/card.md`` shows the same table.
A card's tolerance is the share of rows that may break a rule before the log is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import polars as pl

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.declaration.toml import LogError

Effect = Literal["coerce", "drop_step", "drop_episode", "over_cap", "refuse"]


@dataclass(frozen=True)
class Rule:
    """One way for a log to break the declared domain, and its effect."""

    name: str
    effect: Effect
    meaning: str


RULES: tuple[Rule, ...] = (
    Rule("missing_column", "refuse", "a file lacks a column that the card names"),
    Rule(
        "malformed_line",
        "drop_step",
        "a record that is longer than 1 MiB, is not UTF-8 text or cannot be read: a CSV line with the wrong number of "
        "fields or unbalanced quotes, an NDJSON line that is no flat object, a recorded episode whose arrays do not "
        "fit together",
    ),
    Rule("null_user", "drop_step", "a row without a user id: nobody knows whose it is"),
    Rule(
        "inexact_user",
        "drop_step",
        "the user id is a float from 2⁵³ on, which stands for several integers: nobody knows whose row it is; a card "
        "that gives no tolerance for it accepts none",
    ),
    Rule("too_many_rows", "drop_step", "a row of a user beyond the first 1,048,576 of one ingest"),
    Rule(
        "elsewhere",
        "drop_episode",
        "the person is counted in another dataset that was declared disjoint from this one",
    ),
    Rule(
        "closing_row",
        "drop_step",
        "the last row of an episode holds no control, or no action: it only tells where the row before it led, or "
        "what came of it (last_row = 'outcome')",
    ),
    Rule("repeated_row", "drop_step", "with order_by: the row says again what another row of its place says"),
    Rule("superseded", "drop_step", "with same_place: another row of its place is the one that counts"),
    Rule("beyond_horizon", "drop_step", "the step is H or later"),
    Rule("after_end", "drop_step", "the row's state is an end, or the episode ended at an earlier step"),
    Rule("beyond_gap", "drop_step", "the row stands behind a gap of its episode, and the card says gap = 'cut'"),
    Rule(
        "unparsable",
        "drop_episode",
        "a step, episode id, bin number, coordinate, boolean or probability that cannot be read; a probability of "
        "what was done that is not above 0, or above 1",
    ),
    Rule("repeat", "drop_episode", "the same step occurs twice in the episode"),
    Rule(
        "unknown_label",
        "coerce",
        "an undeclared label becomes OTHER; where no OTHER is declared the episode is dropped",
    ),
    Rule("bad_reward", "drop_episode", "a reward that is missing, not a number, or infinite"),
    Rule("wrong_length", "drop_episode", "an observation or control that has not the declared number of coordinates"),
    Rule("not_finite", "drop_episode", "an observation or control with a coordinate that is missing, NaN or infinite"),
    Rule("gap", "drop_episode", "the steps that are left are not 0, 1, …, k; with order_by: rows too far apart"),
    Rule("early_end", "drop_episode", "the card declares no ends, but the episode ends before step H - 1"),
    Rule("over_cap", "over_cap", "an episode beyond the episodes_per_user with the smallest keyed hashes"),
    Rule(
        "two_spellings",
        "coerce",
        "the person's id is delivered in several spellings, such as 7 and 7.0: they are one person",
    ),
    Rule(
        "same_place",
        "coerce",
        "with order_by: another row of the episode stands at the same place; a hash decides which is the earlier step",
    ),
    Rule(
        "leads_elsewhere",
        "coerce",
        "the logged next state is not the state of the episode's next row: the row leads where the next row is",
    ),
    Rule("reward_range", "coerce", "a reward outside the declared range is clipped to it"),
    Rule("reward_off_lattice", "coerce", "a reward between two lattice points is floored"),
    Rule(
        "beyond_radius",
        "coerce",
        "an observation, control or next observation longer than declared: the row is shortened when it is summed",
    ),
)

BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}
DROPS: frozenset[Effect] = frozenset({"drop_step", "drop_episode", "over_cap"})


# Rules of an episode: aggregates over the rows of one episode that no step rule dropped, in the order of their steps.
_OF_EPISODES: dict[str, pl.Expr] = {
    "unparsable": pl.col("unreadable").any(),
    # the second of two rows of a step is marked among all rows of the episode
    "repeat": pl.col("repeated").first(),
    "unknown_label": pl.col("homeless").any(),
    "bad_reward": pl.col("not_a_reward").any(),
    "wrong_length": pl.col("wrong_length").any(),
    "not_finite": pl.col("not_finite").any(),
    # steps are readable and distinct here, so this means 0 … k
    "gap": (pl.col("step").first() != 0) | (pl.col("step").last() + 1 != pl.len()),
}
_OF_VECTORS = ("wrong_length", "not_finite")
_OF_TABLES = ("unknown_label", "bad_reward")
# Rules whose rows have no known person.
NAMELESS = ("malformed_line", "null_user", "inexact_user", "missing_column")
COERCED: dict[str, pl.Expr] = {
    "unknown_label": pl.col("relabelled"),
    "same_place": pl.col("same_place"),
    "leads_elsewhere": pl.col("leads_elsewhere"),
    "reward_range": pl.col("clipped"),
    "reward_off_lattice": pl.col("floored"),
}


def coercions(card: AnyCard) -> dict[str, pl.Expr]:
    """Rules that change a cell of an accepted row, or give it a place."""
    if isinstance(card, Card) and card.domain.observation is None:
        return COERCED
    return (COERCED if isinstance(card, Card) else {}) | {"beyond_radius": pl.col("beyond_radius")}


def null_user(user: pl.Expr) -> pl.Expr:
    """Mark of rows without a user id."""
    return user.is_null() | (user.cast(pl.String).str.strip_chars() == "")


def beyond_horizon(card: AnyCard) -> pl.Expr:
    """Mark of rows at step H or later; steps that cannot be read are another rule's."""
    return (pl.col("step") >= card.domain.horizon).fill_null(value=False)


def terminates(card: Card) -> pl.Expr:
    """Mark of rows that themselves end their episode."""
    return pl.col("terminated") | _in_end("state", card) | _in_end("logged", card)


def step_rules(card: AnyCard) -> dict[str, pl.Expr]:
    """Rules that drop one step, in table order; ``ended`` is the first step at which the episode was over."""
    after_end = (pl.col("step") > pl.col("ended")).fill_null(value=False)
    if isinstance(card, Card):
        drops = {"closing_row": pl.col("closing")} if card.source.last_row == "outcome" else {}
        drops |= {"beyond_horizon": beyond_horizon(card), "after_end": _in_end("state", card) | after_end}
        return drops | ({"beyond_gap": pl.col("behind")} if card.source.gap == "cut" else {})
    last = pl.col("episode").ne_missing(pl.col("episode").shift(-1))
    return {"closing_row": pl.col("no_action") & last, "beyond_horizon": beyond_horizon(card), "after_end": after_end}


def episode_rules(card: AnyCard) -> dict[str, pl.Expr]:
    """Rules that drop an episode, in table order."""
    inapplicable = _OF_TABLES
    if isinstance(card, Card):
        inapplicable = _OF_VECTORS if card.domain.observation is None else ()
    drops = {name: broken for name, broken in _OF_EPISODES.items() if name not in inapplicable}
    if isinstance(card, Card) and card.source.order_by is not None and card.source.gap == "drop":
        drops["gap"] = pl.col("behind").any()
    if isinstance(card, Card) and not card.domain.states.ends:
        # later steps of an episode that ended have been dropped
        drops["early_end"] = pl.col("step").last() < card.domain.horizon - 1
    return drops


def _in_end(column: str, card: Card) -> pl.Expr:
    return (pl.col(column) >= card.domain.states.first_terminal).fill_null(value=False)


def first_broken(rules: dict[str, pl.Expr]) -> pl.Expr:
    """Name of the first rule whose expression is true; null if none is."""
    return pl.coalesce([pl.when(broken).then(pl.lit(name)) for name, broken in rules.items()])


def check_names(card: AnyCard) -> None:
    """Refuse a tolerance for an unknown rule, or for one whose only effect is refusal.

    Raises CardError naming the key and the allowed ones.
    """
    allowed = [rule.name for rule in RULES if rule.effect != "refuse"]
    if unknown := sorted(set(card.tolerance) - set(allowed)):
        near = get_close_matches(unknown[0], allowed, n=1)
        hint = f". Did you mean {near[0]}?" if near else ""
        raise CardError(f"{card.name}: tolerance.{unknown[0]}: no such rule; allowed: {', '.join(allowed)}{hint}")


def check_tolerance(card: AnyCard, files: Sequence[Path], quarantined: Mapping[str, int], source_rows: int) -> None:
    """Compare the rows filed under each rule with the card's tolerance.

    ``card``: its [tolerance]: the share of rows that may break each rule.
    ``source_rows``: the number of rows read, of which these are shares.
    Raises LogError for the first rule, in table order, that more rows break than the card accepts.
    """
    accepted = {"inexact_user": 0.0} | card.tolerance
    for rule in sorted(accepted, key=list(BY_NAME).index):
        share = quarantined.get(rule, 0) / max(source_rows, 1)
        if share > accepted[rule]:
            ids = f"write the ids of column {card.log.roles['user']!r} as integers or text"
            raise LogError(
                f"{card.name}: {rule} ({BY_NAME[rule].meaning}): {share:.3%} of the rows, the card accepts "
                f"{accepted[rule]:.3%}; first at {_first_places(files, rule)}; "
                f"{ids if rule == 'inexact_user' else 'mend these rows'}, or raise tolerance.{rule} in the card"
            )


def _first_places(files: Sequence[Path], rule: str) -> str:
    if not files:
        return "(the quarantine was purged)"
    hits = pl.scan_parquet(list(files)).filter(pl.col("rule") == rule).select("file", "line")
    places = hits.bottom_k(5, by=["file", "line"]).sort("file", "line").collect()
    by_file = places.group_by("file", maintain_order=True).agg("line")
    # a file ends in its format, a data frame does not
    kind = {file: "line" if Path(file).suffix else "row" for file in by_file["file"]}
    return "; ".join(f"{file}, {kind[file]} {', '.join(map(str, lines))}" for file, lines in by_file.iter_rows())


def gated_rules(card: AnyCard) -> tuple[str, ...]:
    """Rules with a tolerance that a person can break, the least tolerated first.

    A line that cannot be read has no known person: its tolerance is checked at ``ingest`` alone.
    """
    # the rule ``elsewhere`` is not gated: the person breaks nothing, and the gate is not about another dataset
    possible = {*step_rules(card), *episode_rules(card), *coercions(card), "over_cap", "two_spellings"}
    gated = [rule for rule in BY_NAME if rule in card.tolerance and rule in possible]
    return tuple(sorted(gated, key=lambda rule: card.tolerance[rule]))
