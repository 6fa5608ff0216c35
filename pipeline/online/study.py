"""A study as a TOML file: worlds × agents × budgets × seeds, and claims that are checked on its rows.

A claim is a sentence with a metric, a selector of rows, and a comparison: no verdict is given by hand.
"""

# pyright: reportUnknownMemberType=false

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NotRequired, Self, TypedDict, cast

import numpy as np
from pydantic import AfterValidator, Field, field_validator, model_validator

from pipeline.declaration.numbers import number
from pipeline.declaration.toml import CardError, Name, Positive, Strict
from pipeline.online.cells import AnyCell, Metric, Options, Parameter, Rows, StudyRow, end_loss, growth, place_of, sweep
from pipeline.online.linear import Cell as LinearCell
from pipeline.online.linear import Contender
from pipeline.online.registry import AGENTS, find, played_name
from pipeline.online.rollouts import refuse_unknown_place
from pipeline.online.trial import Calibration, Plain, TrialRow

# a difference counts where it is larger than this many standard errors; of few runs, than as rare a Student's quantile
SURE = 3.0
# an agent has learnt if it loses at most this share of what uniform choice loses
BAR = 0.1
# a slope is "about" a number within this much
ABOUT = 0.2
# the band over runs
LOW, HIGH = 0.1, 0.9
# the world of paper 003's Appendix F; its cells are measured by `linear_trials`, with a budget in rho
LINEAR = "linear_003"

Runs = Annotated[int, Field(ge=1, le=1000)]
Episode = Annotated[int, Field(ge=1, le=10**10)]


class Judged(TypedDict):
    """A judged claim: the sentence, the verdict, the values in words, the rule; each variant's verdict."""

    claim: str
    holds: bool
    regime: str
    rule: str
    variants: NotRequired[list[dict[str, Any]]]


def check_world(world: Mapping[str, Parameter]) -> Mapping[str, Parameter]:
    """Refuse a world without a name, or an unknown one."""
    if not isinstance(world.get("name"), str):
        raise ValueError("a world has a 'name'; docs/research.md lists the worlds")
    try:
        if world["name"] != LINEAR:
            refuse_unknown_place(str(world["name"]))
    except CardError as e:
        raise ValueError(str(e)) from None
    return world


class Even(Strict):
    """Numbers of episodes at even ratios, ``last`` included; ``per_decade`` for a factor of ten."""

    first: Annotated[int, Field(ge=2)]
    last: Annotated[int, Field(ge=2, le=10**10)]
    per_decade: Annotated[int, Field(ge=1, le=10)] = 2

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.first >= self.last:
            raise ValueError(f"'first' must be below 'last'; got {self.first} and {self.last}")
        return self

    @property
    def counts(self) -> list[int]:
        """The numbers."""
        steps = max(1, round(self.per_decade * math.log10(self.last / self.first)))
        grid = np.rint(self.first * (self.last / self.first) ** (np.arange(steps + 1) / steps))
        return list(dict.fromkeys(int(n) for n in grid))


class FullSizes(Strict):
    """Sizes of a grid that ``--full`` changes."""

    worlds: list[Annotated[dict[str, Parameter], AfterValidator(check_world)]] | None = None
    episodes: list[Episode] | Even | None = None
    epsilon: list[Positive] | None = None
    runs: Runs | None = None


