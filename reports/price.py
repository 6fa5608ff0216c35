"""The page of a comparison: what privacy and trust cost in one world, in episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.privacy.budget import largest_delta
from pipeline.studies.price import Family
from reports.format import number
from reports.page import Part, Section, Table, table, templates
from reports.price_evidence import Priced, claims
from reports.price_figures import LABELS, against_budget, against_episodes
from reports.reproduction import verdict
from reports.simulation import BANNER, SEES

_ORDER = ("central", "joint", "shuffle", "local")


def page_html(p: Priced) -> str:
    """The page as one file that loads nothing."""
    return templates().get_template("study.html.j2").render(opening=opening(p), parts=_parts(p))


def page_markdown(p: Priced) -> str:
    """The same words and tables as Markdown."""
    return templates().get_template("study.md.j2").render(opening=opening(p), parts=_parts(p))


def opening(p: Priced) -> dict[str, str]:
    """Title, banner and the answer in one sentence a family."""
    middle = p.budgets[len(p.budgets) // 2]
    answers: list[str] = []
    for family in p.families.values():
        by_trust = sorted(family.plain, key=lambda a: _ORDER.index(p.trust(a)))
        told = ", ".join(f"{p.trust(a)} {p.told(p.needed(a, middle))}" for a in by_trust)
        plain = ", ".join(f"{LABELS[a]} {p.told(p.needed(a, None))}" for a in dict.fromkeys(family.plain.values()))
        answers.append(f"{family.title.capitalize()}: {plain}; at ε = {number(middle)}: {told}.")
    return {
        "kind": "comparison",
        "name": p.name,
        "title": f"The price of privacy and of trust: {p.world}",
        "banner": BANNER,
        "answer": (
            "Episodes needed until the policy's suboptimality stays at or under 10 % of that of uniform choice, in "
            f"{p.world}. {' '.join(answers)}"
        ),
        "foot": f"{p.name}: measured on seeds that tuned nothing, exactly, by planning in the known world.",
    }


def _parts(p: Priced) -> list[Part]:
    figures: list[Section] = []
    for name, family in p.families.items():
        first, second = against_episodes(p, name), against_budget(p, name)
        figures.append(
            Section(f"episodes-{name}", f"Suboptimality against episodes: {family.title}", (first.note,), first)
        )
        if second is not None:
            figures.append(
                Section(f"budget-{name}", f"Suboptimality against ε: {family.title}", (second.note,), second)
            )
    return [
        Part("What it costs", (_needed(p), *figures)),
        Part("How to read it", (_measure(p), _promises(p), _controls(p), _claims(p))),
        Part("The numbers", (_numbers(p), _setting(p))),
    ]


def _needed(p: Priced) -> Section:
    words = (
        f"The first n on the grid from which on the mean suboptimality stays at or under {number(p.bar)}, 10 % of "
        f"uniform choice's {number(p.uniform)}. After “>” stands the end of the range: at this ε the agent does not "
        "learn in it. The grid's steps are the resolution.",
    )
    tables = tuple(
        _by_trust(p, family, key, f"{caption}: {family.title}")
        for key, caption in (("mean", "Mean over runs"), ("high", "Nine runs in ten, the upper edge of the band"))
        for family in p.families.values()
    )
    return Section("needed", "Episodes needed for the same quality", words, tables=tables)


def _by_trust(p: Priced, family: Family, key: str, caption: str) -> Table:
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
    return Section(
        "guarantee",
        "Who is trusted",
        words,
        tables=(table("Trust | What the promise is about", [(t, SEES[t]) for t in found]),),
    )


def _controls(p: Priced) -> Section:
    deaf = [r for r in p.rows if r["agent"] == "no-data"]
    rows = [
        *((name, number(p.control(name)["mean"]), _met(p, p.control(name))) for name in ("uniform", "behaviour")),
        ("best constant action", number(p.control("best-constant")["mean"]), _met(p, p.control("best-constant"))),
        *((f"no data: {r['of']}", number(r["mean"]), _met(p, r)) for r in deaf),
    ]
    words = (
        "What learns nothing. Behaviour: who logged for the central curator. Best constant: the action that is worth "
        "most when played everywhere, which only the world's owner knows; where it meets the bar, meeting it means to "
        "find one action. No data: the agent without its users' data at the smallest ε; noise, ties and known rewards "
        "remain. DP-APVI then abstains, and an abstaining policy chooses uniformly here.",
    )
    found = table("Control | Suboptimality | Meets the bar", rows, numeric="Suboptimality")
    return Section("controls", "Controls", words, tables=(found,))


def _met(p: Priced, row: Mapping[str, Any]) -> str:
    return verdict(float(row["mean"]) <= p.bar)


def _claims(p: Priced) -> Section:
    rows = [(str(c["claim"]), verdict(c["holds"]), str(c["regime"]), str(c["rule"])) for c in claims(p)]
    words = ("Each verdict is computed from the rows.",)
    return Section("claims", "What holds", words, tables=(table("Claim | Holds | Regime | Rule", rows),))


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


def _banded(row: Mapping[str, Any]) -> str:
    return f"{number(row['mean'], 3)} ({number(row['low'], 2)} to {number(row['high'], 2)})"


def _setting(p: Priced) -> Section:
    rows: list[tuple[str, ...]] = []
    agents = dict.fromkeys([a for pair in p.private() for a in reversed(pair)])
    for agent in agents:
        mine: Sequence[Mapping[str, Any]] = [r for r in p.rows if r["agent"] == agent]
        last = max(mine, key=lambda r: (r["episodes"], r["epsilon"] or 0))
        true = max((r["true_epsilon"] / r["epsilon"] for r in mine if r["true_epsilon"] is not None), default=None)
        share = "–" if true is None else number(true, 4, "up")
        rows.append((agent, str(last["trust"]), str(last["variant"]), str(last["constants"]), share, f"{last['runs']}"))
    words = ("Variant and constants as in the longest run; true over asked ε: the largest of all rows.",)
    head = "Agent | Trust | Variant | Constants | True over asked ε | Runs"
    return Section("setting", "Agents", words, tables=(table(head, rows, numeric="True over asked ε | Runs"),))
