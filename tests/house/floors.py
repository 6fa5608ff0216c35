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
    "pipeline.statistics": 2,
    "pipeline.facts": 2,
    "pipeline.agents": 3,
    "pipeline.logs": 3,
    "pipeline.ledger": 3,
    "pipeline.evaluation": 3,
    "pipeline.transaction": 4,
    "pipeline.worlds": 4,
    "pipeline.online": 5,
    "pipeline.operator": 4,
    "pipeline.audits": 6,
    "pipeline.learners": 7,
    "reports": 8,
    "flows.config": 8,
    "flows.jobs": 9,
    "flows.terminal": 9,
    "flows.server": 10,
    "flows.api": 11,
    "flows.verbs": 14,
    "flows.cli": 15,
    "reticent": 16,
}
ONLY_IN = {
    "cvxpy": ("pipeline.statistics.consistency", "pipeline.mdp.planning"),
    "prefect": ("flows.server",),
    "distributed": ("pipeline.logs.elsewhere",),
    "dask": ("pipeline.logs.elsewhere",),
    "polars": ("pipeline.logs", "pipeline.operator", "pipeline.worlds", "reports", "flows.jobs.opened"),
}
AGENTS_MAY_NOT = (
    "pipeline.logs",
    "pipeline.worlds",
    "pipeline.online",
    "pipeline.ledger",
    "pipeline.privacy.noise",
    "pipeline.privacy.csprng",
    "pipeline.statistics.calibration",
    "pipeline.statistics.linear_sums",
    "pipeline.statistics.lq",
    "pipeline.statistics.private_sum",
    "pipeline.statistics.interactive_counts",
    "pipeline.statistics.online_sum",
    "pipeline.statistics.mixture",
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
# who may import the online agents: what plays them, attacks them, or draws their study
ONLINE = "pipeline.online"
PLAYS = ("pipeline.online", "pipeline.audits", "flows", "reports.studies", "reticent")
