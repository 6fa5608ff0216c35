"""From a committed release and what was learnt to a run's folder; the only writer of ``runs/``.

A run that stands: where the ledger vouches for its files and this program would write the same, it is read back.

Publishing is a function of the committed release, of card and recipe, of the looks at the data and of the program; all
of them are in the PUBLISH entry.  A replay therefore makes nothing again, and imports nothing that makes it; whoever
wants it made again asks for `ledger verify RUN`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from flows.config.home import Home
from flows.config.recipe import Recipe
from pipeline.declaration.card import AnyCard, Card, task_of
from pipeline.declaration.code import is_plugin, plugin_digest
from pipeline.facts.evaluation import Evaluated
from pipeline.facts.learnt import UNMEASURED, Baseline, Contained, LearntFacts, PolicyView, ValueFacts
from pipeline.facts.promise import Dump, GateFacts, MechanismFacts, SimulatedLog, declared, present, record_of
from pipeline.facts.report import Certificate, LedgerFacts, Report, read_report
from pipeline.facts.verdict import Confounding, decide, missing
from pipeline.files import copy_file, json_text, whole_folder, write_file
from pipeline.learners.learner import Learnt
from pipeline.learners.policy_files import PolicyFiles
from pipeline.ledger.account import card_hash, reserve_of
from pipeline.ledger.certificate import NOT_COVERED, assumptions, certificate, counter_facts, guarantee, route_of
from pipeline.ledger.chain import BudgetError, Entry, canonical
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.looks import judged_before, recorded_in_time
from pipeline.ledger.publication import file_digests, maker, operator_key, publications
from pipeline.logs.store import Snapshot, find_snapshot
from pipeline.privacy.budget import down, fraction_of, up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.release_file import describe_mechanism, file_of, sha256_file
from pipeline.transaction.transaction import Curated, one_at_a_time, remember_head
from reports.page import NOT_DRAWN


@dataclass(frozen=True)
class Published:
    """A run as it was published."""

    name: str
    folder: Path
    report: Report


def run_name(recipe: Recipe, curated: Curated) -> str:
    """Recipe name and a hash of release key and recipe: one release and one recipe make one folder.

    ``recipe``, ``curated``: what was asked, and the release; a folder without private noise says so in its name.
    """
    own = _own_code(recipe)
    digest = hashlib.sha256(canonical([curated.run_key, recipe.dump(), *own.values()]).encode()).hexdigest()[:10]
    return f"{recipe.recipe.name}-{digest}" + ("" if curated.release.noise == "os" else "-simulation-not-private")


def made_by(card: AnyCard, recipe: Recipe) -> dict[str, str]:
    """What makes a run: :func:`~pipeline.ledger.publication.maker`, and the code and files that are its own."""
    return {**maker(), **_own_code(recipe), **_beside(card, recipe)}


def _own_code(recipe: Recipe) -> dict[str, str]:
    """Another text of an agent of your own may make another policy of the same release."""
    agent = recipe.recipe.agent
    return {"agent": plugin_digest(agent)} if is_plugin(agent) else {}


def _beside(card: AnyCard, recipe: Recipe) -> dict[str, str]:
    """What a synthetic run tells beside its release: measured containment, how the log was made, its world's values."""
    if card.kind == "real":
        return {}
    files, told = [card.folder / "containment.csv", record_of(card)], list[str]()
    if (known := recipe.terms.known) is not None:
        from pipeline.worlds.catalog import WORLD_FILE, arrays_file

        world = known.world
        files += [card.folder / WORLD_FILE, arrays_file(world, card.folder)]
        told = [plugin_digest(world)] if is_plugin(world) else []
    told += [sha256_file(file) for file in files if file.is_file()]
    return {"beside": hashlib.sha256("".join(told).encode()).hexdigest()[:16]}


def looks_of(entries: Sequence[Entry], lineage: str) -> list[Entry]:
    """The INSPECT entries of a lineage, of which a certificate tells."""
    return [e for e in entries if e.kind == "INSPECT" and e.lineage == lineage]


def publication(
    card: AnyCard, recipe: Recipe, curated: Curated, snapshot: int | None, entries: Sequence[Entry], folder: Path
) -> Dump:
    """What a PUBLISH entry says of a run's folder as it is now.

    ``run_key``, ``commit``: of the release, and the entry that committed it (None: exact tables of made-up people).
    ``snapshot``: its number, as the INTENT has it; None for a night of a counter.
    ``files``: sha256 by name, of every file of the folder.
    """
    return {
        "run": run_name(recipe, curated),
        "run_key": curated.run_key,
        "commit": None if curated.commit is None else curated.commit.seq,
        "snapshot": snapshot,
        "seen": entries[-1].seq,
        "card_hash": card_hash(card),
        "seed": recipe.planner.seed,
        "made_by": made_by(card, recipe),
        "files": file_digests(folder),
    }


