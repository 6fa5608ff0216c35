"""The plan of the house: which room stands on which floor, and what may be used where.

Imports go to strictly lower floors or stay inside one room.  A room is the longest name here that a module begins with.
"""

FLOORS = {
    "pipeline.arrays": 0,
    "pipeline.files": 2,
    "pipeline.privacy": 1,
    "pipeline.mdp": 1,
    "pipeline.declaration": 2,
    "pipeline.statistics": 3,
    "pipeline.facts": 3,
    "pipeline.agents": 4,
    "pipeline.logs": 4,
    "pipeline.ledger": 4,
    "pipeline.evaluation": 4,
    "pipeline.transaction": 5,
    "pipeline.worlds": 5,
    "pipeline.online": 6,
    "pipeline.operator": 5,
    "pipeline.audits": 7,
    "pipeline.learners": 8,
    "reports": 9,
    "flows.config": 9,
    "flows.jobs": 10,
    "flows.terminal": 10,
    "flows.server": 11,
    "flows.api": 12,
    "flows.verbs": 15,
    "flows.cli": 16,
    "reticent": 17,
}
ONLY_IN = {
    "cvxpy": ("pipeline.statistics.consistency", "pipeline.mdp.planning"),
    "prefect": ("flows.server",),
    "distributed": ("pipeline.logs.elsewhere",),
    "dask": ("pipeline.logs.elsewhere",),
    "polars": ("pipeline.logs", "pipeline.operator", "pipeline.worlds", "reports", "flows.jobs.opened"),
}
AGENTS_MAY_NOT = ("pipeline.logs", "pipeline.worlds", "pipeline.online", "pipeline.ledger")
AGENTS_MAY_NOT += ("pipeline.privacy.noise", "pipeline.privacy.csprng")
_STATISTICS = ("calibration", "linear_sums", "lq", "private_sum", "interactive_counts", "mixture")
AGENTS_MAY_NOT += tuple(f"pipeline.statistics.{name}" for name in _STATISTICS)
# no pseudo-random generator: what is released rests on the operating system's randomness alone
RELEASE_PATH = ("pipeline.privacy", "pipeline.statistics", "pipeline.ledger", "pipeline.logs", "pipeline.transaction")
# learners break ties with a seed of the recipe, and never by what they import
TIES = ("pipeline.learners",)
# the one class that may hold a seeded generator, for simulations: it refuses data registered as real
SEEDED = ("pipeline.privacy.noise", "SeededNoise")
# they import what a user names, at run time
LOADERS = ("pipeline.declaration.code",)
# who may import the online agents: what plays them, attacks them, or draws their study
ONLINE = "pipeline.online"
PLAYS = ("pipeline.online", "pipeline.audits", "flows", "reports.studies", "reticent")
