"""The page of a comparison: what privacy and trust cost in one world, in episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pipeline.declaration.numbers import number
from pipeline.privacy.budget import largest_delta
from pipeline.simulation.registry import AGENTS
from pipeline.studies.price import Family, PricedRow
from pipeline.studies.price_claims import Priced, claims
from pipeline.studies.study_rows import true_share
from reports.figures.charts import Line, draw_curves
from reports.page import Figure, Part, Section, Table, table
from reports.studies.study_page import INVENTED, Page, claims_section, communication, verdict

SEES = {
    "joint": "the server sees every episode; what the policies show anybody else about one user",
    "local": "nobody is trusted: what one user's own message shows the server",
    "shuffle": "the shuffler is trusted to mix: what the mixed messages show the server about one user",
    "central": "the curator holds the logs: what the release shows anybody about one user",
}
_ORDER = ("central", "joint", "shuffle", "local")
# nothing below this share of the largest value of a panel is given room
_REACH = 1e-4
_MOST_PANELS = 4
_NOTE = (
    "Lines: mean over runs of v* − v of the policy handed over; bands: nine runs in ten lie above the lower edge and "
    "nine in ten below the upper. What is smaller than the axis shows lies on its foot. Grey: controls that learn "
    "nothing, and the bar."
)


def page_of(p: Priced) -> Page:
    """The answer in one sentence a family, what it costs, how to read it, and the numbers."""
    middle = p.budgets[len(p.budgets) // 2]
    answers: list[str] = []
    for family in p.families.values():
        by_trust = sorted(family.plain, key=lambda a: _ORDER.index(p.trust(a)))
        told = ", ".join(f"{p.trust(a)} {p.told(p.needed(a, middle))}" for a in by_trust)
        plain = ", ".join(f"{label(a)} {p.told(p.needed(a, None))}" for a in dict.fromkeys(family.plain.values()))
        answers.append(f"{family.title.capitalize()}: {plain}; at ε = {number(middle)}: {told}.")
    return Page(
        "comparison",
        p.name,
        f"The price of privacy and of trust: {p.world}",
        "Episodes needed until the policy's suboptimality stays at or under 10 % of that of uniform choice, in "
        f"{p.world}. {' '.join(answers)}",
        _parts(p),
        f"{p.name}: measured on seeds that tuned nothing, exactly, by planning in the known world.",
        INVENTED,
    )


def label(agent: str) -> str:
    """An agent's name in a figure: its trust model, and whether others logged its episodes."""
    known = AGENTS[agent]
    return (known.trust if known.private else "no privacy") + (", from a log" if known.from_logs else "")


def _parts(p: Priced) -> list[Part]:
    figures = [
        Section(f"{key}-{name}", f"Suboptimality against {of}: {family.title}", (figure.note,), figure)
        for name, family in p.families.items()
        for key, of, draw in (("episodes", "episodes", against_episodes), ("budget", "ε", against_budget))
        if (figure := draw(p, name)) is not None
    ]
    found = claims_section(claims(p), "What holds", "Each verdict is computed from the rows.")
    return [
        Part("What it costs", (_needed(p), *figures)),
        Part("How to read it", (_measure(p), _promises(p), _controls(p), found)),
        Part("The numbers", (_numbers(p), communication(p.rows), _setting(p))),
    ]


def _needed(p: Priced) -> Section:
    words = (
        f"The first n on the grid from which on the mean suboptimality stays at or under {number(p.bar)}, 10 % of "
        f"uniform choice's {number(p.uniform)}. After “>” stands the end of the range: at this ε the agent does not "
        "learn in it. The grid's steps are the resolution.",
    )
    measures: tuple[tuple[Literal["mean", "high"], str], ...] = (
        ("mean", "Mean over runs"),
        ("high", "Nine runs in ten, the upper edge of the band"),
    )
    tables = tuple(
        _by_trust(p, family, key, f"{caption}: {family.title}")
        for key, caption in measures
        for family in p.families.values()
    )
    return Section("needed", "Episodes needed for the same quality", words, tables=tables)