class Cells(Strict):
    """A grid: worlds × episodes × agents × budgets × runs; run i has seed ``seed + i``.

    An agent is a name, or a table with its ``name`` and its options.  Agents without privacy have no budget.
    """

    worlds: Annotated[list[Annotated[dict[str, Parameter], AfterValidator(check_world)]], Field(min_length=1)]
    episodes: list[Episode] | Even
    agents: Annotated[list[str | dict[str, Plain]], Field(min_length=1)]
    epsilon: list[Positive] = Field(default_factory=list[float])
    rho: list[Positive] = Field(default_factory=list[float])
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    calibration: list[Calibration] = Field(default_factory=lambda: ["tight"])
    runs: Runs = 1
    seed: Annotated[int, Field(ge=0)] = 0
    only_full: bool = False
    full: FullSizes = FullSizes()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self._linear:
            return self
        for name, options in self._agents():
            try:
                # of sdp-pe the option `trust` may say that nothing is hidden
                private = find(name).private and ("trust", "none") not in options
            except CardError as e:
                raise ValueError(str(e)) from None
            if private and not (self.epsilon and self.delta):
                raise ValueError(f"{name} needs 'epsilon' and 'delta'")
        return self

    @property
    def _linear(self) -> bool:
        return any(w["name"] == LINEAR for w in self.worlds)

    def _agents(self) -> Iterator[tuple[str, Options]]:
        for agent in self.agents:
            table: Mapping[str, Plain] = {"name": agent} if isinstance(agent, str) else agent
            options = ((k, played_name(v) if k == "of" and isinstance(v, str) else v) for k, v in table.items())
            yield played_name(str(table.get("name"))), tuple((k, v) for k, v in options if k != "name")

    def listed(self, full: bool) -> Sequence[AnyCell]:
        """The cells of the quick grid, or of the full one."""
        if self.only_full and not full:
            return []
        grid = self.model_copy(update=self.full.model_dump(exclude_none=True) if full else {})
        episodes = Even.model_validate(grid.episodes).counts if not isinstance(grid.episodes, list) else grid.episodes
        if self._linear:
            return list(grid._linear_cells(episodes))
        # the longest runs first, so that no process is left with one at the end
        return sweep(
            [place_of(w) for w in grid.worlds],
            sorted(episodes, reverse=True),
            list(grid._agents()),
            [(e, self.delta, c) for c in self.calibration for e in grid.epsilon],
            range(self.seed, self.seed + grid.runs),
        )

    def _linear_cells(self, episodes: Sequence[int]) -> Iterator[LinearCell]:
        for name, options in self._agents():
            learner = Contender(cast("Any", name), **cast("dict[str, Any]", dict(options))) if options else None
            for rho in self.rho or [None]:
                for K in episodes:  # noqa: N806
                    for world in self.worlds:
                        yield LinearCell(name, learner, rho, K, cast("int", world["instance"]), self.runs)


def pooled(rows: Rows) -> list[StudyRow]:
    """Rows that differ in their world alone as one, every world weighing the same; its spread is that of the mean."""
    groups: dict[tuple[object, ...], list[StudyRow]] = {}
    for row in rows:
        key = (row["agent"], row["variant"], row["episodes"], row["epsilon"], row["rho"], row["calibration"])
        groups.setdefault(key, []).append(row)
    return [_pool(group) for group in groups.values()]


def _pool(rows: Rows) -> StudyRow:
    runs = sum(r["runs"] for r in rows)
    total, degrees = together([(standard_error(r), max(1, freedom(r))) for r in rows])
    # nothing tells the spread of a world that was played once
    degrees = degrees if all(map(freedom, rows)) else 0
    mean, std = sum(r["mean"] for r in rows) / len(rows), total / len(rows) * runs**0.5
    facts = {**rows[0]["facts"], "freedom": degrees}
    pool = {"world": f"{len(rows)} worlds", "mean": mean, "std": std, "runs": runs, "facts": facts}
    return cast("StudyRow", {**rows[0], **pool})


def standard_error(row: TrialRow) -> float:
    """Standard error of the mean."""
    return row["std"] / row["runs"] ** 0.5


def freedom(row: StudyRow) -> float:
    """Degrees of freedom of the standard error; 0 where runs are too few to know it."""
    return row["facts"].get("freedom", row["runs"] - 1)


