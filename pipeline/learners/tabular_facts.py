"""The learnt policy of a run of counts, its interval and what covers it; released values and declarations only."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.agents import pessimism
from pipeline.agents.against_behaviour import AgainstPractice
from pipeline.agents.suboptimality import best_supported, rows_of
from pipeline.declaration.card import Card, declared_start, task_of
from pipeline.declaration.code import syntax_digest
from pipeline.facts import learnt as learnt_facts
from pipeline.learners import policy_files
from pipeline.learners.tabular_learning import CountsResult
from pipeline.learners.terms import Planner, Terms
from pipeline.ledger.chain import canonical_hash
from pipeline.mdp.policy import Policy
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_mechanism, sha256_file
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.consistency import ConsistencyCertificate
from pipeline.statistics.held_out import OTHERS
from pipeline.statistics.planning_counts import Prepared, slack_of

# modules that make policy and interval of a release: a row that was measured with other code does not count
_PLANNER = (
    "pipeline.agents.apvi",
    "pipeline.agents.pessimism",
    "pipeline.agents.support",
    "pipeline.learners.tabular_learning",
    "pipeline.mdp.model",
    "pipeline.statistics.consistency",
    "pipeline.statistics.planning_counts",
)
# counts of a step, its action and where it led
_NEXT = "n_sas"
# share of episodes that break off without moving a verdict
_FEW = 0.001
# at least this many draws, and this share of them inside, make a measured status (design §5.3)
_DRAWS, _INSIDE = 100, 0.95


def broken_off(release: Release, card: Card) -> float | None:
    """Standard errors by which fewer rows follow than the rows before lead to, from an episode's second step on.

    Who leaves unseen leads nowhere, or to a state that has no row: the scores of people stop there, and what the policy
    would do goes on.  A thousandth of the episodes counts as one standard error at least: so few move no verdict.  From
    released counts, at no cost; None where no table counts next states step by step.
    """
    table = next((m for m in release.mechanisms if m.table in (_NEXT, OTHERS + _NEXT)), None)
    if table is None or len(counts := release.tables[table.table]) < 2:
        return None
    live = len(card.domain.live_states)
    # who goes on after the first step comes to an end later, or takes the last one
    terms = counts[0, ..., :live], -counts[1:, ..., live:], -counts[-1, ..., :live]
    missed, noise = float(sum(int(x.sum()) for x in terms)), table.standard_deviation**2 * sum(x.size for x in terms)
    return missed / math.sqrt(noise + max(1.0, _FEW * float(counts[0].sum())) ** 2)


@dataclass(frozen=True)
class LearntCounts:
    """See :class:`~pipeline.learners.learner.Learnt`."""

    card: Card
    terms: Terms
    learnt: CountsResult
    release: Release
    covered: bool = True

    def files(self) -> policy_files.PolicyFiles:
        return policy_files.decision_files(self.card, self.learnt.plan.policy)

    def facts(self) -> learnt_facts.LearntFacts:
        # theorem and measurements are of one release, not of a sum of nights
        once = self.covered and self.terms.nightly is None
        rows = containment(self.card) if once else []
        row = measured(rows, setting_key(self.card, self.terms)) if rows else None
        return learnt_facts.LearntFacts(
            constants=_constants(self.learnt, self.terms.planner),
            value=value_facts(self.card, self.learnt.value, is_proved=once and proved(self.card, self.terms)),
            model_baselines=dict(self.learnt.baselines),
            practice=practice_facts(self.learnt.against, self.learnt.plan.policy),
            consistency=consistency_facts(self.learnt.consistency, self.learnt.prepared),
            policy=policy_files.decision_facts(self.learnt.plan.policy, self.learnt.plan.tied),
            contained=None if row is None else _contained(row),
            best=self._best(),
        )

    def _best(self) -> learnt_facts.Best:
        counts, card = self.learnt.prepared.counts, self.card
        upper = best_supported(rows_of(counts, declared_start(card)), counts, task_of(card))
        once = self.covered and self.terms.nightly is None and card.domain.markov == "declared"
        return learnt_facts.Best(upper, measured=once and best_measured(card, self.terms))

    def truth(self, world: str, behaviour: str) -> learnt_facts.Truth:
        return policy_files.tabular_truth(self.card, world, behaviour, self.learnt.plan.policy)


def _constants(learnt: CountsResult, p: Planner) -> learnt_facts.TabularConstants:
    def shown(c: pessimism.Constants) -> learnt_facts.Preset:
        values = {"C1": c.C1, "C2": c.C2, "C": c.C, "iota": c.iota}
        return learnt_facts.Preset(preset=c.preset, values=values, source=c.source())

    return learnt_facts.TabularConstants(
        policy=shown(learnt.policy_constants),
        bounds=shown(learnt.bound_constants),
        penalty=p.penalty,
        failure_probability=p.failure,
        slack=slack_of(p.constants) if p.constants != "practical" else "none",
        threshold=learnt.plan.threshold,
        seed_of_ties=p.seed,
    )


# region in which the coverage of the best policy's upper end was measured: most live states and steps, least number
# of people who learn times the root of rho, and least number of these
_MOST_STATES, _MOST_STEPS, _LEAST_PEOPLE_ROOT_RHO, _LEAST_TEACHING = 250, 20, 5000.0, 14_000


def best_measured(card: Card, terms: Terms) -> bool:
    """True where the coverage of the best policy's upper end was measured for a run like this."""
    d, rho, people = card.domain, terms.ask().zcdp(), card.unit.users_public * float(terms.teaching)
    few = len(d.live_states) <= _MOST_STATES and d.horizon <= _MOST_STEPS and card.unit.episodes_per_user == 1
    return few and rho is not None and people >= _LEAST_TEACHING and people * math.sqrt(rho) >= _LEAST_PEOPLE_ROOT_RHO


