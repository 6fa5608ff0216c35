"""What the rows of a comparison say: who needs how many episodes, and which general sentences hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypedDict

from pipeline.declaration.numbers import number
from pipeline.studies.price import BAR, FAMILIES, Family, PricedRow, episodes_needed
from pipeline.studies.study import Claim, Judged, Verdict

# from the most trust to the least; joint and shuffle are not ordered
_ORDER = (("central", "joint"), ("central", "shuffle"), ("joint", "local"), ("shuffle", "local"))


class Needed(TypedDict):
    """Episodes from which on an agent's mean, and nine runs in ten, meet the bar; None: not up to ``most``."""

    agent: str
    trust: str
    epsilon: float | None
    episodes: int | None
    episodes_nine_in_ten: int | None
    most: int


@dataclass(frozen=True)
class Priced:
    """The rows of one world; ``mean`` is v* - v^pi of the policy after ``episodes`` episodes.

    Parameters
    ----------
    name
        Of the comparison.
    rows
        As :func:`~pipeline.studies.price.price_rows` gives them.
    """

    name: str
    rows: Sequence[PricedRow]

    @property
    def uniform(self) -> float:
        """Suboptimality of uniform choice."""
        return float(self.control("uniform")["mean"])

    @property
    def bar(self) -> float:
        """What counts as having learnt."""
        return BAR * self.uniform

    @property
    def budgets(self) -> list[float]:
        """Every epsilon, ascending."""
        return sorted({float(r["epsilon"]) for r in self.rows if r["epsilon"] is not None})

    @property
    def episodes(self) -> list[int]:
        """Every n, ascending."""
        return sorted({int(r["episodes"]) for r in self.rows if r["variant"] != "control"})

    @property
    def delta(self) -> float:
        """The delta of every private row."""
        return next(float(r["delta"]) for r in self.rows if r["delta"] is not None)

    @property
    def world(self) -> str:
        """World and parameters in words."""
        return str(self.rows[0]["world"])

    @property
    def families(self) -> dict[str, Family]:
        """Those that played."""
        played = {r["family"] for r in self.rows}
        return {name: family for name, family in FAMILIES.items() if name in played}

    def control(self, name: str) -> PricedRow:
        """The row of a control."""
        return next(r for r in self.rows if r["agent"] == name)

    def of(self, agent: str, epsilon: float | None) -> list[PricedRow]:
        """An agent's rows at one budget, by episodes."""
        found = [r for r in self.rows if r["agent"] == agent and r["epsilon"] == epsilon and r["variant"] != "control"]
        return sorted(found, key=lambda r: r["episodes"])

    def needed(self, agent: str, epsilon: float | None, key: Literal["mean", "high"] = "mean") -> int | None:
        """Episodes from which on ``key`` stays at or under the bar; None: not in this range."""
        return episodes_needed({int(r["episodes"]): float(r[key]) for r in self.of(agent, epsilon)}, self.bar)

    def trust(self, agent: str) -> str:
        """The trust model of an agent."""
        return next(str(r["trust"]) for r in self.rows if r["agent"] == agent)

    def told(self, needed: int | None) -> str:
        """A number of episodes in words: it can lie beyond either end of the range."""
        if needed is None:
            return f"> {self.episodes[-1]:,}"
        return f"≤ {needed:,}" if needed == self.episodes[0] else f"{needed:,}"

    def needed_table(self) -> list[Needed]:
        """Episodes needed by each agent at each budget; None: not in the range measured."""
        asked: list[tuple[str, float | None]] = [(plain, None) for plain in dict.fromkeys(p for _, p in self.private())]
        asked += [(agent, e) for agent, _ in self.private() for e in self.budgets]
        return [
            {
                "agent": agent,
                "trust": self.trust(agent),
                "epsilon": e,
                "episodes": self.needed(agent, e),
                "episodes_nine_in_ten": self.needed(agent, e, "high"),
                "most": self.episodes[-1],
            }
            for agent, e in asked
        ]

    def private(self) -> Iterator[tuple[str, str]]:
        """Every private agent with the same planner without noise."""
        for family in self.families.values():
            yield from family.plain.items()