def together(parts: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Standard error of a sum of independent means, and its degrees of freedom (Welch 1947), from those of each."""
    known = [(error, degrees) for error, degrees in parts if error > 0]
    error = math.hypot(*(e for e, _ in known))
    return error, 1 / sum((e / error) ** 4 / degrees for e, degrees in known) if known else math.inf


def spent(row: TrialRow) -> float:
    """Loss of the noise drawn over the loss asked; infinite where none was drawn."""
    true, budget = (row["true_rho"], row["rho"]) if row["rho"] is not None else (row["true_epsilon"], row["epsilon"])
    return float("inf") if true is None or budget is None else true / budget


def band(row: StudyRow) -> dict[str, float]:
    """Quantiles of the runs: nine in ten lie above the first, and nine in ten below the second."""
    low, high = np.quantile(row["totals"], [LOW, HIGH]).tolist()
    return {"low": low, "high": high}


# condition on a column: a value or one of several, text with *, or a rank among the numbers of that column
Wanted = bool | str | float | list[str | float]
Selector = Mapping[str, Wanted]
_COLUMNS = {*StudyRow.__annotations__, "of"} - {"marks", "curve_mean", "curve_std", "totals", "facts"}
_PLACES: Mapping[str, Callable[[Sequence[float]], float]] = {"largest": max, "smallest": min}


def _known_columns(wanted: Selector) -> Selector:
    if unknown := sorted(set(wanted) - _COLUMNS - {"private", "from", "to"}):
        raise ValueError(f"rows have no column {unknown[0]!r}; there are: {', '.join(sorted(_COLUMNS))}")
    return wanted


Selected = Annotated[dict[str, Wanted], AfterValidator(_known_columns)]


def column(row: StudyRow, key: str) -> object:
    """Value of a row in a column; ``of`` is the agent that was kept from its data."""
    return row["facts"].get("of") if key == "of" else row.get(key)


def select(rows: Rows, wanted: Selector) -> list[StudyRow]:
    """Rows that a selector names.

    ``private`` (true or false) selects agents with noise, ``from`` and ``to`` bound the episodes.  ``largest`` and
    ``smallest`` are among the rows that the other keys leave.
    """
    selected = [r for r in rows if all(_fits(r, k, v) for k, v in wanted.items())]
    for key, place in wanted.items():
        if isinstance(place, str) and place in _PLACES and key in ("episodes", "epsilon", "rho"):
            values = [cast("float", r[key]) for r in selected if r[key] is not None]
            selected = [r for r in selected if values and r[key] == _PLACES[place](values)]
    return selected


def _fits(row: StudyRow, key: str, wanted: Wanted) -> bool:
    if key == "private":
        # it had a privacy budget and read data
        return (row["variant"] != "control" and not (row["epsilon"] is row["rho"] is None)) is wanted
    if key in ("from", "to"):
        return (row["episodes"] >= cast("float", wanted)) if key == "from" else row["episodes"] <= cast("float", wanted)
    if wanted in (*_PLACES, "next smaller") and key in ("episodes", "epsilon", "rho"):
        return True
    value = column(row, key)
    if value is ...:
        return True
    each = wanted if isinstance(wanted, list) else [wanted]
    return any(fnmatchcase(str(value), w) if isinstance(w, str) else value == w for w in each)


@dataclass(frozen=True)
class Point:
    """A value of a claim with its standard error, the degrees of freedom of that, and its row."""

    row: StudyRow
    value: float
    error: float = 0.0
    degrees: float = math.inf


def partners(rows: Rows, row: StudyRow, wanted: Selector, along: str | None = None) -> list[StudyRow]:
    """Rows that a row is compared with: those selected, in the same world and, where they have them, at the same K
    and budget; of the same agent and variant unless the selector names an agent (``plain``: its own without noise).
    All points of a curve are kept that goes ``along`` a column.
    """
    wanted = dict(wanted)
    if wanted.get("agent") == "plain":
        wanted["agent"] = find(row["agent"]).plain or ""
    same = ("world",) if "agent" in wanted else ("world", "agent", "variant")
    candidates = [r for r in rows if all(r[k] == row[k] for k in same if k not in wanted)]
    candidates = [r for r in candidates if all(_fits(r, k, v) for k, v in wanted.items())]
    for key in ("episodes", "epsilon", "rho", "calibration", "variant"):
        if key == along:
            continue
        if key not in wanted:
            # a control or an agent without noise stands beside every budget, a control at one K beside every K
            any_will_do = key in ("episodes", "variant")
            equal = [r for r in candidates if r[key] == row[key]]
            candidates = equal or [r for r in candidates if any_will_do or r[key] is None]
        elif wanted[key] == "next smaller":
            own = cast("float", row[key])
            smaller = [x for r in candidates if (x := cast("float | None", r[key])) is not None and x < own]
            candidates = [r for r in candidates if smaller and r[key] == max(smaller)]
    return select(candidates, wanted)


class Claim(Strict):
    """A sentence and its rule.

    The value of each row of ``of`` is its ``metric``, less that of ``minus``, over that of ``over``; ``slope`` makes
    one value of a curve (the exponent of K, or of 1/ε).  Where several rows stand against one, the least counts.
    """

    words: str
    metric: Literal["mean", "spent", "growth", "end", "needed"] = "mean"
    of: Selected
    minus: Selected | None = None
    over: Selected | None = None
    slope: Literal["episodes", "epsilon"] | None = None
    comparison: Literal["at most", "at least", "about", "below", "above", "not above"]
    value: float | None = None
    than: Selected | None = None
    holds: Literal["every", "most", "some"] = "every"

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.comparison in ("below", "above", "not above") and self.than is None:
            raise ValueError(f"{self.comparison!r} needs 'than'")
        if self.comparison == "about" and self.than is not None:
            raise ValueError("'about' compares with 'value' alone")
        if self.than is None and self.value is None:
            raise ValueError("give 'value', or 'than'")
        return self

    @property
    def rule(self) -> str:
        """The condition under which it holds, in words."""
        what = {
            "mean": "the mean", "spent": "what the noise is worth over what was asked",
            "growth": "regret after K over that after K / 10", "end": "what an episode costs at the end",
            "needed": f"the episodes from which on the mean stays within {BAR:.0%} of what uniform choice loses",
        }[self.metric]  # fmt: skip
        what += "".join(f" {word} {in_words(s)}'s" for word, s in (("less", self.minus), ("over", self.over)) if s)
        if self.slope is not None:
            what = f"the exponent of {'K' if self.slope == 'episodes' else '1/ε'} in {what}"
        value = "" if self.value is None else f"{number(self.value)}"
        if self.than is not None:
            times = f"{value} times " if value else ""
            # of what is no mean of runs nothing estimates the error
            means = self.metric == "mean" and self.slope is None
            apart = means and self.comparison in ("below", "above", "not above")
            few = "" if self.comparison == "not above" else ", by as rare a Student's quantile of few runs"
            sure = f" by {SURE:.0f} standard errors{few}" if apart else ""
            value = f"{times}that of {in_words(self.than)}{sure}"
        elif self.comparison == "about":
            value += f" (within {ABOUT:g})"
        many = {"every": "in every row", "most": "in most rows", "some": "in some row"}[self.holds]
        return f"{what} is {self.comparison} {value}, {many} of {in_words(self.of)}"

    @property
    def _along(self) -> str | None:
        return "episodes" if self.metric == "needed" else self.slope

    def _curve(self, row: StudyRow) -> tuple[object, ...]:
        """Columns that the rows of one curve share."""
        keys = {"agent", "variant", "world", "epsilon", "rho", "calibration", "episodes"} - {self._along}
        return tuple(row.get(k) for k in sorted(keys))

    def points(self, rows: Rows, chosen: Rows) -> list[Point]:
        """The values of the chosen rows."""
        points = [p for row in chosen if (p := self._point(rows, row)) is not None]
        along = self._along
        if along is None:
            return points
        groups: dict[tuple[object, ...], list[Point]] = {}
        for p in points:
            if p.row[along] is not None:
                groups.setdefault(self._curve(p.row), []).append(p)
        if self.metric == "needed":
            return [Point(g[0].row, needed({p.row["episodes"]: p.value for p in g}, BAR)) for g in groups.values()]
        return [Point(g[-1].row, _exponent(along, g)) for g in groups.values() if len(g) > 1]

    def _point(self, rows: Rows, row: StudyRow) -> Point | None:
        value, error, degrees = self._read(row)
        if self.minus is not None:
            base = self._least(rows, row, self.minus)
            if base is None:
                return None
            value -= base.value
            error, degrees = together([(error, degrees), (base.error, base.degrees)])
        over = {"agent": "uniform"} if self.metric == "needed" else self.over
        if over is not None:
            base = self._least(rows, row, over)
            if base is None or base.value == 0:
                return None
            value, error = value / base.value, error / base.value
        return Point(row, value, error, degrees)

    def _least(self, rows: Rows, row: StudyRow, wanted: Selector) -> Point | None:
        points = [Point(r, *self._read(r)) for r in partners(rows, row, wanted)]
        return min(points, key=lambda p: p.value, default=None)

    def _read(self, row: StudyRow) -> tuple[float, float, float]:
        if self.metric in ("mean", "needed"):
            # the spread of one run is unknown, but for what learns nothing
            alone = freedom(row) == 0 and row["variant"] != "control"
            return row["mean"], math.inf if alone else standard_error(row), max(1, freedom(row))
        return {"spent": spent, "growth": growth, "end": end_loss}[self.metric](row), 0.0, math.inf

    def judges(self, rows: Rows, extra: Selector) -> bool:
        """Whether the rows that ``extra`` leaves include any to judge."""
        curves: dict[tuple[object, ...], list[StudyRow]] = {}
        for row in self._chosen(rows, extra):
            curves.setdefault(self._curve(row), []).append(row)
        return any(self._judged(rows, curve) for curve in curves.values())

    def _chosen(self, rows: Rows, extra: Selector) -> list[StudyRow]:
        return select([r for r in rows if all(_fits(r, k, v) for k, v in extra.items())], self.of)

    def _judged(self, rows: Rows, chosen: Rows) -> list[tuple[bool, Point, float]]:
        """Whether the claim holds for each value, the value, and its comparison value."""
        judged: list[tuple[bool, Point, float]] = []
        for p in self.points(rows, chosen):
            if self.than is None:
                value = cast("float", self.value)
                judged.append((self._holds(p, Point(p.row, value)), p, value))
                continue
            others = self.points(rows, partners(rows, p.row, self.than, self._along))
            if others:
                q = min(others, key=lambda o: o.value)
                times = 1.0 if self.value is None else self.value
                judged.append((self._holds(p, replace(q, value=times * q.value, error=times * q.error)), p, q.value))
        return judged

    def verdict(self, rows: Rows, extra: Selector) -> tuple[bool, str] | None:
        """Whether it holds for the rows that ``extra`` leaves, and the values in words; None: no row to judge."""
        judged = self._judged(rows, self._chosen(rows, extra))
        if not judged:
            return None
        if self.metric == "needed" and (void := _void_bar(rows, [p.row for _, p, _ in judged])):
            return False, void
        held = sum(h for h, _, _ in judged)
        enough = {"every": held == len(judged), "most": 2 * held > len(judged), "some": held > 0}[self.holds]
        return enough, self._evidence(judged, held)

    def _holds(self, p: Point, q: Point) -> bool:
        if self.comparison == "about":
            return abs(p.value - q.value) <= ABOUT
        # equal up to a rounding is equal
        slack = 1e-9 * abs(q.value) if math.isfinite(q.value) else 0.0
        if self.comparison in ("at most", "at least"):
            return p.value <= q.value + slack if self.comparison == "at most" else p.value >= q.value - slack
        if not math.isfinite(p.error + q.error):
            return False
        error, degrees = together([(p.error, p.degrees), (q.error, q.degrees)])
        # a wider quantile would make it easier not to be above
        sure = error * (SURE if self.comparison == "not above" else _quantile(degrees))
        if self.comparison == "not above":
            return p.value - q.value <= sure
        return (q.value - p.value if self.comparison == "below" else p.value - q.value) > max(sure, slack)

    def _evidence(self, judged: Sequence[tuple[bool, Point, float]], held: int) -> str:
        def words(one: tuple[bool, Point, float]) -> str:
            _, p, q = one
            against = "" if self.than is None else f" against {self._value_words(q, p.row)}"
            alone = "" if math.isfinite(p.error) or self.than is None else ", of one run, which has no standard error"
            return f"{self._value_words(p.value, p.row)}{against}{alone}"

        if len(judged) <= 4:
            names = _labels([p.row for _, p, _ in judged])
            return "; ".join(f"{name}: {words(j)}" if name else words(j) for name, j in zip(names, judged, strict=True))
        ends = [words(f(judged, key=lambda j: j[1].value)) for f in (min, max)]
        wrong = [(name, j) for name, j in zip(_labels([p.row for _, p, _ in judged]), judged, strict=True) if not j[0]]
        regime = f"in {held} of {len(judged)}: {ends[0]} to {ends[1]}"
        return regime + (f"; not so: {'; '.join(f'{n} ({words(j)})' for n, j in wrong)}" if 0 < len(wrong) <= 4 else "")

    def _value_words(self, value: float, row: StudyRow) -> str:
        if self.metric == "needed":
            return "more than tried" if math.isinf(value) else f"{value:,.0f}"
        return number(value, 3, "up" if self.metric == "spent" else "nearest")


def _void_bar(rows: Rows, judged: Rows) -> str:
    """Note that episodes needed are void: an agent kept from its data meets the bar too; empty where none does."""
    curves: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        agent = row["facts"].get("of") if row["agent"] == "no-data" else None
        uniform = [r["mean"] for r in rows if r["agent"] == "uniform" and r["world"] == row["world"]]
        if agent is not None and uniform and any((r["agent"], r["world"]) == (agent, row["world"]) for r in judged):
            # at several budgets the worst of the controls
            curve = curves.setdefault((agent, row["world"]), {})
            curve[row["episodes"]] = max(curve.get(row["episodes"], 0.0), row["mean"] / min(uniform))
    met = {key: n for key, curve in curves.items() if math.isfinite(n := needed(curve, BAR))}
    each = "; ".join(
        f"{agent} without data meets the bar from {n:,.0f} episodes on in {world}" for (agent, world), n in met.items()
    )
    return f"void: {each}" if each else ""


def in_words(wanted: Selector) -> str:
    """A selector in words."""
    each = (" or ".join(map(str, v)) if isinstance(v, list) else str(v) for v in wanted.values())
    return ", ".join(v if k == "agent" else f"{k} {v}" for k, v in zip(wanted, each, strict=True)) or "every row"


def _labels(rows: Rows) -> list[str]:
    """Labels of rows by the columns in which they differ."""
    keys = ("agent", "variant", "world", "episodes", "epsilon", "rho", "calibration")
    varying = [k for k in keys if len({r[k] for r in rows}) > 1]
    if "agent" in varying or "calibration" in varying:
        varying = [k for k in varying if k != "variant"]
    letters = {"epsilon": "ε = ", "rho": "ρ = ", "episodes": "K = "}

    def words(key: str, value: object) -> str:
        return f"{letters.get(key, '')}{number(value) if isinstance(value, int | float) else value}"

    return [", ".join(words(k, v) for k in varying if (v := cast("object", r[k])) is not None) for r in rows]


def label_of(rows: Rows, ignored: Sequence[str] = ()) -> list[str]:
    """Names of the lines of a figure: the agent, and the columns in which its rows differ but the ignored ones."""
    bare = [cast("StudyRow", {**r, **dict.fromkeys((*ignored, "agent"), None)}) for r in rows]
    return [", ".join(filter(None, (r["agent"], label))) for r, label in zip(rows, _labels(bare), strict=True)]


def _quantile(degrees: float) -> float:
    """Standard errors, by so many degrees of freedom, that chance exceeds as rarely as :data:`SURE` normal ones."""
    from scipy import stats

    return float(stats.t.isf(stats.norm.sf(SURE), degrees))


def _exponent(along: str, points: Sequence[Point]) -> float:
    """Least-squares slope of log y over log K, or over log 1/ε."""
    x = [float(p.row["episodes"]) if along == "episodes" else 1 / cast("float", p.row["epsilon"]) for p in points]
    return float(np.polyfit(np.log(x), np.log([max(p.value, 1e-9) for p in points]), 1)[0])


def needed(points: Mapping[int, float], bar: float) -> float:
    """The first n from which on every value is at most ``bar``; infinite: not in this range.

    >>> needed({10: 3.0, 100: 0.5, 1000: 2.0, 10_000: 0.4, 100_000: 0.1}, 1.0)
    10000
    """
    first = math.inf
    for n in sorted(points, reverse=True):
        if points[n] > bar:
            break
        first = n
    return first


def first_meeting(episodes: int | None, least: int, most: int) -> str:
    """First number of episodes that meets the bar, in words: at least the first tried, or beyond the range.

    >>> first_meeting(10, 10, 100), first_meeting(30, 10, 100), first_meeting(None, 10, 100)
    ('≤ 10', '30', '> 100')
    """
    if episodes is None:
        return f"> {most:,}"
    return f"≤ {episodes:,}" if episodes <= least else f"{episodes:,}"


class StudyHead(Strict):
    """Name, title and words of a study, and the metric of its cells."""

    name: Name
    title: str = ""
    words: list[str] = Field(default_factory=list[str])
    metric: Metric = "suboptimality"
    pool_worlds: bool = False


class StudyFigure(Strict):
    """The figure: its x axis, its panels, and the rows drawn."""

    x: Literal["curve", "episodes"] = "episodes"
    panel: Literal["world", "epsilon", "rho"] = "epsilon"
    of: list[Selected] = Field(default_factory=list[Selected])
    log_y: bool = True


class Study(Strict):
    """One study.

    ``variants`` are selectors by name: each claim is judged on every one, and the first one's verdict counts.
    """

    study: StudyHead
    cells: Annotated[list[Cells], Field(min_length=1)]
    variants: dict[str, Selected] = Field(default_factory=dict[str, Selected])
    claims: list[Claim] = Field(default_factory=list[Claim])
    figure: StudyFigure = StudyFigure()

    @field_validator("cells")
    @classmethod
    def _one_kind(cls, cells: list[Cells]) -> list[Cells]:
        if len({w["name"] == LINEAR for c in cells for w in c.worlds}) > 1:
            raise ValueError(f"{LINEAR} has its own agents; give it a study of its own")
        return cells

    @model_validator(mode="after")
    def _selects_its_rows(self) -> Self:
        """Refuse a selector that no cell matches, and a claim that would judge nothing."""
        grids = {
            name: expected_rows(self.listed(full), self.study.metric) for name, full in (("", False), ("full ", True))
        }
        rows = [row for grid in grids.values() for row in grid]
        selectors = [(f"variants.{name}", wanted) for name, wanted in self.variants.items()]
        for i, c in enumerate(self.claims):
            parts = {"of": c.of, "minus": c.minus, "over": c.over, "than": c.than}
            selectors += [(f"claims.{i}.{part}", wanted) for part, wanted in parts.items() if wanted is not None]
        selectors += [(f"figure.of.{i}", wanted) for i, wanted in enumerate(self.figure.of)]
        for where, wanted in selectors:
            _refuse_unknown(where, wanted, rows)
        for name, grid in grids.items():
            measured = pooled(grid) if self.study.pool_worlds else grid
            for i, c in enumerate(self.claims):
                if not any(c.judges(measured, extra) for extra in self.variants.values() or [{}]):
                    base = "; the metric 'needed' is over 'uniform' in the same world" if c.metric == "needed" else ""
                    raise ValueError(f"claims.{i}: in the {name}grid no row can be judged by: {c.rule}{base}")
        return self

    def listed(self, full: bool = False) -> list[AnyCell]:
        """Every cell, once."""
        return list(dict.fromkeys(cell for grid in self.cells for cell in grid.listed(full)))

    def judged(self, rows: Rows) -> list[Judged]:
        """Every claim with its verdict."""
        rows = pooled(rows) if self.study.pool_worlds else rows
        results: list[Judged] = []
        for claim in self.claims:
            verdicts = {name: claim.verdict(rows, extra) for name, extra in (self.variants or {"": {}}).items()}
            each = {name: verdict for name, verdict in verdicts.items() if verdict is not None}
            holds, regime = next(iter(each.values()), (False, f"no row to judge: {in_words(claim.of)}"))
            result = Judged(claim=claim.words, holds=holds, regime=regime, rule=claim.rule)
            if self.variants:
                result["variants"] = [{"variant": v, "holds": h, "regime": r} for v, (h, r) in each.items()]
            results.append(result)
        return results


def expected_rows(cells: Sequence[AnyCell], metric: Metric) -> list[StudyRow]:
    """Rows that cells will give, each with the value 1; ``...``, which only a run can fill, fits every selector."""
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    for cell in cells:
        columns: dict[str, Any]
        if isinstance(cell, LinearCell):
            variant = "control" if cell.learner is None else cell.learner.variant
            columns = {"agent": cell.name, "variant": variant, "rho": cell.rho, "epsilon": None, "of": None}
        else:
            # an agent that is kept from its data has no budget as a policy, and is never private
            unread = cell.agent == "no-data"
            open_ = unread and metric == "suboptimality"
            epsilon, calibration = (None, None) if open_ else (cell.epsilon, cell.calibration)
            columns = {"agent": cell.agent, "variant": "control" if unread else ..., "world": cell.place, "rho": None}
            columns |= {"epsilon": epsilon, "calibration": calibration, "of": cell.knobs.get("of")}
        columns["episodes"] = cell.episodes
        rows[tuple(columns.values())] = columns
    return [
        cast("StudyRow", dict.fromkeys(StudyRow.__annotations__, ...) | k | _worth(k, metric)) for k in rows.values()
    ]


def _worth(columns: Mapping[str, Any], metric: Metric) -> dict[str, Any]:
    """Measured columns of an expected row: noise as asked, and a regret of 1 an episode."""
    marks = [columns["episodes"] / 10, columns["episodes"]]
    noise = {"true_rho": columns["rho"], "true_epsilon": columns["epsilon"], "facts": {"of": columns["of"]}}
    return noise | {"metric": metric, "mean": 1.0, "std": 0.0, "runs": 1, "marks": marks, "curve_mean": marks}


def _refuse_unknown(where: str, wanted: Selector, rows: Rows) -> None:
    """Raise where a selector names an agent, a world, a size or a budget that no row has."""
    for key in ("agent", "of", "world", "episodes", "epsilon", "rho", "calibration"):
        value = wanted.get(key, [])
        for one in value if isinstance(value, list) else [value]:
            place = one in (*_PLACES, "next smaller") or (key, one) == ("agent", "plain")
            if not place and not any(_fits(r, key, one) for r in rows):
                values = sorted({cast("Any", v) for r in rows if (v := column(r, key)) is not None})
                named = repr(one) if isinstance(one, str) else number(one)
                listed = ", ".join(map(number, values)) or "none"
                raise ValueError(f"{where}: no cell has {key} {named}; there are: {listed}")


def bar_of(rows: Rows) -> float | None:
    """The suboptimality that counts as having learnt in the world of the rows.

    None where worlds are several, no uniform choice played, or regret is measured.
    """
    uniform = [r["mean"] for r in rows if r["agent"] == "uniform" and r["metric"] == "suboptimality" and r["totals"]]
    return BAR * uniform[0] if uniform and len({r["world"] for r in rows}) == 1 else None


def needed_table(rows: Rows, bar: float) -> list[dict[str, Any]]:
    """Episodes for the same quality of each agent at each budget, without noise first.

    ``episodes``, ``episodes_nine_in_ten``: from which on its mean, and nine runs in ten, meet the bar; None: not up to
    ``most``.

    An agent with several variants is named with each.
    """
    mine = [r for r in rows if r["variant"] != "control"]
    ways: dict[str, dict[tuple[str, str | None], StudyRow]] = {}
    for r in mine:
        ways.setdefault(r["agent"], {}).setdefault((r["variant"], r["calibration"]), r)
    names = {
        (agent, *way): name if len(each) > 1 else agent
        for agent, each in ways.items()
        for way, name in zip(each, label_of(list(each.values()), ("episodes", "epsilon")), strict=True)
    }
    groups: dict[tuple[str, float | None, str], list[StudyRow]] = {}
    for r in mine:
        name = names[r["agent"], r["variant"], r["calibration"]]
        groups.setdefault((r["agent"], r["epsilon"], name), []).append(r)
    table: list[dict[str, Any]] = []
    order = sorted(groups.items(), key=lambda g: (g[0][1] is not None, _rank(g[0][0]), g[0][2], g[0][1]))
    for (_, epsilon, agent), mine in order:
        means, edges = {r["episodes"]: r["mean"] for r in mine}, {r["episodes"]: band(r)["high"] for r in mine}
        mean, nine = (None if math.isinf(n := needed(points, bar)) else int(n) for points in (means, edges))
        table.append(
            {
                "agent": agent,
                "trust": mine[0]["trust"],
                "epsilon": epsilon,
                "episodes": mean,
                "episodes_nine_in_ten": nine,
                "most": max(r["episodes"] for r in mine),
            }
        )
    return table


def _rank(agent: str) -> int:
    return list(AGENTS).index(agent) if agent in AGENTS else len(AGENTS)
