"""A report's facts and policy as a run of the demo would hand them over."""

import copy
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np

from pipeline.facts.learnt import Decisions, Gains
from pipeline.facts.report import Report
from pipeline.mdp.policy import Policy
from reports.run.run_page import render_html, render_markdown
from tests.goldens.places import HOME

_FACTS: dict[str, Any] = json.loads((HOME / "runs" / "count-46cb716e1c" / "report.json").read_text(encoding="utf-8"))
# a committed run's, of another size
_CHANGED: dict[str, dict[str, Any]] = {
    "dataset": {
        "name": "icu_sepsis",
        "user": "user_id",
        "users_public": 100000,
        "horizon": 20,
        "live_states": ["sofa 0–4", "sofa 5–7", "sofa 8–10", "sofa 11+", "other"],
        "ends": ["died", "survived", "end"],
        "actions": [str(a) for a in range(25)],
        "vetoes": [],
        "dynamics": "stationary",
        "markov": "aggregated",
        "cell_cap": 4,
        "reward_range": [0.0, 1.0],
        "reward_total": 1.0,
    },
    "guarantee": {
        "sentence": "Replacing one person, meaning everything one user_id contributed (its one episode, at most "
        "20 steps), by any other changes the probability of anything on this page by at most a factor e^ε with "
        "ε = 7.676, up to a probability of δ = 1e-06 (ρ = 0.98 zCDP; a trusted curator adds the noise once).",
        "rho": 0.98,
        "epsilon": 7.6758,
    },
    "value": {
        "lower": 0.66123,
        "upper": 0.75987,
        "estimate": 0.7102,
        "upper_trivial": 1.0,
        "gap": 0.09864,
        "optimal_upper": 0.8013,
        "assumes": ["the dynamics do not depend on the step", "the binned process only"],
    },
    "ledger": {
        "dataset": "icu_sepsis",
        "cap_rho": 4.0,
        "spent_rho": 0.98,
        "remaining_rho": 3.02,
        "epsilon_spent": 7.6758,
        "hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    },
    "consistency": {"solver": "cvxpy/CLARABEL"},
    "policy": {"tie_share": 0.02, "abstain_share": 0.2, "tied": [[3, 1]]},
}
for _part, _change in _CHANGED.items():
    _FACTS[_part] |= _change
_FACTS |= {"run": "demo-1a2b3c", "recipe": "demo"}
# one table is drawn: its noise hides few decisions
_FACTS["mechanisms"] = [
    _FACTS["mechanisms"][0] | {"shape": [1, 5, 25, 8], "scale": 12.884098726725126, "variance": 166}
]
_FACTS["model_baselines"] = {
    "uniform": {"lower": 0.6412, "upper": 0.7212, "estimate": 0.6853},
    "best constant": {"action": "7", "lower": 0.601, "upper": 0.6501, "estimate": 0.63},
}
_FACTS["truth"] = {
    "v_star": 0.7922,
    "v_policy": 0.738,
    "v_policy_model": 0.7311,
    "suboptimality": 0.0542,
    "v_behavior": 0.6854,
    "v_uniform": 0.6853,
}
del _FACTS["practice"]


class Page(HTMLParser):
    """What a browser would make of a page: tags, addresses, sections, rows of cells of its tables, and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.addresses, self.sections, self.text = list[str](), list[str](), list[str](), list[str]()
        self.tables: list[list[list[str]]] = []
        self.cell: list[str] | None = None
        self.guarantee_in = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        assert not any(name.startswith("on") for name in named)
        if tag == "section":
            self.sections.append(named.get("id") or "")
        if named.get("id") == "guarantee":
            self.guarantee_in = self.sections[-1]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            assert self.cell is not None
            self.tables[-1][-1].append("".join(self.cell))
            self.cell = None

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.cell is not None:
            self.cell.append(data)


def sample_facts(**changes: dict[str, Any] | None) -> dict[str, Any]:
    """The sample, with parts updated (or removed by None)."""
    facts = copy.deepcopy(_FACTS)
    for part, change in changes.items():
        if change is None:
            del facts[part]
        else:
            facts[part] = facts[part] | change
    return facts


def report_of(facts: dict[str, Any]) -> Report:
    return Report.model_validate(facts)


def sample_report(**changes: dict[str, Any] | None) -> Report:
    return report_of(sample_facts(**changes))


def sample_view(
    horizon: int = 20, states: list[str] | None = None, actions: list[str] | None = None, scattered: bool = False
) -> Decisions:
    """A policy that changes slowly over the steps (or, scattered, at each), abstaining in the last state."""
    labels: list[str] = states or _FACTS["dataset"]["live_states"]
    choices: list[str] = actions or _FACTS["dataset"]["actions"]
    h, s = np.meshgrid(np.arange(horizon), np.arange(len(labels)), indexing="ij")
    action = ((h * 7 + s * 3) if scattered else (h // 9 + 6 * s)) % len(choices)
    kinds = (np.arange(len(labels))[:, None] * 5 + np.arange(len(choices))) % 17
    evidence = (40 + 13 * kinds[None]).astype(np.float64)
    evidence[:, -1] = 9.0
    practice = np.asarray(evidence / evidence.sum(-1, keepdims=True), dtype=np.float64)
    practice[:, -1] = np.nan
    policy = Policy(np.eye(len(choices))[action], s == len(labels) - 1)
    return Decisions(labels, choices, policy, (h == 3) & (s == 1), evidence, practice)


def abstaining(view: Decisions, where: Any) -> Decisions:
    return replace(view, policy=Policy(np.eye(len(view.action_labels))[view.action], np.asarray(where)))


def gains_view(observation: list[str], action: list[str], gains: Any) -> Gains:
    return Gains(observation, action, np.asarray(gains, dtype=np.float64))


def drawn(report: Report, view: Any = None) -> tuple[str, str]:
    """Page and Markdown, as a run publishes them; ``view``: of its policy, None: the sample's."""
    return render_html(report, view or sample_view()), render_markdown(report, view or sample_view())


def in_words(report: Report, view: Any = None) -> str:
    return render_markdown(report, view or sample_view()).replace("\\", "")


def first_screen(report: Report, view: Any = None) -> str:
    """The page before its contents."""
    return drawn(report, view)[0].partition("<nav")[0]


def card(report: Report, name: str, view: Any = None) -> tuple[str, str]:
    """Answer and words of a card of the first screen."""
    found = re.search(rf"\*\*{name}: (.*?)\.?\*\* ?(.*?)(?=\n\n\*\*|\n\n## |\n\n- Adopt)", in_words(report, view), re.S)
    assert found is not None, name
    return found[1], found[2].strip()
