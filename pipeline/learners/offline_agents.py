"""The offline agents and the policies they write, by name: the one table that says what each is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pipeline.agents.ucbvi import optimistic
from pipeline.declaration.card import AnyCard, CardError
from pipeline.declaration.code import is_plugin, plugin
from pipeline.learners import one_step_learning
from pipeline.learners.decisions import PLAYED, read_counts_view, read_linear_view, read_played_view
from pipeline.learners.gains import KIND, read_gains_view, stored_gains
from pipeline.learners.held_out import hold_out
from pipeline.learners.learner import Agent, RunPlan
from pipeline.learners.linear import LinearLearner
from pipeline.learners.lq import LqLearner
from pipeline.learners.observed_policy import OBSERVED_KIND, stored_observed
from pipeline.learners.one_step import OneStepLearner
from pipeline.learners.policy_files import Codec, Exported, StoredPolicy, read_policy_files
from pipeline.learners.stored_decisions import stored_decisions
from pipeline.learners.tabular import Tabular
from pipeline.learners.terms import Terms
from pipeline.privacy.release_file import read_release, sha256_file
from reports.facts.policy import PolicyView
from reports.facts.report import Report

AGENTS: Mapping[str, Agent] = {
    "dp-apvi": Agent(Tabular(), private=True, twin="apvi"),
    "apvi": Agent(Tabular(), private=False, twin="dp-apvi"),
    "dp-ucbvi": Agent(Tabular(optimistic), private=True, twin="ucbvi"),
    "ucbvi": Agent(Tabular(optimistic), private=False, twin="dp-ucbvi"),
    "dp-vapvi": Agent(LinearLearner("vapvi"), private=True, twin="vapvi"),
    "vapvi": Agent(LinearLearner("vapvi"), private=False, twin="dp-vapvi"),
    "pevi": Agent(LinearLearner("pevi"), private=False, twin="dp-vapvi"),
    "dp-one-shot": Agent(LinearLearner("one-shot"), private=True, twin="one-shot"),
    "one-shot": Agent(LinearLearner("one-shot"), private=False, twin="dp-one-shot"),
    "dp-one-step": Agent(OneStepLearner(), private=True, twin="one-step"),
    "one-step": Agent(OneStepLearner(), private=False, twin="dp-one-step"),
    "dp-lqr": Agent(LqLearner(), private=True, twin="lqr"),
    "lqr": Agent(LqLearner(), private=False, twin="dp-lqr"),
}

# what draws on real data: what a plug-in's own learner draws, no ledger could recompute
_OURS = (Tabular, LinearLearner, OneStepLearner, LqLearner)


def find(name: str) -> Agent:
    """The registration of an agent.

    Parameters
    ----------
    name
        One of :data:`AGENTS`, or ``module:object`` of a package of your own: an :class:`Agent` too.

    Raises
    ------
    KeyError
        If there is none of that name.
    CardError
        If a plug-in is not permitted, cannot be found, or is no agent.
    """
    return plugin(name, Agent) if is_plugin(name) else AGENTS[name]


def plan_run(card: AnyCard, terms: Terms) -> RunPlan:
    """Plan and price a run of the agent that the terms name; reads no rows.

    Parameters
    ----------
    card
        What the data set declares.
    terms
        What the recipe asks.

    Raises
    ------
    CardError
        If card and recipe do not fit each other, or real people would be drawn by code that is not of the house.
    """
    learner = find(terms.agent).learner
    if card.kind == "real" and type(learner) not in _OURS:
        raise CardError(
            f"{card.name} is registered as real: {terms.agent} draws by code of its own, and what it would be charged "
            "nobody could verify; give one of the house's learners a planner of your own (docs/extend.md)"
        )
    return hold_out(learner.plan(card, terms), card, terms)


# by the ``kind`` of policy.json, which a table of decisions does not have
_CODECS: Mapping[str | None, Codec] = {
    None: Codec(("policy",), read_counts_view, stored_decisions),
    "linear": Codec(("policy", "decisions"), read_linear_view, stored_decisions),
    OBSERVED_KIND: Codec(("policy", "decisions"), read_linear_view, stored_observed),
    one_step_learning.KIND: Codec(("policy",), one_step_learning.read_step_view, stored_decisions),
    KIND: Codec(("policy",), read_gains_view, stored_gains),
    PLAYED: Codec(("policy",), read_played_view, stored_decisions),
}


def read_view(report: Report, folder: Path) -> PolicyView:
    """The policy of a run's folder as the page draws it: what the run itself had at hand.

    Parameters
    ----------
    report
        Of the folder.
    folder
        With the policy's files and the release.

    Raises
    ------
    OSError, ValueError, KeyError
        If a file is missing or damaged.
    """
    files, codec = read_policy_files(folder, _CODECS)
    return codec.view(files, report, lambda: read_release(folder))


def read_stored(folder: Path) -> StoredPolicy:
    """The policy of a run's folder with labels, and what was promised.

    Parameters
    ----------
    folder
        Of the run.

    Raises
    ------
    CardError
        If a file of the folder is missing or damaged.
    """
    try:
        files, codec = read_policy_files(folder, _CODECS)
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        of = Exported(folder.name, report["guarantee"]["sentence"], sha256_file(folder / "policy.parquet"))
        return codec.stored(files, report, of)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as e:
        raise CardError(
            f"{folder.name}: the run's policy cannot be read ({type(e).__name__}); `reticent run` its recipe again: "
            "a committed release is replayed at no cost"
        ) from None
