"""A card and a recipe proposed from a log: for the operator, who changes them by what is known without looking.

Values read off people's records depend on these people.  So the card lists in [provenance] which keys were read off;
``register`` enters the look in the ledger, and the certificate says so.  Counts are printed to the operator's terminal
and stand in no file: the card has a reason beside each key, and no counted number but those it declares.  A note names
what may make the card wrong silently (duplicate rows, shared ids, open ends); the operator is asked about what would
ruin the run (:class:`~pipeline.operator.look.QuestionError`).

Long because a card is one thing: each key is read off the same log, beside the note or question that goes with it.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import polars as pl

from pipeline.declaration.card import MOST
from pipeline.declaration.numbers import clean
from pipeline.declaration.toml import CardError
from pipeline.logs import contribution_bounding, decode
from pipeline.operator import look as looking
from pipeline.operator.look import PART, Answers, Column, Look, QuestionError, Read, look_at, plain_name
from pipeline.operator.proposal import FRAME_FILE, NAMED, Draft, Key, listed, patterns, quoted
from pipeline.privacy.budget import largest_delta

# shares: below the first a trap is negligible; an explanation must cover the second
_SOME, _MOST = 0.01, 0.9
# three numbers of a date, a month by its name between day and year, or 20260131T0905
_DATED = (
    r"(?i)^\d{1,4}([-/.])\d{1,2}([-/.])\d{1,4}\b"
    r"|\b\d{1,2}[\s.-]+(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[\s.-]+\d{2}"
    r"|\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+\d{1,2}\b.*\d{4}|^\d{8}T\d{4}"
)
# columns of events of MEDS
_EVENTS = {"subject_id", "time", "code", "numeric_value"}
# a column of more distinct texts is not a site
_SITES = 200
_MOST_LATTICE = 10_000

# a label must be that of this share of the people to be worth a place in the card
_RARE = 0.001
FEWEST = 20
"""A label, a spelling, a unit or a reward that fewer people have stands in no card."""
_BINS = (0.25, 0.5, 0.75)
_LONG, _MOST_STEPS = 0.95, 60
# words of names of outcomes of which nobody wants more
_WORSE = re.compile(
    r"died|dead|deaths?|deceased|mortality|readmi\w+|rehospital\w+|relaps\w+|complications?|infect\w+|adverse|bleeding|"
    r"strokes?|pain|fail\w*|dropouts?|churn\w*|default\w*|errors?|complaints?|absences?|los|costs?"
)
# words beside these that turn their sense
_LESS = {
    "free", "relief", "reduction", "reduced", "saved", "saving", "savings", "avoided", "prevented", "without", "no",
}  # fmt: skip
# most different rewards that a note lists
_FEW_WORTHS = 10
# shares of short episodes that are worth a note, and a question
_FEW, _MANY = 0.01, 0.1
_IN_WORDS = {"user": "person", "episode": "episode", "order": "order of rows", "terminated": "end"} | {
    role: f"{role} (what {meaning})" for role, meaning in looking.MEANS.items()
}
# rules that empty a log when its format changes, and the share of people that the card accepts
_GATE = 0.1
_STOPS = {
    "unparsable": "share of people: above it `run` stops before its budget is spent",
    "unknown_label": "of people with labels that the card does not have",
    "bad_reward": "of people with rewards that are no numbers",
    "repeat": "of people with two rows at one step",
}
_CHANGED = {
    "reward_range": "of people with rewards beyond the range",
    "reward_off_lattice": "of people with rewards that are rounded down",
}
# least share of a state's rows at which dp-one-step advises an action that others judge
ADVISED = 0.1
_NAME = re.compile(r"[^a-z0-9_-]+")


def human(value: float, scale: float) -> float:
    """Round a value to a plain number, as a person would at this scale: 127.3 at a scale of 30 becomes 125."""
    if not scale or not value:
        return undusted(value)
    unit = 10 ** math.floor(math.log10(abs(scale)))
    unit = unit / 2 if abs(scale) / unit >= 2 else unit / 10
    return undusted(round(value / unit) * unit)


def undusted(value: float) -> float:
    """Round to ten digits, which removes floating-point error."""
    return float(f"{value:.10g}")


def quantile(values: pl.Series, q: float) -> float:
    """Quantile that is one of the values."""
    return float(values.quantile(q, "nearest") or 0.0)


def share(mask: pl.Series) -> float:
    """Share of the rows that a mask marks."""
    return int(mask.sum()) / max(1, len(mask))


def _shared(cells: pl.Series, users: pl.Series) -> dict[str, int]:
    """Count people by text, for the texts that enough people have."""
    pairs = pl.DataFrame([cells.alias("text"), users.alias("user")]).drop_nulls().unique()
    return dict(pairs.group_by("text").len().filter(pl.col("len") >= FEWEST).rows())


def _table(values: Mapping[str, object]) -> str:
    """Format an inline TOML table."""
    pairs = (f"{quoted(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
    return f"{{ {', '.join(pairs)} }}"


def _outward(value: float) -> float:
    """Round up to two digits."""
    unit = 10 ** (math.floor(math.log10(abs(value))) - 1) if value else 1.0
    return undusted(math.ceil(value / unit) * unit)


def _lattice(rewards: pl.DataFrame) -> float:
    """Coarsest of the usual units of which the rewards of all but a few people are multiples; else a millionth."""
    # twenty of fifty people are not few
    few = min(FEWEST, max(1, rewards["user"].n_unique() // 10))
    for unit in (100.0, 50.0, 25.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.25, 0.2, 0.1, 0.05, 0.01, 0.001, 1e-4):
        parts = rewards["paid"] / unit
        if rewards.filter((parts - parts.round()).abs() >= 1e-6)["user"].n_unique() < few:
            return unit
    return 1e-6


def _common_range(rewards: pl.DataFrame) -> tuple[float, float]:
    """Least and largest reward; without those of few people, and then rounded outwards."""
    ranges = rewards.group_by("user").agg(low=pl.col("paid").min(), high=pl.col("paid").max())
    rank = min(FEWEST, len(ranges)) - 1
    low, high = float(ranges["low"].sort()[rank]), float(ranges["high"].sort(descending=True)[rank])
    low, high = min(low, high), max(low, high)
    if low > float(ranges["low"].min() or 0.0):  # pyright: ignore[reportArgumentType]
        low = 0.0 if 0 < low <= high / 2 else -_outward(-low)
    return low, _outward(high) if high < float(ranges["high"].max() or 0.0) else high  # pyright: ignore[reportArgumentType]


def _as_options(worths: Iterable[tuple[str, float]]) -> str:
    return " ".join(f"--word {shlex.quote(f'{text}={worth:g}')}" for text, worth in worths)


def _answered_range(text: str) -> tuple[float, float]:
    """Least and most that a reward can be, as the operator wrote them.

    Raises CardError if they are no such numbers.
    """
    low, _, high = text.partition(":")
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = 0.0, 0.0
    if not -MOST <= ends[0] < ends[1] <= MOST:
        raise CardError(f"draft: --rewards {text!r}: write LEAST:MOST, such as -100:1, in ±{MOST:g}")
    return ends


def _beyond(value: float) -> float:
    """Round away from 0 to a power of ten: of whose it is no more is told."""
    return math.copysign(10.0 ** math.ceil(math.log10(abs(value))), value) if value else 0.0


def _spelling(text: str) -> str:
    """Form that all spellings of a label share: without case, accents, extra blanks, blanks before a unit, and ".0".

    Of an amount it is that in grams or litres: 0.5 g and 500 mg are one dose.
    """
    plain = re.sub(r"(?<=\d)\.0+(?![\d.])", "", " ".join(plain_name(text).split()))
    plain = re.sub(r"(?<=\d)\s+(?=[^\d\s])", "", plain)
    amount = re.fullmatch(r"(\d+(?:\.\d+)?)(\D+)", plain)
    if amount is None or (worth := looking.WORTH.get(amount[2])) is None:
        return plain
    return f"{float(amount[1]) * worth:.9g}{amount[2][-1]}"


def _edges(column: Column, quantiles: Sequence[float]) -> list[float]:
    values = column.values.drop_nulls()
    return sorted({human(quantile(values, q), quantile(values, 0.75) - quantile(values, 0.25)) for q in quantiles})


@dataclass(frozen=True)
class Endings:
    """How episodes end.

    ``paid_last``: whether nearly all rewards but empty ones and 0 stand in last rows.  ``repeated``: whether every row
    of an episode holds the same reward.  ``flagged``: whether the column of ends is true on last rows alone.
    ``closing``: positions of last rows without an action.
    """

    paid_last: bool
    repeated: bool
    flagged: bool
    closing: pl.Series

    @property
    def late(self) -> bool:
        """Whether rewards come at the end, so that an empty cell pays 0."""
        return self.paid_last or len(self.closing) > 0


@dataclass
class _Log:
    """A log on its way to a card, and the notes for the operator.

    ``rows``: ``at`` (the position in the log), ``user``, ``episode`` and ``order`` of each row that names a person.
    ``users``: the person of each row of the log, or null.
    """

    read: Read
    answers: Answers
    role: dict[str, str]
    look: Look
    rows: pl.DataFrame
    users: pl.Series
    notes: list[str]
    # rules of rewards that few people of this log break: where many do, the unit of the column has changed
    kept: list[str] = field(default_factory=list)

    def column(self, role: str) -> Column:
        """Column of a role."""
        return self.look.columns[self.role[role]]

    def same_place(self, part: pl.Series | None) -> list[Key]:
        """Keep one of several rows of a person at one place; note the columns or files that distinguish them.

        ``part``: the file of each row; None of a frame.
        Raises QuestionError if rows stand at one place and the answers do not say which counts.
        """
        place = ["user", "episode", "order"]
        rows, columns, role = self.rows, self.look.columns, self.role
        rows = rows.filter(pl.col("order").is_finite())
        ties = int(rows.select(pl.struct(place).is_duplicated().sum()).item())
        if "order" not in role or not ties:
            return []
        order, user = repr(role["order"]), repr(role["user"])
        seen = f"{ties:,} rows ({ties / len(rows):.1%}) stand at the same {order} as another row of their {user}"
        warnings = list[str]()
        sites = {
            repr(name): c.cells
            for name, c in columns.items()
            if name not in role.values() and 1 < c.distinct <= _SITES and not c.missing
        }
        sites |= {"file": part} if part is not None and part.n_unique() > 1 else {}
        for name, cells in sites.items() if ties > _SOME * len(rows) else ():
            apart = rows.with_columns(cells.gather(rows["at"]).alias("site"))
            remaining = int(apart.select(pl.struct(*place, "site").is_duplicated().sum()).item())
            if remaining <= (1 - _MOST) * ties:
                warnings.append(
                    f"{seen}, and {name} tells them apart: if its ids begin anew in each {name}, people of several are "
                    "taken for one here; write a column of both, such as north-17, and name it with --user"
                )
                break
        answer = self.answers.several
        if answer is None and (ties > _SOME * len(rows) or not columns[role["order"]].numbers >= 1):
            finer = [
                c.name for c in columns.values() if c.ordered >= 0.9 and c.distinct > 1 and c.name not in role.values()
            ]
            by = [f"--several {shlex.quote(f'{choice}:{name}')}" for name in finer[:3] for choice in ("last", "first")]
            steps = [f"--order {shlex.quote(name)}" for name in finer[:3] if self._differs(rows, columns[name].values)]
            # rows of one place with different states are different steps; with one state, a row corrects another
            states = columns[role["state"]].cells.gather(rows["at"]).alias("seen")
            tied = rows.with_columns(states).filter(pl.struct(place).is_duplicated())
            several_states = tied.group_by(place).agg(pl.col("seen").n_unique() > 1)["seen"]
            options = [*steps, *by] if share(several_states) > 1 - _MOST else [*by, *steps]
            why = f". {warnings[0]}" if warnings else ""
            finely = "; or is each a step, in the order of another column" if steps else ""
            raise QuestionError(
                f"{seen}{why}. Which counts: the last or the first by another column, or each (then a hash decides "
                f"which is the earlier step){finely}?",
                [*options, "--several each"],
            )
        if answer in (None, "each"):
            self.notes += warnings or [
                f"{seen}: a hash decides which is the earlier step; name a finer column with --order"
            ]
            return []
        self.notes += warnings
        keep, _, by = answer.partition(":")
        if keep not in ("first", "last") or by not in columns:
            raise CardError(
                f"draft: --several {answer!r}: write each, or first:COLUMN or last:COLUMN, with a column of the log"
            )
        if columns[by].ordered < _MOST:
            raise CardError(
                f"draft: --several {answer!r}: {by!r} holds no numbers and no dates such as 2026-01-31 13:30; say how "
                "they are written with --dates, write them so, or name another column"
            )
        value = f"{{ keep = {quoted(keep)}, by = {quoted(by)} }}"
        entered = pl.Series("entered", columns[by].values.gather(self.rows["at"]))
        rows = self.rows.with_columns(entered).sort("entered", descending=keep == "first", nulls_last=keep == "first")
        self.rows = rows.unique(place, keep="last", maintain_order=True).drop("entered").sort("at")
        return [Key("source.same_place", value, "of several rows at one place this one counts", seen)]

    def each_alone(self, answered: bool) -> None:
        """Take each row for an episode, where no column orders the rows of a person.

        Raises QuestionError if some column may, be it by dates in a form that nobody reads, and it is not ``answered``
        that none does.
        """
        others = [c for c in self.look.columns.values() if c.name not in self.role.values()]
        dates = [c for c in others if self._looks_dated(c) and self._differs(self.rows, c.cells)]
        if dates and not answered:
            named = f"{dates[0].name!r} looks like one ({dates[0].cells.drop_nulls()[0]!r})"
            raise QuestionError(
                f"{self.role['user']!r} has several rows, and no date that can be read orders them: {named}. Write it "
                "as 2026-01-31 13:30, on a clock of 24 hours, and draft again; or is each row an episode of its own "
                "(none)?",
                ["--order none"],
            )
        counts = [
            f"--order {shlex.quote(c.name)}"
            for c in others
            if c.numbers >= 1 and (c.values.drop_nulls() % 1 == 0).all() and self._differs(self.rows, c.values)
        ]
        if counts and not answered:
            raise QuestionError(
                f"{self.role['user']!r} has several rows, and no date orders them. Which column does, or is each row "
                "an episode of its own (none)?",
                [*counts[:8], "--order none"],
            )
        self.notes.append(
            "no column orders the rows of a person: the card takes each row for an episode of its own; if they follow "
            "each other, name what orders them with --order COLUMN"
        )
        self.rows = self.rows.with_columns(episode=pl.col("at").cast(pl.String))

    @staticmethod
    def _looks_dated(column: Column) -> bool:
        """Whether a column's texts look like dates or times, though not in a form that ingest reads."""
        texts = column.cells.drop_nulls()
        return column.ordered < _MOST and len(texts) > 0 and share(texts.str.contains(_DATED)) >= _MOST

    @staticmethod
    def _differs(rows: pl.DataFrame, cells: pl.Series) -> bool:
        """Whether nearly all rows of an episode differ in the cells of a column."""
        finer = rows.select("user", "episode", by=cells.gather(rows["at"]))
        return share(finer.select(pl.struct(pl.all()).is_duplicated()).to_series()) < _SOME

    def endings(self) -> Endings:
        """Find how episodes end."""
        rows, columns, role = self.rows, self.look.columns, self.role
        episodes = rows.sort("order").group_by("user", "episode", maintain_order=True)
        last = episodes.agg(pl.col("at").last(), pl.len().alias("rows")).filter(pl.col("rows") > 1)
        none = pl.Series("at", [], dtype=rows.schema["at"])
        # the only row of an episode does not tell
        several = rows.filter(pl.len().over("user", "episode") > 1)["at"]

        def share_on_last(mask: pl.Series) -> float:
            return int(mask.gather(last["at"]).sum()) / max(1, int(mask.gather(several).sum()))

        reward, flag = columns.get(role.get("reward", "")), columns.get(role.get("terminated", ""))
        no_action, closing = columns[role["action"]].cells.is_null(), none
        candidates = last["at"].filter(no_action.gather(last["at"]))
        if len(candidates) > _SOME * len(last) and share_on_last(no_action) >= _MOST:
            closing = candidates
        paid_last = repeated = False
        if reward is not None and len(last):
            pays = reward.values.is_not_null() & (reward.values != 0)
            some_unpaid = reward.missing > _SOME or int((~pays).sum()) > _SOME * len(pays)
            paid_last = some_unpaid and share_on_last(pays) >= _MOST
            rewards = rows.select("user", "episode", paid=reward.values.gather(rows["at"]))
            by_episode = rewards.drop_nulls("paid").group_by("user", "episode")
            by_episode = by_episode.agg(pl.col("paid").n_unique().alias("n"), pl.len().alias("rows"))
            by_episode = by_episode.filter(pl.col("rows") > 1)
            repeated = (
                share(by_episode["n"] == 1) > 0.99
                and len(by_episode) > FEWEST
                and rewards["paid"].drop_nulls().n_unique() > 1
            )
        return Endings(
            paid_last=paid_last,
            repeated=repeated,
            flagged=flag is not None and share_on_last(decode.read_flag(flag.cells)["value"]) >= _MOST,
            closing=closing,
        )

    def paying(self, ends: Endings, words: Sequence[Key]) -> list[Key]:
        """Keys of the reward: range, lattice, worth of an empty cell.

        Raises CardError if no reward is a number.
        Raises QuestionError if the rewards of few people move the mean, and no answer says whether they are cut.
        """
        rows, notes = self.rows, self.notes
        if "reward" not in self.role:
            notes.append("no column of rewards was found: name it with --reward, or declare [reward] on_entering")
            return [Key("reward.range", "[0.0, 1.0]", "no column of rewards was found")]
        column = self.column("reward")
        rewards = column.values.drop_nulls()
        if not len(rewards):
            raise CardError(f"draft: no cell of {column.name!r} is a number; name another column with --reward")
        values = rewards.unique().sort()
        user_rewards = rows.select("user", paid=column.values.gather(rows["at"])).drop_nulls().unique()
        # no minus before a zero
        declared = None if self.answers.rewards is None else _answered_range(self.answers.rewards)
        low, high = declared or (end + 0.0 for end in _common_range(user_rewards))
        if column.missing and ends.late:
            if declared is not None and not low <= 0 <= high:
                notes.append(f"an empty cell pays 0, so that the range is not {low:g} to {high:g}: it reaches to 0")
            low, high = min(low, 0.0), max(high, 0.0)
        if declared is None and (high < quantile(values, 1) or low > quantile(values, 0)):
            notes.append(f"rewards outside {low:g} to {high:g}, which fewer than {FEWEST} people have, are clipped")
        if column.numbers < 1:
            notes.append(
                f"{1 - column.numbers:.1%} of the rewards are no numbers: their episodes are dropped (bad_reward)"
            )
        if low == high:
            every = "every reward" if len(values) == 1 else "nearly every reward"
            notes.append(f"{every} is {low:g}: there is nothing to learn from it; name another column with --reward")
        usual = quantile(rewards, 0.999)
        if declared is None and high > 3 * max(abs(usual), 1e-9) and usual > low:
            notes.append(
                f"the largest rewards reach {high:g}, but 999 in 1,000 are at most {usual:g}: larger ones are clipped"
            )
            high = usual
        unit = _lattice(user_rewards.filter(pl.col("paid").is_between(low, high)))
        # what few people have may lie between: a range of 0 to 100 would round all of it down
        unit = min(unit, high - low or 1.0)
        low, high = math.floor(round(low / unit, 6)) * unit, math.ceil(round(high / unit, 6)) * unit
        low = min(low, 0.0) if declared is None and low < unit * 5 else low
        high = max(high, low + unit)
        steps = max(1, round((high - low) / unit))
        if steps > _MOST_LATTICE:
            unit = human((high - low) / 1000, (high - low) / 1000)
            low, high = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
            steps = max(1, round((high - low) / unit))
        place = (pl.col("paid") - low) / (high - low) * steps
        inside = pl.col("paid").is_between(low - unit * 1e-6, high + unit * 1e-6)
        broken = {"reward_range": ~inside, "reward_off_lattice": inside & ((place - place.round()).abs() > 1e-6)}
        people = max(1, user_rewards["user"].n_unique())
        changed = {rule: user_rewards.filter(wrong)["user"].n_unique() / people for rule, wrong in broken.items()}
        self.kept += [rule for rule, few in changed.items() if few <= _GATE / 2]
        if declared is None:
            counted = column.values.gather(rows["at"]).drop_nulls()
            self._ask_of_rare(counted.filter(counted.is_finite()), low, high)
        if not self.answers.words and len(values) > 1:
            self.direction(column, float(values[0] + values[-1]))
        # of an outcome whose worths are given, its name alone does not say which is better
        called = quoted(("worth of " if self.answers.words else "") + clean(column.name)[:60])
        seen = f"{values[0]:g} to {values[-1]:g}, mean {rewards.mean() or 0:.4g}, {len(values):,} different"
        return [
            Key("reward.called", called, "what the page calls the score; a policy seeks more of it"),
            Key("reward.range", listed([undusted(low), undusted(high)]), "outside it a reward is clipped", seen),
            Key("reward.steps", str(steps), f"multiples of {undusted(unit):g}; a reward between two is rounded down",
                 f"rewards are multiples of {unit:g}"),
            *words,
            *self._empty(column, ends),
            *self._paid(column, ends, low, high),
        ]  # fmt: skip

    def _ask_of_rare(self, rewards: pl.Series, low: float, high: float) -> None:
        """Ask which rewards can be, if a few that lie far outside of the proposed range move the mean.

        Raises QuestionError.
        """
        # no card has a larger one, and a sum of them no number
        rewards = rewards.clip(-MOST, MOST)
        least, most, wide = quantile(rewards, 0), quantile(rewards, 1), high - low
        if least >= low - wide and most <= high + wide:
            return
        mean, cut = (math.fsum(paid) / len(paid) for paid in (rewards, rewards.clip(low, high)))
        if abs(mean - cut) <= _SOME * wide:
            return
        ends = min(low, _beyond(least)), max(high, _beyond(most))
        raise QuestionError(
            f"few people have rewards outside {low:g} to {high:g}, and these move the mean from {cut:.3g} to "
            f"{mean:.3g}: what are the least and the most that a reward can be? What lies outside is clipped, so that "
            "a rare heavy loss counts as a small one; the wider the range, the more noise",
            [f"--rewards {first:g}:{last:g}" for first, last in (ends, (low, high))],
        )

    def direction(self, column: Column, ends: float) -> None:
        """Note that more of the reward counts as better, and how to say the opposite; ``ends``: least plus largest.

        Raises QuestionError if its name says that more is worse.
        """
        shared = _shared(column.cells, self.users)
        pairs = pl.DataFrame({"text": column.cells, "worth": column.values})
        worth = pairs.drop_nulls().unique().sort("worth")
        few = len(worth) <= _FEW_WORTHS and set(worth["text"]) <= set(shared)
        worths = [(str(text).strip(), float(paid)) for text, paid in worth.rows()]
        turned = _as_options((text, ends - paid) for text, paid in worths)
        # costs below 0 have their sign already
        words = looking.words_of(column.name)
        worse = any(map(_WORSE.fullmatch, words)) and _LESS.isdisjoint(words) and quantile(column.values, 1) > 0
        if few and worse:
            raise QuestionError(
                f"a policy seeks more of the score, and by its name more of {column.name!r} is worse: is it?",
                [turned, _as_options(worths)],
            )
        how = turned if few else "turn its sign in the log"
        when = "by its name less of it is better" if worse else "if less of it is better"
        self.notes.append(f"a policy seeks more of {column.name!r}; {when}: {how}")

    def end_when_paid(self) -> None:
        """Let a person's only payment end the episode if rows follow it: states do not say who was paid already."""
        paid, ordered = self.column("reward"), self.rows.sort("order")
        pays = (paid.values.gather(ordered["at"]) > 0).fill_null(value=False)
        ordered = ordered.with_columns(pays.cast(pl.Int64).alias("paid"))
        over = ordered.select("user", past=pl.col("paid").cum_sum().over("user", "episode") > pl.col("paid"))
        if "terminated" in self.role or over.filter("past")["user"].n_unique() < FEWEST:
            return
        if decode.read_flag(paid.cells)["unread"].any():
            self.notes.append(
                "rows follow the one that is paid, and the state does not say who was: a policy that is paid earlier "
                f"looks better than it is; add a column that ends an episode when it is paid ({paid.name!r} holds "
                "other numbers)"
            )
            return
        self.role["terminated"] = self.role["reward"]
        self.notes.append(
            f"nobody is paid again, and the state does not say who was paid: the card ends an episode with the row "
            f"that pays (terminated = {quoted(paid.name)}); what follows it is set aside (`after_end`)"
        )

    def _paid(self, column: Column, ends: Endings, low: float, high: float) -> list[Key]:
        """Keys for an outcome that is paid once, and for the most that one person is paid.

        Raises QuestionError if every row of an episode holds the same reward, and no answer says whether each pays it.
        """
        rows, answer = self.rows, self.answers.paid
        if answer not in (None, "each", "last"):
            raise CardError(f"draft: --paid {answer!r}: write last or each")
        if ends.repeated and answer is None:
            raise QuestionError(
                f"every row of an episode holds the same {column.name!r}: is it one outcome, which the last row pays, "
                "or does each row pay it?",
                ["--paid last", "--paid each"],
            )
        keys = list[Key]()
        if answer == "last":
            why = "one outcome an episode: its last row pays it"
            keys.append(Key("reward.paid", '"last"', why, "the same on every row"))
        paying = rows if answer != "last" else rows.sort("order").group_by("user", "episode").agg(pl.col("at").last())
        paid = rows.select("at", "user").join(paying.select("at"), on="at", how="semi").sort("at")
        pays = (column.values.gather(paid["at"]) > 0).fill_null(value=False)
        counts = paid.filter(pays).group_by("user").len()["len"]
        several = rows.select(pl.struct("user", "episode").is_duplicated().any()).item()
        if low == 0 and several and len(counts) and int(counts.max() or 0) == 1:  # pyright: ignore[reportArgumentType]
            why = "of one person, whatever is done; without it if one may be paid twice"
            keys.append(Key("reward.total", f"{undusted(high):g}", why, "nobody is paid more than once"))
            self.notes.append(
                "nobody is paid more than once: the card says that nobody can be (reward.total); is that so?"
            )
        return keys

    def _empty(self, column: Column, ends: Endings) -> list[Key]:
        if not column.missing:
            return []
        seen = f"{column.missing:.1%} of the rewards are empty"
        ordered, empty = self.rows.sort("order"), pl.col("empty")
        ordered = ordered.with_columns(column.values.is_null().gather(ordered["at"]).alias("empty"))
        by_episode = ordered.group_by("user", "episode", maintain_order=True)
        episodes = by_episode.agg(first=empty.first(), empty=empty.sum(), rows=pl.len())
        # of two rows the last holds what came of the first in any case
        longer = episodes.filter(pl.col("rows") > 2)
        # then a row would be taken for the cause of what was there before it
        a_row_late = int(longer["first"].sum()) >= _MOST * max(1, int(longer["empty"].sum()), len(longer))
        if a_row_late and len(ends.closing) and self.answers.paid != "each":
            raise QuestionError(
                f"{column.name!r} is empty in first rows alone, and last rows without an action hold it: if a row "
                "holds what came of the row before it, write it into that row of the log, and leave last rows without "
                "it. Or does each row pay its own?",
                ["--paid each"],
            )
        if ends.late:
            told = self.rows.select("user", "episode", paid=column.values.gather(self.rows["at"]))
            unknown = told.group_by("user", "episode").agg(pl.col("paid").is_null().all())["paid"]
            values = column.values.drop_nulls().unique().sort()
            # where a 0 is never written, an empty cell may be one, but hardly beside scores of 50 to 60
            elsewhere = "a 0 is written" if (values == 0).any() else f"it is {values[0]:g} at least"
            far = len(values) > 1 and 0 < values[-1] <= 2 * values[0]
            if share(unknown) > _SOME and (far or (values == 0).any()):
                self.notes.append(
                    f"{share(unknown):.1%} of the episodes hold no {column.name!r} at all, and elsewhere {elsewhere}: "
                    "empty = 0.0 takes what is not known, or not known yet, for 0, so that what is known late "
                    "looks worse than it is; write 0 in the rows that pay nothing, and take that key out"
                )
            return [Key("reward.empty", "0.0", "what a row without a reward pays: rewards come at the end", seen)]
        lost = f"{share(episodes['empty'] > 0):.1%} of the episodes are dropped for it (bad_reward)"
        if a_row_late:
            self.notes.append(
                f"{seen}, those of first rows alone: {lost}. If a row holds what came of the row before it, write it "
                "into that row, and leave out last rows, of which nothing is known yet; empty = 0.0 would pay it for "
                "the next choice"
            )
            return []
        self.notes.append(f"{seen}: {lost}, unless empty = 0.0 under [reward] says they pay 0")
        return []

    def words(self) -> list[Key]:
        """Key for the rewards of an outcome in words, whose column is replaced by one of numbers.

        Raises QuestionError if a word is neither yes nor no, and no answer gives its reward.
        """
        column = self.look.columns.get(self.role.get("reward", ""))
        if column is None or (column.numbers > 0 and not self.answers.words):
            return []
        texts = sorted(_shared(column.cells, self.users))
        if column.numbers > 0:
            # other numbers pay what they say
            texts = [text for text in texts if text.strip() in self.answers.words]
        worth = {
            text: self.answers.words.get(text.strip(), looking.SAYS.get(plain_name(text.strip()))) for text in texts
        }
        if None in worth.values() or not worth:
            likely = ("WORTH" if w is None else f"{w:g}" for w in worth.values())
            options = (f"--word {shlex.quote(f'{text}={w}')}" for text, w in zip(worth, likely, strict=True))
            raise QuestionError(f"the outcome {column.name!r} is in words: what is each worth?", [" ".join(options)])
        paid = {text.strip(): float(w) for text, w in worth.items() if w is not None}
        other = column.values if column.numbers > 0 else None
        plain = column.cells.str.strip_chars().replace_strict(paid, default=other, return_dtype=pl.Float64)
        self.look.columns[column.name] = replace(column, plain=plain.cast(pl.String), numbers=1.0)
        if rest := int((plain.is_null() & column.cells.is_not_null()).sum()):
            self.notes.append(f"{rest:,} outcomes are other words: their episodes are dropped (bad_reward)")
        return [Key("reward.words", _table(paid), "what an outcome in words pays", ", ".join(paid))]

    def optional(self) -> list[Key]:
        """Key for the columns of the card that some file lacks.

        Raises CardError if people are not named in each file.
        """
        read, role = self.read, self.role
        if role["user"] in read.optional:
            raise CardError(
                f"draft: a file lacks the column {role['user']!r} of people; if it has another name, --rename it"
            )
        named = [name for name in read.optional if name in (*role.values(), *self.answers.parts)]
        return [Key("source.optional", listed(named), "some file lacks it: its cells are empty there")] if named else []

    def written(self) -> list[Key]:
        """Keys for notations of the log that ingest does not read by default."""
        look, keys, separator = self.look, list[Key](), self.read.separator
        if separator != ",":
            keys.append(Key("source.separator", quoted(separator), "between the cells"))
        if rename := {theirs: ours for theirs, ours in self.answers.rename.items() if ours}:
            keys.append(Key("source.rename", _table(rename), "what other files call these columns"))
        if look.numbers is not None:
            keys.append(Key("source.numbers", quoted(look.numbers), "how the log writes numbers", look.numbers))
        if look.dates and look.columns[self.role.get("order", self.role["user"])].is_date:
            forms = quoted(look.dates[0]) if len(look.dates) == 1 else listed(look.dates)
            why = "how the log writes dates, beside 2026-01-31"
            keys.append(Key("source.dates", forms, why, ", ".join(look.dates)))
        # those of columns that the card does not read as numbers are for `inspect`
        units = {c.name: self._common_units(c) for c in look.columns.values() if c.name != self.role["action"]}
        if units := {name: worth for name, worth in units.items() if worth}:
            inner = ", ".join(f"{quoted(name)} = {_table(worth)}" for name, worth in units.items())
            seen = "; ".join(f"{name}: {', '.join(worth)}" for name, worth in units.items())
            keys.append(Key("source.units", f"{{ {inner} }}", "units behind the numbers, and what each is worth", seen))
        return keys

    def _common_units(self, column: Column) -> Mapping[str, float]:
        """Units that the cells of enough people have; a rarer text behind a number may identify a person."""
        text = column.cells.str.strip_chars()
        marks = {unit: text.str.ends_with(unit) | text.str.starts_with(unit) for unit in column.units}
        people = {unit: self.users.filter(mark.fill_null(value=False)).n_unique() for unit, mark in marks.items()}
        common = {unit: worth for unit, worth in column.units.items() if people[unit] >= FEWEST}
        if len(common) < len(column.units):
            self.notes.append(
                f"fewer than {FEWEST} people have some texts behind numbers of {column.name!r}: they are no units"
            )
        return common

    def unit(self) -> list[Key]:
        rows, user, n = self.rows, self.role["user"], self.rows["user"].n_unique()
        episodes = rows.select("user", "episode").unique().group_by("user").len()["len"]
        most, m = int(episodes.max() or 1), max(1, math.ceil(quantile(episodes, _LONG)))  # pyright: ignore[reportArgumentType]
        for column in self.answers.users:
            if column != user:
                self.notes.append(
                    f"{column!r} has {self.look.columns[column].distinct:,} ids for {n:,} in {user!r}: with it, one "
                    "person would be protected as several"
                )
        # to two digits
        scale = 10 ** max(0, len(str(n)) - 2)
        public = max(1, round(n / scale) * scale)
        return [
            Key("unit.user", quoted(user), "whose privacy: everything of one of them is one record",
                 f"{n:,} people, {len(rows) / max(1, n):.3g} rows each"),
            Key("unit.episodes_per_user", str(m), "enough for 95 in 100 people; what others have beyond it is dropped",
                 f"at most {most} episodes a person"),
            Key("unit.users_public", str(public), "put the number that is public in its place",
                 f"{n:,} counted: that number is yours alone"),
        ]  # fmt: skip

    def horizon(self, ends: Endings) -> tuple[int, Key]:
        lengths = most = pl.Series([1])
        if "order" in self.role:
            episodes = self.rows.group_by("user", "episode").len()
            lengths = episodes["len"]
            # as many steps as enough people have
            most = episodes.group_by("user").agg(pl.col("len").max())["len"].sort(descending=True)
        longest = int(most[min(FEWEST, len(most)) - 1])
        horizon = longest if longest <= 12 else min(_MOST_STEPS, math.ceil(quantile(lengths, _LONG)))
        if horizon < int(lengths.max() or 1):  # pyright: ignore[reportArgumentType]
            note = f"steps {horizon} and later are dropped: {share(lengths > horizon):.1%} of episodes have some"
            if ends.paid_last:
                note += (
                    ", and lose the outcome in their last row: what draws an episode out looks better than it is; a "
                    "larger domain.horizon keeps it"
                )
            self.notes.append(note)
        seen = f"episodes have {quantile(lengths, 0.5):.0f} rows in the middle, {lengths.max()} at most"
        why = "steps of an episode, at most; later ones are dropped"
        return horizon, Key("domain.horizon", str(horizon), why, seen)

    def domain(self) -> list[Key]:
        state, why, seen = self._of_several() if self.answers.parts else self._states()
        actions, odd, actions_seen = self._labels("action")
        other = ", other = true" if odd else ""
        return [
            Key("domain.states", state, why, seen),
            Key("domain.actions", f"{{ column = {quoted(self.role['action'])}, {actions}{other} }}",
                 "what was done; spellings of the same are one label", actions_seen),
        ]  # fmt: skip

    def _of_several(self) -> tuple[str, str, str]:
        """States of several columns, with fewer bins each if there are more columns."""
        parts = self.answers.parts
        bins, seen, missing = list[str](), list[str](), False
        for name in parts:
            column = self.look.columns[name]
            missing |= column.missing > 0
            if column.numbers >= 0.9 and column.distinct > 4:
                self._unread(column)
                edges = _edges(column, (0.33, 0.67) if len(parts) < 3 else (0.5,))
                bins.append(f"{quoted(name)} = {listed(edges)}")
            else:
                labels = _shared(column.cells, self.users)
                if not labels:
                    raise _no_label("state", name)
                missing |= len(labels) < column.cells.drop_nulls().n_unique()
                bins.append(f"{quoted(name)} = {listed(sorted(labels))}")
                if len({_spelling(text) for text in labels}) < len(labels):
                    self.notes.append(
                        f"{name!r} has labels in several spellings, which a state of several columns cannot group"
                    )
            seen.append(f"{name}: {column.distinct:,} different, {column.missing:.1%} missing")
        other = ", other = true" if missing else ""
        why = "rounded tertiles or halves: put the thresholds that people decide by in their place"
        toml = f'{{ from = {listed(parts)}, bins = {{ {", ".join(bins)} }}, ends = ["end"]{other} }}'
        return toml, why, "; ".join(seen)

    def _unread(self, column: Column) -> None:
        """Note that a part of a column of numbers holds words, as for a value that is missing."""
        if column.numbers < 1:
            self.notes.append(
                f"{1 - column.numbers:.1%} of the filled cells of {column.name!r} are no numbers: their episodes are "
                "dropped (unparsable), and those who are left may mislead; write a missing number as an empty cell"
            )

    def _states(self) -> tuple[str, str, str]:
        column = self.column("state")
        name = quoted(column.name)
        if column.numbers >= 0.9 and column.distinct > 12:
            self._unread(column)
            values = column.values.drop_nulls()
            other = ", other = true" if column.missing else ""
            quartiles = ", ".join(f"{quantile(values, q):g}" for q in _BINS)
            seen = f"{quantile(values, 0):g} to {quantile(values, 1):g}; quartiles {quartiles}"
            seen += f"; {column.missing:.1%} missing" if column.missing else ""
            bins = f"{{ by = {name}, edges = {listed(_edges(column, _BINS))} }}"
            why = "quartiles, rounded: put the thresholds that people decide by in their place"
            return f'{{ column = {name}, bins = {bins}, ends = ["end"]{other} }}', why, seen
        labels, odd, counts = self._labels("state")
        other = ", other = true" if odd else ""
        toml = f'{{ column = {name}, {labels}, ends = ["end"]{other} }}'
        return toml, "what was seen; 'end' is where an episode leads", counts

    def unlabelled(self) -> Key:
        """Key for the share of people who may have a row without a label: about twice the present one."""
        parts, users = self.answers.parts or [self.role["state"]], self.users
        masks = [
            c.cells.is_null()
            if c.numbers >= 0.9 and c.distinct > 4
            else ~c.cells.is_in(list(_shared(c.cells, users)), nulls_equal=False)
            for c in (self.look.columns[name] for name in (*parts, self.role["action"]))
        ]
        lacking = pl.DataFrame({"user": users, **{str(i): mask.fill_null(value=True) for i, mask in enumerate(masks)}})
        people = lacking.filter(pl.any_horizontal(pl.exclude("user")))["user"].n_unique() / max(1, users.n_unique())
        if people <= _GATE / 2:
            return Key("tolerance.unknown_label", f"{_GATE}", "")
        accepted = f"{min(1.0, math.ceil(40 * people) / 20):g}"
        self.notes.append(
            f"{people:.1%} of the people have a row without a state or an action: it becomes OTHER, and the card "
            f"accepts up to {accepted} (tolerance.unknown_label); with more than that `run` stops"
        )
        return Key("tolerance.unknown_label", accepted, "", f"{people:.1%} of the people have a row without a label")

    def _labels(self, role: str) -> tuple[str, bool, str]:
        """Labels as TOML, whether some cells have none of them, and counts as a text.

        Raises CardError if too few people share a label.
        """
        column, notes = self.column(role), self.notes
        counts = column.cells.drop_nulls().value_counts(sort=True).rows()
        people, enough = _shared(column.cells, self.users), _RARE * self.users.n_unique()
        groups: dict[str, list[tuple[str, int]]] = {}
        for text, n in counts:
            if text in people:
                groups.setdefault(_spelling(text), []).append((text, n))
        frequent = {key: texts for key, texts in groups.items() if sum(people[text] for text, _ in texts) >= enough}
        if not frequent:
            raise _no_label(role, column.name)
        sums = {key: sum(n for _, n in texts) for key, texts in frequent.items()}
        rare = len(counts) - sum(map(len, frequent.values()))
        # labels are free of the control characters of a terminal
        names = {key: clean(re.sub(r"^(-?\d+)\.0+$", r"\1", texts[0][0].strip())) for key, texts in frequent.items()}
        same = {text: names[key] for key, texts in frequent.items() for text, _ in texts if text != names[key]}
        if rare:
            notes.append(
                f"{rare} texts of {role} {column.name!r}, those of fewer than {max(FEWEST, math.ceil(enough))} people, "
                "are no labels: they become OTHER"
            )

        def by_number(label: str) -> list[tuple[float, str]]:
            """Sort key that puts 5 mg before 10 mg."""
            return [(float(n), text) if n else (math.inf, text) for n, text in re.findall(r"(\d*)(\D*)", label)]

        seen = ", ".join(f"{texts[0][0].strip()} {sums[key]:,}" for key, texts in list(frequent.items())[:12])
        seen += f"; {column.missing:.1%} missing" if column.missing else ""
        toml = f"labels = {listed(sorted(set(names.values()), key=by_number))}"
        if same:
            shown = "; ".join(f"{text!r} is {label!r}" for text, label in list(same.items())[:10])
            more = f"; and {len(same) - 10} more" if len(same) > 10 else ""
            notes.append(
                f"{role} {column.name!r} is written in several ways; the card takes them as one (same_as): "
                f"{shown}{more}"
            )
            toml += f", same_as = {_table(dict(sorted(same.items())))}"
        return toml, bool(rare or column.missing), seen

    def action_shares(self) -> list[float]:
        """Shares of the rows that have each action, the largest first."""
        spelled = self.column("action").cells.drop_nulls().unique()
        key = self.column("action").cells.drop_nulls().replace_strict(spelled, [_spelling(text) for text in spelled])
        return (key.value_counts(sort=True)["count"] / max(1, len(key))).to_list()

    def source(self, horizon: int, ends: Endings, written: Sequence[Key]) -> list[Key]:
        rows, role, read, notes, last_row = self.rows, self.role, self.read, self.notes, self.answers.last_row
        if last_row not in (None, "ends", "unknown"):
            raise CardError(f"draft: --last-row {last_row!r}: write ends or unknown")
        columns = {"user_id": role["user"], "episode_id": role.get("episode", role["user"])}
        keys = [Key("source.files", listed(patterns(read.paths)), "below this card's folder"), *written]
        same_place = any(entry.key == "source.same_place" for entry in written)
        several = not rows["user"].is_unique().all()
        if several and horizon == 1 and not role.keys() & {"order", "episode"} and rows["episode"].is_unique().all():
            # each row is an episode: there is nothing to order
            del columns["episode_id"]
        elif "order" in role:
            steps, first = self._counted()
            if self.column("order").is_date or not steps or same_place or role["order"] in read.optional:
                why = "numbers the rows; see gap_over too"
                keys.append(Key("source.order_by", quoted(role["order"]), why, self._ordering()))
            else:
                columns["step"] = role["order"]
                order = pl.col("order")
                each = rows.group_by("user", "episode").agg(most=order.max(), n=order.n_unique())
                lacking = share(each["most"] - first + 1 != each["n"])
                if first:
                    keys.append(Key("source.first_step", str(first), "steps of the log begin with it", f"{first}"))
                if lacking:
                    keys.append(Key("source.gap", '"cut"', "an episode that lacks a step ends before it; or 'drop'",
                                      f"{lacking:.1%} of episodes lack a step"))  # fmt: skip
        short = share(rows.group_by("user", "episode").len()["len"] < horizon)
        if len(ends.closing) and "order" in role:
            seen = f"{len(ends.closing):,} last rows have no action"
            keys.append(Key("source.last_row", '"outcome"', "a last row without an action says what came before",
                              seen))  # fmt: skip
            notes.append(f"{seen}: they are taken for the outcome of the row before them (last_row = 'outcome')")
        elif short > _FEW and "order" in role and role.get("terminated") in (None, role.get("reward")):
            seen = f"{short:.1%} of the episodes have fewer rows than the horizon"
            if last_row is None and not (ends.paid_last or ends.repeated) and short > _MANY:
                raise QuestionError(
                    f"{seen}: is an episode of this log over with its last row, or does it go on unseen (then last "
                    "rows count in no table)?",
                    ["--last-row ends", "--last-row unknown"],
                )
            leads = last_row or ("ends" if ends.paid_last or ends.repeated else "unknown")
            why = "'ends' where an episode is over with its last row; or 'unknown'"
            keys.append(Key("source.last_row", quoted(leads), why, seen))
            if leads == "ends":
                notes.append(
                    "what comes after an episode's last row counts 0, so that an early end saves costs: where the "
                    "reward is one, let the last row hold what a bad end costs"
                )
            if last_row is None:
                notes.append(
                    f"{seen}. last_row = 'unknown' counts their last rows in no table, 'ends' takes them for the end: "
                    f"is an episode of this log over with its last row? The card says {quoted(leads)}"
                )
        columns |= {r: role[r] for r in ("reward", "terminated") if r in role}
        inner = ", ".join(f"{key} = {quoted(column)}" for key, column in columns.items())
        return [*keys, Key("source.columns", f"{{ {inner} }}", "which column plays which part", "by name and content")]

    def _counted(self) -> tuple[bool, int]:
        """Whether the order numbers the steps, and the first number."""
        rows = self.rows
        order = rows["order"].drop_nulls()
        order = order.filter(order.is_finite())
        if not len(order) or not (order == order.floor()).all():
            return False, 0
        first = rows.group_by("user", "episode").agg(pl.col("order").min())["order"]
        start = int(quantile(first, 0.5))
        single = share(rows.drop_nulls("order").select(pl.struct("user", "episode", "order").is_unique()).to_series())
        steady = share(first == start) > 0.5
        return start in (0, 1) and steady and single > 0.95, start

    def _ordering(self) -> str:
        ordered = self.rows.filter(pl.col("order").is_finite()).sort("order")
        gaps = ordered.select(pl.col("order").diff().over("user", "episode"))["order"].drop_nulls()
        middle, most = quantile(gaps, 0.5), quantile(gaps, 1)
        return f"{self.role['order']}: two rows of an episode are {middle:.3g} apart in the middle, {most:.3g} at most"