def _by_trust(p: Priced, family: Family, key: Literal["mean", "high"], caption: str) -> Table:
    columns = ["no noise", *(f"ε = {number(e)}" for e in p.budgets)]
    rows: list[tuple[str, ...]] = []
    agents = {p.trust(agent): agent for agent in family.plain}
    for trust in _ORDER:
        if trust in agents:
            agent = agents[trust]
            plain = p.told(p.needed(family.plain[agent], None, key))
            rows.append((trust, agent, plain, *(p.told(p.needed(agent, e, key)) for e in p.budgets)))
        else:
            rows.append((trust, f"none: {family.absent[trust]}", *["–"] * len(columns)))
    return table(" | ".join(["Trust", "Agent", *columns]), rows, caption, " | ".join(columns))


def _measure(p: Priced) -> Section:
    points = (
        "Measured: v* − v of the policy that an agent hands over after n episodes, exactly. What its episodes cost "
        "while it learnt is another question (`reticent simulate`, `reticent reproduce 002-table-1`).",
        f"The same for all: this world and its luck, ε and δ = {p.delta:g}, one user is one episode, neighbours differ "
        "in one user, replaced by any other. Every n is a run of its own, declared for n episodes.",
        "Not the same: the central curator learns from episodes that a fixed policy has logged, and never tries what "
        "it would like to know; the others choose what their users try, and pay for it while they learn.",
        "Not the same: local, joint and central noise is Gaussian, counted in zCDP; shuffled bits are counted exactly. "
        "The true ε of each row says what was used.",
        "Constants were chosen on other seeds and for no row of this page; ties are broken at random, none by index.",
    )
    if any("pooled" in str(r["variant"]) for r in p.rows):
        points = (
            *points,
            "Not the same: one table serves all steps, but not for shuffled messages, one bit a counter; their "
            "“no noise” is the planner with one table all the same.",
        )
    if p.delta > largest_delta(p.episodes[-1]):
        points = (*points, f"δ = {p.delta:g} means nothing for more than {1 / (10 * p.delta):,.0f} people.")
    return Section("measure", "One measure, one promise", points=points)


def _promises(p: Priced) -> Section:
    found = sorted({p.trust(agent) for agent, _ in p.private()}, key=_ORDER.index)
    words = (f"What (ε, {p.delta:g}) bounds under each trust model, about one user, who is one episode.",)
    found = table("Trust | What the promise is about", [(t, SEES[t]) for t in found])
    return Section("guarantee", "Who is trusted", words, tables=(found,))


def _controls(p: Priced) -> Section:
    deaf = [r for r in p.rows if r["agent"] == "no-data"]
    named = [("uniform", "uniform"), ("behaviour", "behaviour"), ("best constant action", "best-constant")]
    shown = [(words, p.control(name)) for words, name in named] + [(f"no data: {r['of']}", r) for r in deaf]
    rows = [(words, number(r["mean"]), verdict(float(r["mean"]) <= p.bar)) for words, r in shown]
    words = (
        "What learns nothing. Behaviour: who logged for the central curator. Best constant: the action that is worth "
        "most when played everywhere, which only the world's owner knows; where it meets the bar, meeting it means to "
        "find one action. No data: the agent without its users' data at the smallest ε; noise, ties and known rewards "
        "remain. DP-APVI then abstains, and an abstaining policy chooses uniformly here.",
    )
    found = table("Control | Suboptimality | Meets the bar", rows, numeric="Suboptimality")
    return Section("controls", "Controls", words, tables=(found,))


def _numbers(p: Priced) -> Section:
    words = ("Mean suboptimality, and in brackets the band of nine runs in ten either way.",)
    return Section("numbers", "Every cell", words, tables=tuple(_cells(p, e) for e in (None, *p.budgets)))


def _cells(p: Priced, epsilon: float | None) -> Table:
    private = dict(p.private())
    agents = list(dict.fromkeys(private if epsilon is not None else private.values()))
    head = ["Episodes", *agents]
    columns = [p.of(agent, epsilon) for agent in agents]
    rows = [(f"{n:,}", *(_banded(column[i]) for column in columns)) for i, n in enumerate(p.episodes)]
    caption = "no noise" if epsilon is None else f"ε = {number(epsilon)}"
    return table(" | ".join(head), rows, caption, " | ".join(agents))


def _banded(row: PricedRow) -> str:
    return f"{number(row['mean'], 3)} ({number(row['low'], 2)} to {number(row['high'], 2)})"


