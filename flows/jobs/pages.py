"""What a run's folder says of a policy learnt from counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.jobs.containment import containment, setting_key
from flows.jobs.decisions import counts_view, decision_facts, practice_facts, tabular_truth
from flows.jobs.folder import write_policy
from pipeline.declaration.card import Card
from pipeline.learners.tabular_learning import Learnt, planner_facts
from pipeline.learners.terms import Planner, Terms
from pipeline.privacy.release import Release
from pipeline.statistics.calibration import Ask
from pipeline.statistics.consistency import ConsistencyCertificate
from reports.facts.learnt import Baseline, CaseFacts, ConsistencyFacts, Constants, LearntFacts, Truth, ValueFacts
from reports.facts.policy import Decisions

# at least this many draws, and this share of them inside, make a measured status (design §5.3)
_DRAWS, _INSIDE = 100, 0.95


@dataclass(frozen=True)
class CountsPages:
    """See :class:`~flows.jobs.publish.Pages`."""

    card: Card
    terms: Terms
    learnt: Learnt
    release: Release

    def write(self, folder: Path) -> tuple[str, ...]:
        """See :class:`~flows.jobs.publish.Pages`."""
        write_policy(folder, self.card, self.learnt.plan.policy)
        return ("policy",)

    def facts(self) -> LearntFacts:
        """See :class:`~flows.jobs.publish.Pages`."""
        settings = self.terms.planner
        # theorem and measurements are of one release, not of a sum of nights
        once = self.terms.nightly is None
        row = measured(containment(self.card), setting_key(self.card, self.terms)) if once else None
        is_proved = once and proved(self.card, settings, self.terms.ask())
        return LearntFacts(
            constants=Constants.model_validate(planner_facts(self.learnt, settings)),
            value=value_facts(self.card, self.learnt.value, is_proved=is_proved, row=row),
            model_baselines={name: Baseline.model_validate(b) for name, b in self.learnt.baselines.items()},
            practice=practice_facts(self.learnt.against, self.learnt.plan.policy),
            consistency=consistency_facts(self.learnt.consistency),
            policy=decision_facts(self.learnt.plan.policy, self.learnt.plan.tied),
        )

    def view(self) -> Decisions:
        """See :class:`~flows.jobs.publish.Pages`."""
        d, plan = self.card.domain, self.learnt.plan
        return counts_view((d.live_states, d.action_labels), plan.policy, plan.tied, self.release)

    def truth(self, world: str, behaviour: str) -> Truth:
        """See :class:`~flows.jobs.publish.Pages`."""
        return tabular_truth(self.card, world, behaviour, self.learnt.plan.policy)


def proved(card: Card, settings: Planner, ask: Ask) -> bool:
    """Whether the paper's theorem covers the interval: its constants, penalty, release, process, one episode each."""
    d = card.domain
    return (
        (settings.constants, settings.bounds, settings.penalty) == ("paper", "paper", "bernstein")
        and ask.tables == "two_tables"
        and ask.zcdp() is not None
        and d.dynamics == "per_step"
        and d.markov == "declared"
        and card.unit.episodes_per_user == 1
        and d.start != "released"
        and card.reward.kind == "table"
    )


def measured(rows: Sequence[Mapping[str, str]], key: Mapping[str, str]) -> Mapping[str, str] | None:
    """The committed containment row that covers ``key`` with enough draws and enough of them inside, if any."""
    for row in rows:
        enough = int(row["draws"]) >= _DRAWS and int(row["inside"]) >= _INSIDE * int(row["draws"])
        if enough and all(row[k] == v for k, v in key.items()):
            return row
    return None


def value_facts(
    card: Card,
    interval: Mapping[str, float],
    *,
    is_proved: bool,
    row: Mapping[str, str] | None,
) -> ValueFacts:
    """The ``value`` of report.json: interval, status and what it assumes."""
    d = card.domain
    assumes = [
        "start distribution: "
        + ("estimated from the released counts" if d.start == "released" else "declared on the card"),
        "rewards take only values of the declared lattice (others were rounded down before anything was summed)",
    ]
    if d.dynamics == "stationary":
        assumes.append("the dynamics do not depend on the step (declared; all steps share one table)")
    if d.markov == "aggregated":
        assumes.append("the binned process only: the bins hide part of the state, so the true process may differ")
    else:
        assumes.append("the declared states carry all that matters for what comes next (Markov, declared)")
    if is_proved:
        assumes.append("containment: theorem of paper 003 with its own constants")
    elif row is not None:
        assumes.append(f"containment: measured, inside in {row['inside']} of {row['draws']} draws of this very setting")
    else:
        assumes.append("containment: neither proved nor measured for these constants and this process")
    lower, upper = interval["lower"], interval["upper"]
    return ValueFacts(
        lower=lower,
        upper=upper,
        estimate=interval["estimate"],
        lower_trivial=interval["lower_trivial"],
        upper_trivial=interval["upper_trivial"],
        gap=upper - lower,
        optimal_upper=interval["optimal_upper"],
        status="bound" if is_proved or row is not None else "estimate",
        assumes=assumes,
        start="released" if d.start == "released" else "declared",
    )


def consistency_facts(found: ConsistencyCertificate) -> ConsistencyFacts:
    """The ``consistency`` of report.json."""
    return ConsistencyFacts(
        solver=found.solver,
        cells=sum(found.cells.values()),
        certified=sum(found.certified.values()),
        cases={c: CaseFacts(cells=found.cells[c], certified=found.certified[c]) for c in found.cells},
        largest_relative_difference=decade_above(found.largest_relative_difference),
        tolerance=found.tolerance,
    )


def decade_above(difference: float) -> float:
    """The next power of ten, at least 1e-12: which cells were drawn must not change a page of the same release."""
    return max(1e-12, 10.0 ** math.ceil(math.log10(difference))) if difference > 0 else 1e-12