def setting_key(card: Card, terms: Terms) -> dict[str, str]:
    """Columns on which a committed containment row must agree (design §5.3)."""
    ask, p = terms.ask(), terms.planner
    return {
        "world": terms.known.world if terms.known else "",
        "behaviour": terms.known.behaviour if terms.known else "",
        "code": syntax_digest(_PLANNER)[:16],
        "domain": card.domain_hash()[:16],
        "n": str(card.unit.users_public),
        "rho": f"{float(ask.rho):g}" if ask.rho is not None else "none",
        "dynamics": card.domain.dynamics,
        "tables": ask.tables,
        "policy_constants": p.constants,
        "bounds": p.bounds,
        "penalty": p.penalty,
        "setting": setting_hash(card, terms),
    }


def setting_hash(card: Card, terms: Terms) -> str:
    """Hex digest of all that moves an interval except the draws and the seed of ties."""
    from pipeline.worlds.catalog import WORLD_FILE, arrays_file

    world = arrays_file(terms.known.world if terms.known else card.name, card.folder)
    world_file = card.folder / WORLD_FILE
    parts = [
        [describe_mechanism(m) for m in count_sum(card, terms.ask()).mechanisms],
        terms.planner.model_dump(mode="json", exclude={"seed"}),
        terms.evaluate.model_dump(mode="json") if terms.evaluate else None,
        [[str(s), str(a)] for s, a in card.domain.vetoes],
        card.domain_hash(),
        card.unit.users_public,
        sha256_file(world) if world.is_file() else None,
        *([sha256_file(world_file)] if world_file.is_file() else []),
    ]
    return canonical_hash(parts)[:24]