def _no_label(role: str, name: str) -> CardError:
    return CardError(
        f"draft: no text of {name!r} is that of {FEWEST} people: as labels they would tell of them; name another "
        f"column with --{role}"
    )


def _orders_nothing(columns: Mapping[str, Column], role: Mapping[str, str], read: Read) -> bool:
    """Whether a guessed order lacks cells, and each person has one row: who has no discharge would be dropped."""
    if (order := columns.get(role.get("order", ""))) is None or order.name in read.optional:
        return False
    return order.missing > 0 and columns[role["user"]].cells.drop_nulls().is_unique().all()


def _once(frame: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Drop rows that repeat another one word for word."""
    distinct = frame.unique([name for name in frame.columns if name != PART], keep="first", maintain_order=True)
    if repeats := len(frame) - len(distinct):
        notes.append(
            f"{repeats:,} rows ({repeats / len(frame):.1%}) are there again, word for word: with order_by a row that "
            "comes twice is one step; with a column of steps its whole episode is dropped (`repeat`)"
        )
    return distinct


def draft_log(log: object, answers: Answers, name: str | None = None) -> Draft:
    """Propose a card and a recipe for a log: a look at raw rows, for the operator only.

    ``log``: a file, several, or a frame.
    Raises CardError if a file or a column is missing, or the columns of people, states and actions are not evident.
    Raises QuestionError if a wrong guess would ruin the run.
    """
    logs = cast("Sequence[object]", log) if isinstance(log, list | tuple) else [log]
    paths = [Path(str(item)) for item in logs if isinstance(item, str | Path)]
    named = len(paths) == len(logs)
    read = looking.read_files(paths, answers.rename) if named and paths else Read(looking.frame_of(log))
    # a card that names its files by a pattern is not named after one of them
    first = next(iter(read.paths), Path("frame"))
    stem = first.stem if patterns(read.paths)[0] in (first.name, FRAME_FILE) else first.resolve().parent.name
    dataset = name or _NAME.sub("_", stem.lower()).strip("_-") or "log"
    parts, users, notes = answers.parts, answers.users, [*read.notes]
    if read.lost > len(read.frame):
        raise CardError(
            f"draft: {read.lost:,} lines cannot be read, and {len(read.frame):,} can: do cells hold line breaks, or "
            "lines more or fewer cells than there are names? Write one row a line"
        )
    if read.lost:
        notes.append(f"{read.lost:,} lines cannot be read and are set aside")
    if set(read.frame.columns) >= _EVENTS and "action" not in answers.roles:
        raise CardError(
            "draft: these are events of MEDS, one a reading, and no steps: a card declares their windows and readings, "
            "and draft proposes none. Begin with the card under MEDS in docs/card.md, or make a table of one row a step"
        )
    if "" in read.frame.columns:
        # such as the numbers of rows that a data frame writes
        read = replace(read, frame=read.frame.drop(""))
        notes.append("a column without a name is left out: if it says who, when or what, give it a name")
    alone = answers.roles.get("order") == "none" and "none" not in read.frame.columns
    answered = {role: name for role, name in answers.roles.items() if role != "order" or not alone}
    answered |= {"state": parts[0]} if parts else {}
    look = look_at(read.frame, answers, answered.get("reward"))
    columns = look.columns
    role, guessed = looking.find_roles(columns, answered, users, parts)
    if alone or ("order" not in answered and _orders_nothing(columns, role, read)):
        role.pop("order", None)
        guessed = [g for g in guessed if g != "order"]
    frame = _once(read.frame, notes) if "order" in role else read.frame
    # the first look knew no reward that only its content tells
    if len(frame) < len(read.frame) or "reward" in guessed:
        look = look_at(frame, answers, role.get("reward"))
        columns = look.columns
    notes += [f"{role[g]!r} is only guessed to be the {_IN_WORDS[g]}: name it with --{g} COLUMN" for g in guessed]
    taken = {*role.values(), *users, *parts}
    for r in ("action", "reward"):
        if r not in role or r in answered or r in guessed:
            continue
        if others := [repr(name) for name in looking.namesakes(r, role[r], columns) if name not in taken]:
            notes.append(f"{role[r]!r} is the {_IN_WORDS[r]} by its name, and {', '.join(others)} may be: --{r} COLUMN")
    if len(patterns(read.paths)) > NAMED:
        notes.append(
            "the card names every file: if their names tell of people, keep them alone in a folder of their own"
        )
    notes += [
        f"{name!r} may say where a step led: if it does, add next_state = {quoted(name)} to source.columns"
        for name in columns
        if name not in role.values() and looking.is_later(name, [role["state"]])
    ]
    beside = [
        c.name
        for c in columns.values()
        if c.name not in taken and c.distinct > 1 and c.is_measured and not c.is_late
        if not looking.is_later(c.name, columns) and not looking.came_after(c.name)
    ]
    if beside:
        fewest = min(beside, key=lambda name: columns[name].distinct)
        option = " ".join(f"--state {shlex.quote(c)}" for c in (role["state"], fewest))
        notes.append(
            f"not in the card: {', '.join(map(repr, beside))}. If who got which action was decided by one of them, its "
            f"effect is taken for the action's: let it be a part of the state, such as {option}; `inspect` tests it"
        )
    people = columns[role["user"]]
    ids = pl.DataFrame({"user": people.cells, "episode": columns[role.get("episode", role["user"])].cells})
    order = columns[role["order"]].values if "order" in role else pl.lit(0.0)
    rows = ids.select(contribution_bounding.canonical(pl.all())).with_columns(order=order)
    row_users = rows["user"]
    if role.get("order") in read.optional:
        # the outcome of an episode stands behind its rows if its file has no date
        undated = columns[role["order"]].cells.is_null()
        rows = rows.with_columns(pl.when(undated).then(math.inf).otherwise("order").alias("order"))
    rows = rows.with_row_index("at").drop_nulls("user")
    if unnamed := len(frame) - len(rows):
        notes.append(
            f"{unnamed:,} rows ({unnamed / len(frame):.1%}) name no person in {people.name!r}: they are set aside"
        )
    if "order" in role and role["order"] not in read.optional:
        unread = rows.filter(~pl.col("order").is_finite().fill_null(value=False))["user"].n_unique()
        if unread == rows["user"].n_unique():
            raise CardError(
                f"draft: {role['order']!r} holds no numbers and no dates such as 2026-01-31; say how they are written "
                "with --dates, write them so, or name another column with --order"
            )
        if unread:
            notes.append(
                f"{unread:,} people have rows whose {role['order']!r} is empty or cannot be read: their episodes are "
                "dropped (unparsable); if it is empty for what came of them, those who are left mislead"
            )
    if rows["user"].n_unique() < FEWEST:
        raise CardError(
            f"draft: {people.name!r} names fewer than {FEWEST} people: what they have in common would tell of each of "
            "them; write the card by hand (docs/card.md)"
        )
    drafted = _Log(read, answers, role, look, rows, row_users, notes)
    ties = drafted.same_place(frame[PART] if PART in frame.columns else None)
    if "order" not in role and drafted.rows.select(pl.struct("user", "episode").is_duplicated().any()).item():
        drafted.each_alone(alone)
    words = drafted.words()
    ends, rows = drafted.endings(), drafted.rows
    # states and actions are read off the rows that have an action
    opened = replace(drafted, rows=rows.filter(~pl.col("at").is_in(ends.closing.implode())))
    horizon, steps = opened.horizon(ends)
    if "terminated" in role and not ends.flagged:
        notes.append(f"{role.pop('terminated')!r} is true before the last row: it does not tell where an episode ends")
    if opened.rows.height < rows.height:
        opened.look = look_at(frame[opened.rows["at"]], answers, role.get("reward"))
        opened.users = row_users.gather(opened.rows["at"])
    paying = drafted.paying(ends, words)
    if {"reward.total", "reward.paid"} & {item.key for item in paying} == {"reward.total"}:
        drafted.end_when_paid()
    unlabelled, unit, domain = opened.unlabelled(), drafted.unit(), opened.domain()
    # the notation is read off all rows of the log
    opened.look = look
    source = opened.source(horizon, ends, [*drafted.written(), *drafted.optional(), *ties])
    delta = max(6, math.ceil(-math.log10(largest_delta(max(1, rows["user"].n_unique())))))
    keys = [
        Key("name", quoted(dataset), "of the dataset in the ledger"),
        *unit,
        steps,
        *domain,
        *paying,
        *source,
        *(replace(unlabelled, why=why) if rule == "unknown_label" else Key(f"tolerance.{rule}", f"{_GATE}", why)
          for rule, why in _STOPS.items()),
        *(Key(f"tolerance.{rule}", f"{_GATE}", _CHANGED[rule]) for rule in drafted.kept),
        Key("budget.rho", "1.0", "for the life of this data: agree on it with the person who answers for the data"),
        Key("budget.delta", f"1e-{delta}", "a chance far below one in the number of people"),
        Key("budget.ledger", '"ledger.db"', "keep it safe: without its ledger, data of real people is refused"),
    ]  # fmt: skip
    today = quoted(datetime.now(UTC).date().isoformat())
    from_data = listed([s.key for s in keys if s.seen])
    keys += [
        Key("provenance.drafted", today, "the day on which the log was looked at for this card"),
        Key("provenance.from_data", from_data, "take out what an expert has set since"),
    ]
    proposed = Draft(keys, notes, tuple(read.paths))
    shares = opened.action_shares()
    if len(shares) > 1 and shares[1] < ADVISED and proposed.agent[0] == "dp-one-step":
        notes.append(
            f"all actions but one are rare: {shares[1]:.1%} of the rows at most; dp-one-step advises none that "
            f"practice takes in less than {ADVISED:.0%} of a state's rows, however good: declare fewer (same_as)"
        )
    # without a reward the card is not whole yet
    if "reward" in role and (untested := proposed.untested):
        notes.append(
            f"no verdict would come of this card. {untested} Where rewards, chances and choices are alike at all "
            "steps, dynamics = 'stationary' has other limits; else a shorter horizon or fewer states"
        )
    return proposed