def _setting(p: Priced) -> Section:
    rows: list[tuple[str, ...]] = []
    agents = dict.fromkeys([a for pair in p.private() for a in reversed(pair)])
    for agent in agents:
        mine = [r for r in p.rows if r["agent"] == agent]
        last = max(mine, key=lambda r: (r["episodes"], r["epsilon"] or 0))
        true = max((true_share(r) for r in mine if r["true_epsilon"] is not None), default=None)
        share = "–" if true is None else number(true, 4, "up")
        rows.append((agent, str(last["trust"]), str(last["variant"]), str(last["constants"]), share, f"{last['runs']}"))
    words = ("Variant and constants as in the longest run; true over asked ε: the largest of all rows.",)
    head = "Agent | Trust | Variant | Constants | True over asked ε | Runs"
    return Section("setting", "Agents", words, tables=(table(head, rows, numeric="True over asked ε | Runs"),))


def draw_figures(p: Priced) -> dict[str, str]:
    """The SVG of every figure, by the name of its file."""
    found = {
        f"{family}-{kind}.svg": draw(p, family)
        for family in p.families
        for kind, draw in (("episodes", against_episodes), ("budget", against_budget))
    }
    return {file: figure.svg for file, figure in found.items() if figure is not None}


def against_episodes(p: Priced, family: str) -> Figure:
    """One panel a budget; what needs no budget is in each."""
    panels: dict[str, dict[str, Line]] = {}
    for e in p.budgets:
        lines = {
            label(agent): _line(p.of(agent, None if agent in p.families[family].plain.values() else e))
            for agent in p.families[family].agents
        }
        panels[f"ε = {number(e)}"] = lines | _flat(p, family, [p.episodes[0], p.episodes[-1]])
    return _drawn(panels, f"{family}-episodes", "episodes", "~s")


def against_budget(p: Priced, family: str) -> Figure | None:
    """One panel a number of episodes, a few of them; None where there is one budget only."""
    if len(p.budgets) < 2:
        return None
    panels: dict[str, dict[str, Line]] = {}
    for n in _few(p.episodes):
        at = [r for r in p.rows if r["episodes"] == n and r["variant"] != "control"]
        lines: dict[str, Line] = {}
        for agent in p.families[family].agents:
            mine = sorted((r for r in at if r["agent"] == agent), key=lambda r: r["epsilon"] or 0.0)
            at_budgets = [r["epsilon"] or 0.0 for r in mine]
            if agent in p.families[family].plain.values():
                mine, at_budgets = mine[:1] * 2, [p.budgets[0], p.budgets[-1]]
            lines[label(agent)] = _line(mine, at_budgets)
        panels[f"{n:,} episodes"] = lines | _flat(p, family, [p.budgets[0], p.budgets[-1]])
    return _drawn(panels, f"{family}-budget", "ε", "~g")


def _drawn(panels: Mapping[str, Mapping[str, Line]], key: str, of: str, form: str) -> Figure:
    title, y = f"Suboptimality against {of}", "suboptimality"
    return draw_curves(panels, key, title, x_title=of, y_title=y, note=_NOTE, reach=_REACH, x_format=form)


def _line(rows: Sequence[PricedRow], at: Sequence[float] | None = None) -> Line:
    mean, std, low, high = ([r[key] for r in rows] for key in ("mean", "std", "low", "high"))
    return Line(at or [r["episodes"] for r in rows], mean, std, low=low, high=high)


def _flat(p: Priced, family: str, ends: Sequence[float]) -> dict[str, Line]:
    """Controls and the bar: they need no episodes."""
    deaf = next(r for r in p.rows if r["of"] == p.families[family].unread[0] and r["agent"] == "no-data")
    levels = {"uniform choice": p.uniform, "no data": float(deaf["mean"]), "the bar": p.bar}
    return {name: Line(ends, [level] * 2, [0.0] * 2, control=True) for name, level in levels.items()}


def _few(episodes: Sequence[int]) -> list[int]:
    """At most four numbers of episodes, at even distances."""
    last = len(episodes) - 1
    return [episodes[round(i * last / (_MOST_PANELS - 1))] for i in range(_MOST_PANELS)] if last > 3 else [*episodes]