def containment(card: Card) -> list[dict[str, str]]:
    """The committed containment table beside a synthetic card, if there is one."""
    path = card.folder / "containment.csv"
    if card.kind == "real" or not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def proved(card: Card, terms: Terms) -> bool:
    """True where the paper's theorem covers the interval: constants, penalty, release, process, one episode each."""
    d, ask, p = card.domain, terms.ask(), terms.planner
    return (
        (p.constants, p.bounds, p.penalty) == ("paper", "paper", "bernstein")
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
        if enough and all(row.get(k) == v for k, v in key.items()):
            return row
    return None


def _contained(row: Mapping[str, str]) -> learnt_facts.Contained:
    return learnt_facts.Contained(
        world=row["world"],
        behaviour=row["behaviour"],
        episodes=int(row["n"]),
        draws=int(row["draws"]),
        inside=int(row["inside"]),
    )


def value_facts(card: Card, interval: Mapping[str, float], *, is_proved: bool) -> learnt_facts.ValueFacts:
    """The ``value`` of report.json: interval, status and assumptions."""
    d = card.domain
    assumes = [
        "start distribution: "
        + ("estimated from the released counts" if d.start == "released" else "declared on the card"),
        "rewards take only values of the declared lattice (others were rounded down before anything was summed)",
    ]
    assumes += policy_files.total_assumed(card)
    if d.dynamics == "stationary":
        assumes.append("the dynamics do not depend on the step (declared; all steps share one table)")
    proof = "containment: theorem of paper 003 with its own constants"
    assumes += [policy_files.process_assumed(card), proof if is_proved else learnt_facts.UNMEASURED]
    lower, upper = interval["lower"], interval["upper"]
    return learnt_facts.ValueFacts(
        lower=lower,
        upper=upper,
        estimate=interval["estimate"],
        lower_trivial=interval["lower_trivial"],
        upper_trivial=interval["upper_trivial"],
        gap=upper - lower,
        optimal_upper=interval["optimal_upper"],
        status="proved" if is_proved else "modelled",
        assumes=assumes,
        start="released" if d.start == "released" else "declared",
    )


def practice_facts(against: AgainstPractice, policy: Policy) -> learnt_facts.Practice:
    """The ``practice`` of report.json, over the cells in which the policy recommends something."""
    has_gain, advised = ~np.isnan(against.gain), max(1, int((~policy.abstains).sum()))
    cells = [
        (h, s, _six(float(against.followed[h, s])), _six(float(against.gain[h, s])), bool(against.apart[h, s]))
        for h, s in np.argwhere(has_gain).tolist()
    ]
    return learnt_facts.Practice(
        known_share=float(has_gain.sum()) / advised,
        followed_share=float(against.followed[has_gain].mean()) if cells else None,
        apart_share=float(against.apart[has_gain].mean()) if cells else None,
        cells=cells,
    )


def _six(x: float) -> float:
    """Rounded to the six digits that a page shows."""
    return float(f"{x:.6g}")


def consistency_facts(certificate: ConsistencyCertificate, prepared: Prepared) -> learnt_facts.ConsistencyFacts:
    """The ``consistency`` of report.json."""
    drift = prepared.drift
    tested = drift is not None and math.isfinite(drift.error)
    return learnt_facts.ConsistencyFacts(
        programme=certificate.programme,
        steps_shared=None if drift is None else prepared.shared,
        drift=drift.square if drift is not None and tested else None,
        drift_error=drift.error if drift is not None and tested else None,
        solver=certificate.solver,
        cells=sum(certificate.cells.values()),
        certified=sum(certificate.certified.values()),
        cases={
            c: learnt_facts.CaseFacts(cells=certificate.cells[c], certified=certificate.certified[c])
            for c in certificate.cells
        },
        largest_relative_difference=decade_above(certificate.largest_relative_difference),
        tolerance=certificate.tolerance,
    )


def decade_above(difference: float) -> float:
    """The next power of ten, at least 1e-12: which cells were drawn must not change a page of the same release."""
    return max(1e-12, 10.0 ** math.ceil(math.log10(difference))) if difference > 0 else 1e-12
