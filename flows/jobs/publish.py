"""From a committed release and what was learnt to a run's folder; the only writer of ``runs/``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from flows.config.home import Home
from flows.config.recipe import Recipe
from flows.jobs.read_back import Published, looks_of, publication, run_name
from pipeline.declaration.card import AnyCard, Card
from pipeline.files import copy_file, json_text, whole_folder, write_file
from pipeline.learners.learner import Learnt
from pipeline.learners.policy_files import PolicyFiles
from pipeline.ledger.assumptions import NOT_COVERED, assumptions, route_of
from pipeline.ledger.certificate import certificate, counter_facts, guarantee
from pipeline.ledger.chain import BudgetError, Entry
from pipeline.ledger.keys import operator_key
from pipeline.ledger.ledger import Ledger
from pipeline.logs.store import find_snapshot
from pipeline.logs.work import made_of
from pipeline.privacy.budget import down, fraction_of, up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.release_file import describe_mechanism, file_of, sha256_file
from pipeline.transaction.place import one_at_a_time, remember_head
from pipeline.transaction.transaction import Curated
from reports.facts.dataset import Made, declared
from reports.facts.learnt import UNMEASURED, Baseline, Contained, LearntFacts, ValueFacts
from reports.facts.measurement import EvaluationFacts
from reports.facts.part import Dump, present
from reports.facts.policy import PolicyView
from reports.facts.promise import GateFacts, MechanismFacts
from reports.facts.report import Certificate, LedgerFacts, Report
from reports.facts.verdict import decide
from reports.run.run_page import render_html, render_markdown

PAGES = ("report.html", "report.md")
# ends of a value, whoever states it
_ENDS = ("lower", "upper", "estimate", "optimal_upper")
_Ends = TypeVar("_Ends", ValueFacts, Baseline)


def publish_run(
    card: AnyCard,
    recipe: Recipe,
    home: Home,
    snapshot: int | None,
    curated: Curated,
    learnt: Learnt,
    ledger: Ledger,
) -> Published:
    """Write release, policy, certificate and report, and have the ledger vouch for them (PUBLISH).

    They are byte-identical for one release, one recipe and as many looks at the data (INSPECT): the page says that
    these happened, never what was seen.  ``snapshot`` is None for a night of a counter: how many there were tells when
    the log changed.

    Raises
    ------
    BudgetError
        If the stored release is not the committed one, or another release of that name is published already.
    """
    name, key, place = run_name(recipe, curated), operator_key(home.store), home.store / card.name
    with one_at_a_time(place), whole_folder(home.runs / name, over=True) as partial:
        entries = ledger.entries()
        for file in ("release.parquet", "release.json"):
            copy_file(curated.folder / file, partial / file)
        copied = sha256_file(partial / "release.parquet")
        if curated.commit is not None and copied != curated.commit.body["release_sha256"]:
            raise BudgetError(f"{card.name}: the stored release is not the committed one; nothing is published")
        _same_release(home.runs / name, copied, curated)
        copy_file(recipe.path, partial / "recipe.toml")
        read = None if snapshot is None else find_snapshot(home.store, card.name, snapshot)
        made, looks = made_of(card, read), looks_of(entries, card.name)
        report = compose(card, recipe, name, snapshot, curated, learnt, looks, partial, made)
        told = publication(card, recipe, curated, snapshot, entries, partial)
        if made is not None:
            told["made"] = made.model_dump()
        # before anybody can read it: what stands in `runs/` is vouched for
        entry = ledger.publish(card.name, told, key)
        if entry.seq > entries[-1].seq:
            remember_head(place, entry)
    return Published(name, home.runs / name, report)


def compose(
    card: AnyCard,
    recipe: Recipe,
    name: str,
    snapshot: int | None,
    curated: Curated,
    learnt: Learnt,
    looks: Sequence[Entry],
    folder: Path,
    made: Made | None,
) -> Report:
    """Write all files of a run but release and recipe, of which they are made: publishing does it, and verifying.

    Parameters
    ----------
    card, recipe
        As they were when the run was published.
    name, snapshot
        Of the run's folder; of the snapshot, None for a night of a counter.
    curated, learnt
        The committed release, and what was learnt from it.
    looks
        From :func:`looks_of`.
    folder
        Existing, with the release in it; files in it are replaced.
    made
        How the log was made, where it was simulated.

    Returns
    -------
    All that the run says.
    """
    digests = write_policy(learnt.files(), folder)
    ask, release, gate = recipe.terms.ask(), curated.release, curated.gate
    told = standing(learnt.facts(), card, made)
    # a real dataset's ledger is not home's
    of_card = " --card CARD" if card.kind == "real" else ""
    truth = None
    if card.kind == "synthetic" and (known := recipe.terms.known) is not None:
        truth = learnt.truth(known.world, known.behaviour)
    data, promise = declared(card, snapshot), guarantee(card, release, ask.calibration, ask.written, gate)
    report = Report(
        schema_version=1,
        run=name,
        recipe=recipe.recipe.name,
        agent=recipe.recipe.agent,
        dataset=data,
        **present(made=made),
        guarantee=promise,
        verdict=decide(told.evaluation, data, promise.rho),
        **present(evaluation=told.evaluation),
        constants=told.constants,
        value=told.value,
        model_baselines=told.model_baselines,
        **present(practice=told.practice),
        mechanisms=[MechanismFacts.model_validate(describe_mechanism(m)) for m in release.mechanisms],
        **present(gate=gate and GateFacts.model_validate(gate.told()), counter=counter_facts(release)),
        ledger=_ledger_facts(card, curated),
        **present(joint=told.joint, consistency=told.consistency, features=told.features, model=told.model),
        policy=told.policy,
        assumptions=assumptions(card, looks, route_of(release, curated.intent)),
        not_covered=list(NOT_COVERED),
        verify=[
            f"reticent ledger verify {name}{of_card}  # recomputes this run's certificate",
            f"reticent ledger verify{of_card}  # the whole chain" + ("; CARD is the card's file" if of_card else ""),
            f"reticent ledger show{of_card}  # the entries of {card.name}",
            *(f"sha256sum {file_of(kind)}  # {digest}" for kind, digest in digests.items()),
        ],
        **present(truth=truth),
    )
    proof = certificate(card, release, report, curated.intent, curated.commit, digests, looks, gate)
    write_pages(report, proof, learnt.view(), folder)
    return report


def write_policy(files: PolicyFiles, folder: Path) -> dict[str, str]:
    """Write a policy beside its release; sha256 of the files that the certificate lists."""
    tables = {kind: sha256_file(folder / f"{kind}.parquet") for kind in ("release", *files.write(folder))}
    # labels, scales and bounds decide what the policy's numbers mean
    return {**tables, "labels": sha256_file(folder / file_of("labels"))}


def write_pages(report: Report, proof: Certificate, view: PolicyView, folder: Path) -> None:
    """Write what a run says, its certificate and its pages."""
    write_file(folder / "report.json", json_text(report.model_dump()))
    write_file(folder / "certificate.json", json_text(proof.model_dump()))
    for page, text in zip(PAGES, drawn_pages(report, view), strict=True):
        write_file(folder / page, text)


def _same_release(there: Path, digest: str, curated: Curated) -> None:
    """A folder is rendered anew only from the release that it holds; exact tables of a simulation may change."""
    file = there / "release.parquet"
    if curated.commit is not None and file.is_file() and sha256_file(file) != digest:
        raise BudgetError(
            f"{there}: holds another release than entry {curated.commit.seq} committed: it was published before an "
            "older ledger and store were restored, or was edited. Restore the newest, or move the folder away; "
            "nothing was replaced"
        )


def drawn_pages(report: Report, view: PolicyView) -> tuple[str, str]:
    """The texts of :data:`PAGES`.

    Parameters
    ----------
    report, view
        What the run says, and its policy.
    """
    return render_html(report, view), render_markdown(report, view)


def _ledger_facts(card: AnyCard, curated: Curated) -> LedgerFacts | None:
    """Where the lineage stood when this release was committed: the same on every rendering."""
    if curated.commit is None:
        return None
    spent = Fraction(curated.commit.body["spent"])
    return LedgerFacts(
        dataset=card.name,
        cap_rho=card.budget.rho,
        spent_rho=up(spent),
        remaining_rho=down(fraction_of(card.budget.rho) - spent),
        delta=card.budget.delta,
        epsilon_spent=safe_epsilon(up(spent), card.budget.delta),
        entry=curated.commit.seq,
        hash=curated.commit.hash,
        at=curated.commit.at,
    )


def standing(told: LearntFacts, card: AnyCard, made: Made | None) -> LearntFacts:
    """What was learnt, with the interval that stands first, and nothing beyond what an episode can pay.

    Parameters
    ----------
    told
        From a learner.
    card
        Declares what an episode can pay.
    made
        How the log was made, where it was simulated: a containment that was measured on other logs certifies nothing.
    """
    most = card.reward.most(card.domain.states.ends) if isinstance(card, Card) else None
    value = _clipped(told.value, most)
    baselines = {name: _clipped(b, most) for name, b in told.model_baselines.items()}
    if (found := told.evaluation) is not None:
        found = found.within(value.lower_trivial, value.upper_trivial)
        baselines["this policy"] = Baseline.model_validate({k: getattr(value, k) for k in _ENDS[:3]})
        sure = found.certified(card.domain.markov if isinstance(card, Card) else "declared")
        value = _evaluated(value, found, sure=sure)
    elif told.contained is not None and value.status == "modelled" and _alike(told.contained, made):
        value = _bound(value, told.contained)
    return replace(told, value=value, model_baselines=baselines, evaluation=found)


def _clipped(of: _Ends, most: float | None) -> _Ends:
    if most is None or of.upper_trivial is None or of.upper_trivial <= most:
        return of
    ends = {k: min(x, most) for k in (*_ENDS, "upper_trivial") if (x := getattr(of, k, None)) is not None}
    return _with(of, ends)


def _evaluated(of: ValueFacts, found: EvaluationFacts, *, sure: bool) -> ValueFacts:
    """As people who had no part in choosing the policy see it."""
    told = found.value.model_dump()
    ends = {**told, "gap": told["upper"] - told["lower"], "lower_flag": None, "upper_flag": None}
    assumes = [
        "the declared state holds everything that drives both what is done and what comes of it",
        "coverage: measured in simulated worlds, not a theorem"
        if sure
        else "coverage: not measured for a log of this size, shape and budget"
        if not found.outweighed
        else "the placebo cannot tell a difference of this size from hidden state",
        *(said for said in of.assumes if said.startswith(("no episode pays", "the binned process"))),
    ]
    return _with(of, {**ends, "status": "evaluated" if sure else "modelled", "assumes": assumes})


def _alike(measured: Contained, made: Made | None) -> bool:
    wanted = measured.world, measured.behaviour, measured.episodes
    return made is not None and (made.world, made.behaviour, made.episodes) == wanted


def _bound(of: ValueFacts, measured: Contained) -> ValueFacts:
    said = f"containment: measured, inside in {measured.inside} of {measured.draws} draws of this very setting"
    assumes = [said if line == UNMEASURED else line for line in of.assumes]
    return _with(of, {"status": "bound", "assumes": assumes})


def _with(of: _Ends, changes: Dump) -> _Ends:
    return type(of).model_validate({**of.parts(), **changes})