def read_back(
    card: AnyCard, recipe: Recipe, home: Home, snapshot: int | None, curated: Curated, ledger: Ledger
) -> Published | None:
    """The run as it stands; None where it has to be written: nothing would be the same, or a file was changed.

    ``snapshot``: of the release; None for a night of a counter.
    """
    name, entries = run_name(recipe, curated), ledger.entries()
    there, folder = publications(entries, name), home.runs / name
    if not (curated.replayed and there and folder.is_dir()):
        return None
    told = there[-1].body
    now = publication(card, recipe, curated, snapshot, entries, folder)
    looked = any(e.seq > told["seen"] for e in looks_of(entries, card.name))
    if looked or any(told[key] != value for key, value in now.items() if key != "seen"):
        return None
    # remarks of a recipe are no part of what it asks, and are copied all the same
    if sha256_file(recipe.path) != told["files"]["recipe.toml"]:
        return None
    # its pictures could not be drawn then: now they may
    if NOT_DRAWN in (folder / "report.html").read_text(encoding="utf-8"):
        return None
    return Published(name, folder, read_report(folder))


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

    Raises BudgetError if the stored release is not the committed one, or another release of that name is published
    already.
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
        made = _made_of(card, read)
        report = compose(card, recipe, name, snapshot, curated, learnt, entries, partial, made)
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
    entries: Sequence[Entry],
    folder: Path,
    made: SimulatedLog | None,
) -> Report:
    """Write all files of a run but release and recipe, of which they are made: publishing does it, and verifying.

    ``name``, ``snapshot``: of the run's folder; of the snapshot, None for a night of a counter.
    Returns all that the run says.
    """
    looks, reserve = looks_of(entries, card.name), reserve_of(entries, card.name)
    if (before := judged_before(entries, curated.intent)) is not None:
        from pipeline.learners.held_out import judged

        learnt = judged(learnt, before)
    files = learnt.files()
    if recipe.play is not None:
        from flows.jobs.sharing import shared

        files = shared(files, recipe.play.share)
    digests = write_policy(files, folder)
    ask, release, gate = recipe.terms.ask(), curated.release, curated.gate
    told = standing(learnt.facts(), card, made)
    # a real dataset's ledger is not home's
    of_card = " --card CARD" if card.kind == "real" else ""
    truth = None
    if card.kind == "synthetic" and (known := recipe.terms.known) is not None:
        truth = learnt.truth(known.world, known.behaviour)
    data, promise = declared(card, snapshot), guarantee(card, release, ask.calibration, ask.written, gate)
    looks, hidden = looks_of(entries, card.name), _confounding(told.evaluation, card, entries)
    report = Report(
        schema_version=1,
        run=name,
        recipe=recipe.recipe.name,
        agent=recipe.recipe.agent,
        dataset=data,
        **present(made=made),
        guarantee=promise,
        verdict=decide(told.evaluation, data, promise.rho, hidden, told.model_baselines.get("practice")),
        **present(suboptimality=missing(told.best, told.value), evaluation=told.evaluation),
        constants=told.constants,
        value=told.value,
        model_baselines=told.model_baselines,
        **present(practice=told.practice),
        mechanisms=[MechanismFacts.model_validate(describe_mechanism(m)) for m in release.mechanisms],
        **present(gate=gate and GateFacts.model_validate(gate.told()), counter=counter_facts(release)),
        ledger=_ledger_facts(card, curated),
        **present(joint=told.joint, consistency=told.consistency, features=told.features, model=told.model),
        policy=told.policy,
        assumptions=assumptions(card, looks, route_of(release, curated.intent), reserve),
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


def _confounding(found: Evaluated | None, card: AnyCard, entries: Sequence[Entry]) -> Confounding | None:
    if not isinstance(card, Card):
        return None
    from pipeline.evaluation.confounding import confounding

    recorded = None if card.domain.practice is None else recorded_in_time(entries, card.name)
    least, most = task_of(card).value_range(0)
    d, at_the_end = card.domain, card.pays_at_the_end
    return confounding(
        found,
        horizon=d.horizon,
        course=d.horizon > 1 or card.unit.episodes_per_user > 1,
        alike=d.dynamics == "stationary",
        pays=most - least,
        pays_at_the_end=at_the_end,
        recorded=recorded,
    )


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
    """The texts of :data:`PAGES`."""
    from reports.run.run_page import render_html, render_markdown

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


def standing(told: LearntFacts, card: AnyCard, made: SimulatedLog | None) -> LearntFacts:
    """What was learnt, with the interval that stands first, and nothing beyond what an episode can pay."""
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


def _evaluated(of: ValueFacts, found: Evaluated, *, sure: bool) -> ValueFacts:
    """As people who had no part in choosing the policy see it."""
    told = asdict(found.value)
    ends = {**told, "gap": told["upper"] - told["lower"], "lower_flag": None, "upper_flag": None}
    assumes = [
        "the declared state holds everything that drives both what is done and what comes of it",
        "coverage: measured in simulated worlds, not a theorem"
        if sure
        else f"whoever judges is fresh, but {found.judged_before}"
        if found.judged_before is not None
        else "coverage: not measured for a log of this size, shape and budget"
        if not found.cut
        else "the weights that were cut make no difference of this size",
        *(said for said in of.assumes if said.startswith(("no episode pays", "the binned process"))),
    ]
    return _with(of, {**ends, "status": "evaluated" if sure else "modelled", "assumes": assumes})


def _alike(measured: Contained, made: SimulatedLog | None) -> bool:
    wanted = measured.world, measured.behaviour, measured.episodes
    return made is not None and (made.world, made.behaviour, made.episodes) == wanted


def _bound(of: ValueFacts, measured: Contained) -> ValueFacts:
    said = f"containment: measured, inside in {measured.inside} of {measured.draws} draws of this very setting"
    assumes = [said if line == UNMEASURED else line for line in of.assumes]
    return _with(of, {"status": "bound", "assumes": assumes})


def _with(of: _Ends, changes: Dump) -> _Ends:
    return type(of).model_validate({**of.parts(), **changes})


def _made_of(card: AnyCard, snapshot: Snapshot | None) -> SimulatedLog | None:
    """The record of the log that a snapshot was read from; None for any other log under the same card.

    ``snapshot``: none: of several, or none at all.
    """
    file = record_of(card)
    if card.kind == "real" or snapshot is None or not file.is_file():
        return None
    try:
        made = SimulatedLog.model_validate_json(file.read_bytes())
    except ValidationError:
        return None
    from pipeline.logs.sources import source_digest_of

    return made if snapshot.source_digest == source_digest_of(made.sha256, card) else None
