"""The plan of the house: which room stands on which floor, and what may be used where.

Imports go to strictly lower floors or stay inside one room.  A room is the longest name here that a module begins with.
"""

from __future__ import annotations

FLOORS = {
    "pipeline.disk": 0,
    "pipeline.files": 1,
    "pipeline.privacy": 0,
    "pipeline.mdp": 0,
    "pipeline.declaration": 1,
    "pipeline.environments": 2,
    "pipeline.statistics": 2,
    "reports.facts": 2,
    "pipeline.agents": 3,
    "pipeline.logs": 3,
    "pipeline.ledger": 3,
    "pipeline.evaluation": 3,
    "pipeline.transaction": 4,
    "pipeline.simulation": 4,
    "pipeline.operator": 4,
    "pipeline.audits": 5,
    "pipeline.studies": 5,
    "pipeline.learners": 6,
    "reports": 7,
    "flows.config": 7,
    "flows.jobs": 8,
    "flows.terminal": 8,
    "flows.server": 9,
    "flows.store": 10,
    "flows.api": 11,
    "flows.api_worlds": 12,
    "flows.verbs": 13,
    "flows.cli": 14,
    "reticent": 15,
}
ONLY_IN = {
    "cvxpy": ("pipeline.statistics.consistency", "pipeline.mdp.planning"),
    "prefect": ("flows.server",),
    "distributed": ("pipeline.logs.crews",),
    "dask": ("pipeline.logs.crews",),
    "polars": ("pipeline.logs", "pipeline.operator", "pipeline.simulation", "reports", "flows.jobs.opened"),
}
AGENTS_MAY_NOT = (
    "pipeline.logs",
    "pipeline.environments",
    "pipeline.ledger",
    "pipeline.privacy.noise",
    "pipeline.privacy.fast_noise",
    "pipeline.privacy.csprng",
    "pipeline.statistics.calibration",
    "pipeline.statistics.linear_calibration",
    "pipeline.statistics.lq_layout",
    "pipeline.statistics.private_sum",
    "pipeline.statistics.interactive",
    "pipeline.statistics.lq_moments",
    "pipeline.statistics.batch_privatizers",
    "pipeline.statistics.interactive_counts",
    "pipeline.statistics.online_sum",
    "pipeline.statistics.regularizers",
    "pipeline.statistics.lq_regularizers",
)
# no pseudo-random generator: what is released rests on the operating system's randomness alone
RELEASE_PATH = (
    "pipeline.privacy",
    "pipeline.statistics",
    "pipeline.ledger",
    "pipeline.logs",
    "pipeline.transaction",
)
# learners break ties with a seed of the recipe, and never by what they import
TIES = ("pipeline.learners",)
# the one class that may hold a seeded generator, for simulations: it refuses data registered as real
SEEDED = ("pipeline.privacy.noise", "SeededNoise")
# they import what a user names, at run time
LOADERS = ("pipeline.declaration.code",)
