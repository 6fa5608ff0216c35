"""The offline agents by name: the one table that says what each is."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.learners.learner import Agent
from pipeline.learners.linear import LinearLearner
from pipeline.learners.lq import LqLearner
from pipeline.learners.tabular import Tabular

AGENTS: Mapping[str, Agent] = {
    "dp-apvi": Agent(Tabular(), private=True, twin="apvi"),
    "apvi": Agent(Tabular(), private=False, twin="dp-apvi"),
    "dp-vapvi": Agent(LinearLearner("vapvi"), private=True, twin="vapvi"),
    "vapvi": Agent(LinearLearner("vapvi"), private=False, twin="dp-vapvi"),
    "pevi": Agent(LinearLearner("pevi"), private=False, twin="dp-vapvi"),
    "dp-one-shot": Agent(LinearLearner("one-shot"), private=True, twin="one-shot"),
    "one-shot": Agent(LinearLearner("one-shot"), private=False, twin="dp-one-shot"),
    "dp-lqr": Agent(LqLearner(), private=True, twin="lqr"),
    "lqr": Agent(LqLearner(), private=False, twin="dp-lqr"),
}