def _safe(p: Priced) -> list[str]:
    wrong: list[str] = []
    for r in p.rows:
        if r["epsilon"] is None:
            continue
        true, at = r["true_epsilon"], f"{r['agent']} at ε = {number(r['epsilon'])}, n = {r['episodes']:,}"
        if true is None:
            wrong.append(f"{at}: drew no noise")
        elif true > r["epsilon"] * (1 + 1e-9):
            wrong.append(f"{at}: {number(true, toward='up')}")
    return wrong


def _last(p: Priced, agent: str, epsilon: float | None) -> float:
    found = p.needed(agent, epsilon)
    return float("inf") if found is None else found


def _free(p: Priced) -> list[str]:
    return [
        f"{agent} at ε = {number(e)}: {p.told(p.needed(agent, e))} against {p.told(p.needed(plain, None))}"
        for agent, plain in p.private()
        for e in p.budgets
        if _last(p, agent, e) < _last(p, plain, None)
    ]


def _dearer(p: Priced) -> list[str]:
    return [
        f"{agent}: {p.told(p.needed(agent, low))} at ε = {number(low)}, "
        f"{p.told(p.needed(agent, high))} at {number(high)}"
        for agent, _ in p.private()
        for low, high in pairwise(p.budgets)
        if _last(p, agent, high) > _last(p, agent, low)
    ]


def _disordered(p: Priced) -> list[str]:
    wrong: list[str] = []
    for family in p.families.values():
        by_trust = {p.trust(agent): agent for agent in family.plain}
        for more, less in _ORDER:
            if more not in by_trust or less not in by_trust:
                continue
            wrong += [
                f"{more} {p.told(p.needed(by_trust[more], e))}, {less} {p.told(p.needed(by_trust[less], e))} "
                f"at ε = {number(e)}"
                for e in p.budgets
                if _last(p, by_trust[more], e) > _last(p, by_trust[less], e)
            ]
    return wrong


def _out_of_reach(p: Priced) -> list[str]:
    return [f"{agent} at ε = {number(e)}" for agent, _ in p.private() for e in p.budgets if p.needed(agent, e) is None]


def _nowhere(exceptions: Callable[[Priced], list[str]], right: str) -> Callable[[Priced, str], Verdict]:
    """Holds where there is no exception; the regime lists them."""

    def judge(p: Priced, _: str) -> Verdict:
        wrong = exceptions(p)
        return not wrong, f"not so: {'; '.join(wrong)}" if wrong else right

    return judge


def claims(p: Priced) -> list[Judged]:
    """Verdicts on general sentences, each with its rule and where it fails."""
    judged: list[Claim[Priced]] = [
        Claim(
            "nobody's noise is worth more than the ε asked",
            "recomputed from the scales drawn, largest of all runs, at most the ε asked, in every private row",
            _nowhere(_safe, "in every row"),
        ),
        Claim(
            "privacy is never free of charge",
            "episodes needed by a private agent are at least those of the same planner without noise, at every ε",
            _nowhere(_free, "at every ε"),
        ),
        Claim(
            "less privacy costs no more episodes",
            "episodes needed never grow with ε",
            _nowhere(_dearer, "for every agent"),
        ),
        Claim(
            "whoever is trusted more needs no more episodes",
            "episodes needed: central at most joint and shuffle, these at most local, within a family, at every ε",
            _nowhere(_disordered, "at every ε"),
        ),
        Claim(
            "every trust model learns in this range, at every ε",
            f"the bar is met from some n on, at most {p.episodes[-1]:,}",
            _nowhere(_out_of_reach, "every agent at every ε"),
        ),
    ]
    found = [c.verdict(p, (), None) for c in judged]
    return [Judged(claim=c["claim"], holds=c["holds"], regime=c["regime"], rule=c["rule"]) for c in found]
