"""Facts of an inspection, as ``inspect --json`` prints them: raw, for the operator only, never published.

Shares are from 0 to 1, of what their name says; null where nothing can be said.
"""

from __future__ import annotations

from typing import TypedDict


class RuleFacts(TypedDict):
    """Rows that broke one rule; ``tolerance`` is the card's share of the source rows, None where any is accepted."""

    rule: str
    effect: str
    rows: int
    share: float
    tolerance: float | None


class OverCap(TypedDict):
    """People above the cap of episodes, and their dropped episodes; None where the quarantine was purged."""

    above_cap: int | None
    episodes_dropped_by_cap: int | None


class PeopleFacts(OverCap):
    """People declared and counted."""

    declared: int
    counted: int
    counted_over_declared: float
    cap_of_episodes: int
    most_episodes_kept: int
    with_several_episodes: int


class StepFacts(TypedDict):
    """How long episodes are, in steps, and how many rows each step has."""

    horizon: int
    mean: float
    median: int
    p90: int
    whole_horizon_share: float
    episodes_by_length: list[int]
    rows_by_step: list[int]


class SnapshotFacts(TypedDict):
    """Which snapshot, its sizes, rules that rows broke or that the card has a tolerance for, people and episodes."""

    dataset: str
    kind: str
    snapshot: int
    source_rows: int
    rows: int
    users: int
    episodes: int
    rules: list[RuleFacts]
    people: PeopleFacts
    steps: StepFacts


class Warned(TypedDict):
    """A warning: a stable code, what was seen, what it means, what to do."""

    code: str
    what: str
    means: str
    do: str


class StateCoverage(TypedDict):
    """One state at one step (None: all steps pooled): how often its allowed actions were seen."""

    step: int | None
    state: str
    visits: int
    actions_allowed: int
    never_seen: int
    seen_fewer_than_few: int
    top_action: str | None
    top_share: float | None


class Coverage(TypedDict):
    """Cells that a policy may use; ``few`` is the number of visits below which a cell says next to nothing."""

    pooled: bool
    few: int
    cells: int
    never_seen: int
    seen_fewer_than_few: int
    table: list[StateCoverage]


class Behaviour(TypedDict):
    """What was done in one state, all steps together."""

    state: str
    visits: int
    actions_seen: int
    top_action: str | None
    top_share: float | None


class TableShares(TypedDict):
    """Shares of the rows; ``ends``: of the counted transitions into each.

    Parameters
    ----------
    ends
        Label -> share.
    unknown_next_state
        Rows that lead nobody knows where.
    other_state, other_action
        Rows whose label became OTHER; None where the card declares none.
    beyond_cell_cap
        Rows that count in no table, because the person was in the cell often enough before.
    """

    ends: dict[str, float]
    unknown_next_state: float
    other_state: float | None
    other_action: float | None
    beyond_cell_cap: float


class RewardFacts(TypedDict):
    """Rewards as they are summed, clipped and floored, in reward units."""

    lowest: float
    highest: float
    mean: float
    clipped_share: float
    floored_share: float


class NoiseFacts(TypedDict):
    """Visits against the noise of a release at one budget; ``deviation_of_visits`` is that of one cell's visits."""

    budget: str
    rho: float
    deviation_of_visits: float
    cells_drowned: int
    share_of_cells: float
    share_of_visits: float


class Verdict(TypedDict):
    """The test of one table; ``difference`` is a total-variation distance beyond chance, ``at`` the group of it."""

    people: int
    groups: int
    statistic: float
    degrees_of_freedom: int
    p_value: float
    difference: float
    at: str
    speaks: bool


class HiddenTest(Verdict):
    """Which state, against which raw column."""

    state: str
    column: str


class HiddenState(TypedDict):
    """Whether the logged actions depend on what the states hide; ``why_not`` where it was not checked."""

    checked: bool
    why_not: str | None
    significance: float
    effect: float
    tests: list[HiddenTest]


class TableFacts(SnapshotFacts):
    """A snapshot of declared states and actions; ``hidden_state`` is the test of what the states hide."""

    coverage: Coverage
    behaviour: list[Behaviour]
    shares: TableShares
    reward: RewardFacts | None
    noise: list[NoiseFacts]
    hidden_state: HiddenState


class Looked(TypedDict):
    """``warnings``, gravest first, and ``ledger_entry``, the number of the look's INSPECT entry."""

    warnings: list[Warned]
    ledger_entry: int


class TableInspection(TableFacts, Looked):
    """All that ``inspect`` tells of a log of states and actions."""


class VectorShares(TypedDict):
    """Shares of the rows."""

    unknown_next_observation: float
    shortened: float


class Coordinate(TypedDict):
    """One coordinate, in units of its scale."""

    name: str
    lowest: float
    highest: float
    mean: float
    deviation: float


class VectorSummary(TypedDict):
    """Lengths and coordinates of one vector; ``longer_than``: part of the radius -> share of the rows beyond it."""

    radius: float
    longer_than: dict[str, float]
    coordinates: list[Coordinate]


class VectorFacts(SnapshotFacts):
    """A snapshot of vectors."""

    shares: VectorShares
    vectors: dict[str, VectorSummary]


class VectorInspection(VectorFacts, Looked):
    """All that ``inspect`` tells of a log of vectors."""
