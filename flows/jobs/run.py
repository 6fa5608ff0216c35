"""The job of ``run``.  ``job(..., work)``: in the shell ``work.step`` calls the function, in a flow a Prefect task.

No job knows Prefect or the screen: messages go through ``work.say``, and results dump to JSON.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from flows.config.home import ALONE, Home, Work
from flows.config.recipe import Recipe, night_of, setting, standing_counter, standing_run
from flows.jobs.promotion import play_in_use, shared
from flows.jobs.registration import introduce_key, ledger_for, newest_snapshot, refuse_forgotten_runs, register_job
from pipeline.declaration.card import AnyCard, Card, CardError, task_of
from pipeline.declaration.code import is_plugin, plugin_digest
from pipeline.facts.answers import Left, RunAnswer
from pipeline.facts.evaluation import Evaluated
from pipeline.facts.learnt import UNMEASURED, Baseline, LearntFacts, PolicyView, ValueFacts
from pipeline.facts.promise import Dump, Guarantee, MechanismFacts, SimulatedLog, declared, present, record_of
from pipeline.facts.report import Certificate, LedgerFacts, Report, read_report, verdict_of
from pipeline.facts.verdict import Verdict, confounding, decide, missing, no_test, not_evaluated
from pipeline.files import copy_file, json_text, whole_folder, write_file
from pipeline.learners import policy_files, terms
from pipeline.learners.learner import Learnt
from pipeline.ledger.account import card_hash, reserve_of, sharing
from pipeline.ledger.certificate import NOT_COVERED, assumptions, certificate, counter_facts, guarantee, route_of
from pipeline.ledger.chain import BudgetError, Entry, canonical_hash
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.looks import judged_before, recorded_in_time
from pipeline.ledger.publication import file_digests, maker, operator_key, publications
from pipeline.logs.store import find_snapshot, latest
from pipeline.privacy.budget import down, fraction_of, up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release_file import describe_mechanism, file_of, sha256_file
from pipeline.transaction.release_once import release_once
from pipeline.transaction.transaction import Curated, one_at_a_time, remember_head
from reports.page import NOT_DRAWN


def run_recipe(
    recipe: str,
    home: Home,
    work: Work = ALONE,
    noise: NoiseSource | None = None,
    day: date | None = None,
    edition: int | None = None,
    *,
    due: str = "",
    scheduled: bool = False,
) -> RunAnswer:
    """The offline job on an edition of the log: release -> policy -> certificate -> report.

    A recipe with [nightly] appends a leaf to its counter instead of making a release of its own.

    ``noise``: none: what the recipe asks for.
    ``day``: date of the counter's leaf, default today (UTC).  What was ingested since the last one is then the
    operator's to know.
    ``edition``: number of the snapshot to release; None: the newest.
    ``due``: the date of the recipe's calendar that it is released for (ISO); empty where it was asked by hand.
    Raises CardError if recipe, card and log do not fit each other.
    Raises BudgetError if the ledger refuses the charge, or a store does not fit its ledger.
    """
    s = setting(recipe, home)
    source = noise or s.recipe.terms.noise()
    plan = s.plan
    plan.admit(source)
    ledger, identity = ledger_for(s.card, home), terms.recipe_identity(s.card, s.terms)
    refuse_forgotten_runs(s.card.name, ledger, home.runs)
    # before the COMMIT: a run committed after the first key without a PUBLISH entry was not published so
    introduce_key(s.card.name, ledger, home)
    if s.recipe.nightly is None:
        edition = newest_snapshot(s.card, home).number if edition is None else edition
        guarded = standing_run(s, edition, ledger.entries())
        plan = guarded.plan
        work.say(f"releasing {plan.what} of snapshot {edition} of {s.card.name}")
        curated = work.step("release")(
            release_once, s.card, edition, plan, ledger, home.store, source, home.resources, due, guarded.gate, identity
        )
    else:
        if edition is not None:
            raise CardError(f"{s.recipe.path.name}: [nightly] counts all editions so far; take --edition out")
        work.say(f"releasing {plan.what} of all nights so far of {s.card.name}")
        from pipeline.transaction.continual_step import append_step

        counter = standing_counter(s, ledger.entries(), play_in_use(s, home))
        plan = standing_run(s, None, ledger.entries()).plan
        curated, note = work.step("release")(
            append_step, counter, ledger, home.store, source, night_of(day), scheduled=scheduled, recipe=identity
        )
        work.say(note)
    if recovery := str(curated.recovered):
        work.say(recovery)
    if curated.replayed:
        work.say("this release is committed: replayed at no cost")
    if curated.stale:
        work.say("warning: the snapshot's bytes have changed since this release was drawn; the committed one stands")
    run = MadeRun(s.card, s.recipe, edition, curated)
    report = read_back(run, home, ledger)
    if report is None:
        work.say("planning on the release")
        learnt = work.step("plan")(plan.learn, curated.release)
        report = work.step("report")(publish_run, run, home, learnt, ledger)
    account, folder = ledger.account(s.card.name), home.runs / run.name
    return RunAnswer(
        run=run.name,
        folder=str(folder),
        report=str(folder / PAGES[0]),
        replayed=curated.replayed,
        ledger=Left(spent_rho=float(account.spent), remaining_rho=float(account.remaining)),
        guarantee=report.guarantee,
        verdict=verdict_of(report),
        value=report.value,
        markov=report.dataset.markov,
        **present(counter=report.counter, truth=report.truth),
    )


def demo_job(recipe: str, home: Home, work: Work = ALONE) -> RunAnswer:
    """The main job on a shipped log: register, ingest, release, plan, report."""
    from flows.jobs.intake import ingest_job

    s = setting(recipe, home)
    work.say(f"registering {s.card.name}")
    register_job(str(s.card.folder), home)
    last = latest(home.store, s.card.name)
    # a second demo replays the first
    if last is None or last.domain_hash != s.card.domain_hash():
        work.say("ingesting the shipped log")
        ingest_job(s.card, home, work)
    return run_recipe(recipe, home, work)


def made_by(card: AnyCard, recipe: Recipe) -> dict[str, str]:
    """The makers of a run: :func:`~pipeline.ledger.publication.maker`, and the run's own code and files."""
    return {**maker(), **_own_code(recipe), **_beside(card, recipe)}


def _own_code(recipe: Recipe) -> dict[str, str]:
    """Digest of a plug-in agent: another text of it may make another policy of the same release."""
    agent = recipe.recipe.agent
    return {"agent": plugin_digest(agent)} if is_plugin(agent) else {}


def _beside(card: AnyCard, recipe: Recipe) -> dict[str, str]:
    """Digest of what a synthetic run uses beside its release: measured containment, its log's record, its world."""
    if card.kind == "real":
        return {}
    files, digests = [card.folder / "containment.csv", record_of(card)], list[str]()
    if (known := recipe.terms.known) is not None:
        from pipeline.worlds.catalog import WORLD_FILE, arrays_file

        world = known.world
        files += [card.folder / WORLD_FILE, arrays_file(world, card.folder)]
        digests = [plugin_digest(world)] if is_plugin(world) else []
    digests += [sha256_file(file) for file in files if file.is_file()]
    return {"beside": hashlib.sha256("".join(digests).encode()).hexdigest()[:16]}


@dataclass(frozen=True)
class MadeRun:
    """A run made of a release: ``snapshot`` is that of the release, None for a night of a counter."""

    card: AnyCard
    recipe: Recipe
    snapshot: int | None
    curated: Curated

    @property
    def name(self) -> str:
        """Recipe name and a hash of release key and recipe: one release and one recipe make one folder.

        A folder without private noise says so in its name.
        """
        identity = [self.curated.run_key, self.recipe.dump(), *_own_code(self.recipe).values()]
        digest = canonical_hash(identity)[:10]
        private = self.curated.release.noise == "os"
        return f"{self.recipe.recipe.name}-{digest}" + ("" if private else "-simulation-not-private")

    def publication(self, entries: Sequence[Entry], folder: Path) -> Dump:
        """Body of a PUBLISH entry for the folder as it is now.

        ``run_key``, ``commit``: of the release, and the entry that committed it (None: exact tables of made-up people).
        ``files``: sha256 by name, of every file of the folder.
        """
        curated = self.curated
        return {
            "run": self.name,
            "run_key": curated.run_key,
            "commit": None if curated.commit is None else curated.commit.seq,
            "snapshot": self.snapshot,
            "seen": entries[-1].seq,
            "card_hash": card_hash(self.card),
            "seed": self.recipe.planner.seed,
            "made_by": made_by(self.card, self.recipe),
            "files": file_digests(folder),
        }


def looks_of(entries: Sequence[Entry], lineage: str) -> list[Entry]:
    """The INSPECT entries of all lineages that may hold the same people, which a certificate lists."""
    among = sharing(entries, lineage)
    return [e for e in entries if e.kind == "INSPECT" and e.lineage in among]


def read_back(run: MadeRun, home: Home, ledger: Ledger) -> Report | None:
    """The report of a published run; None where it has to be written: something would change, or was changed."""
    name, entries = run.name, ledger.entries()
    published, folder = publications(entries, name), home.runs / name
    if not (run.curated.replayed and published and folder.is_dir()):
        return None
    body = published[-1].body
    now = run.publication(entries, folder)
    inspected = any(e.seq > body["seen"] for e in looks_of(entries, run.card.name))
    if inspected or any(body[key] != value for key, value in now.items() if key != "seen"):
        return None
    # a recipe's comments change no query, but they are copied
    if sha256_file(run.recipe.path) != body["files"]["recipe.toml"]:
        return None
    # its pictures could not be drawn before: now perhaps they can
    if NOT_DRAWN in (folder / "report.html").read_text(encoding="utf-8"):
        return None
    return read_report(folder)


PAGES = ("report.html", "report.md")
# ends of a value or a baseline
_ENDS = ("lower", "upper", "estimate", "optimal_upper")
_Ends = TypeVar("_Ends", ValueFacts, Baseline)


def publish_run(run: MadeRun, home: Home, learnt: Learnt, ledger: Ledger) -> Report:
    """Write release, policy, certificate and report, and have the ledger vouch for them (PUBLISH).

    They are byte-identical for one release, one recipe and as many looks at the data (INSPECT): the page says that
    these happened, never what was seen.  A night of a counter names no snapshot, whose number would show when the log
    changed.

    Raises BudgetError if the stored release is not the committed one, or another release of that name is published
    already.
    """
    card, curated = run.card, run.curated
    key, place, final = operator_key(home.store), home.store / card.name, home.runs / run.name
    with one_at_a_time(place), whole_folder(final, over=True) as partial:
        entries = ledger.entries()
        for file in ("release.parquet", "release.json"):
            copy_file(curated.folder / file, partial / file)
        copied = sha256_file(partial / "release.parquet")
        if curated.commit is not None and copied != curated.commit.body["release_sha256"]:
            raise BudgetError(f"{card.name}: the stored release is not the committed one; nothing is published")
        _same_release(final, copied, curated)
        copy_file(run.recipe.path, partial / "recipe.toml")
        record = _record_of(run, home)
        report = compose(run, learnt, entries, partial, record)
        body = run.publication(entries, partial)
        if record is not None:
            body["made"] = record.model_dump()
        # before the folder appears in `runs/`: everything there is vouched for
        entry = ledger.publish(card.name, body, key)
        if entry.seq > entries[-1].seq:
            remember_head(place, entry)
    return report


def compose(
    run: MadeRun, learnt: Learnt, entries: Sequence[Entry], folder: Path, record: SimulatedLog | None
) -> Report:
    """Write all files of a run but release and recipe, of which they are made; for publishing and for verifying.

    Returns the run's report.
    """
    card, recipe, curated, name = run.card, run.recipe, run.curated, run.name
    looks, reserve = looks_of(entries, card.name), reserve_of(entries, card.name)
    route = route_of(curated.release, curated.intent)
    if (before := judged_before(entries, curated.intent)) is not None:
        from pipeline.learners.held_out import judged

        learnt = judged(learnt, before)
    files = learnt.files()
    if recipe.play is not None:
        files = shared(files, recipe.play.share)
    digests = write_policy(files, folder)
    ask, release, gate = recipe.terms.ask(), curated.release, curated.gate
    facts = standing(learnt.facts(), card, record)
    # a real dataset's ledger is not home's
    of_card = " --card CARD" if card.kind == "real" else ""
    truth = None
    if card.kind == "synthetic" and (known := recipe.terms.known) is not None:
        truth = learnt.truth(known.world, known.behaviour)
    data, promise = declared(card, run.snapshot), guarantee(card, release, ask.calibration, ask.written, gate)
    report = Report(
        schema_version=1,
        run=name,
        recipe=recipe.recipe.name,
        agent=recipe.recipe.agent,
        dataset=data,
        **present(made=record),
        guarantee=promise,
        verdict=_verdict(facts, run, promise, entries),
        **present(suboptimality=missing(facts.best, facts.value), evaluation=facts.evaluation),
        constants=facts.constants,
        value=facts.value,
        model_baselines=facts.model_baselines,
        **present(practice=facts.practice),
        mechanisms=[MechanismFacts.model_validate(describe_mechanism(m)) for m in release.mechanisms],
        **present(gate=None if gate is None else gate.facts(), counter=counter_facts(release)),
        ledger=_ledger_facts(card, curated),
        **present(joint=facts.joint, consistency=facts.consistency, features=facts.features, model=facts.model),
        policy=facts.policy,
        assumptions=assumptions(card, looks, route, reserve),
        not_covered=list(NOT_COVERED),
        verify=[
            f"reticent ledger verify {name}{of_card}  # recomputes this run's certificate",
            f"reticent ledger verify{of_card}  # the whole chain" + ("; CARD is the card's file" if of_card else ""),
            f"reticent ledger show{of_card}  # the entries of {card.name}",
            *(f"sha256sum {file_of(kind)}  # {digest}" for kind, digest in digests.items()),
        ],
        **present(truth=truth),
    )
    proof = certificate(card, release, report, route, curated.commit, digests, gate)
    write_pages(report, proof, policy_files.view_of(files, report, lambda: release), folder)
    return report


def _verdict(facts: LearntFacts, run: MadeRun, promise: Guarantee, entries: Sequence[Entry]) -> Verdict:
    """The answer of held-out people; without any, why there are none."""
    card, recipe, data = run.card, run.recipe, declared(run.card, run.snapshot)
    if facts.evaluation is None:
        untested = no_test(pure=promise.pure, counter=recipe.nightly is not None)
        return not_evaluated(data, promise.rho, agent=recipe.recipe.agent, untested=untested)
    from pipeline.learners.tabular_facts import broken_off

    # nobody evaluates a controller
    assert isinstance(card, Card)
    d, (least, most), asked = card.domain, task_of(card).value_range(0), recipe.terms.evaluate
    hidden = confounding(
        facts.evaluation,
        horizon=d.horizon,
        course=d.horizon > 1 or card.unit.episodes_per_user > 1,
        alike=d.dynamics == "stationary",
        pays=most - least,
        pays_at_the_end=card.pays_at_the_end,
        recorded=None if d.practice is None else recorded_in_time(entries, card.name),
    )
    return decide(
        facts.evaluation,
        data,
        promise.rho,
        hidden,
        facts.model_baselines.get("practice"),
        beyond_cap=card.kind == "real" and not card.one_episode,
        later=asked is not None and asked.since is not None,
        value=facts.value,
        broken_off=broken_off(run.curated.release, card),
        followed=facts.practice is not None and facts.practice.is_followed,
    )


def write_policy(files: policy_files.PolicyFiles, folder: Path) -> dict[str, str]:
    """Write a policy beside its release; sha256 of the files that the certificate lists."""
    tables = {kind: sha256_file(folder / f"{kind}.parquet") for kind in ("release", *files.write(folder))}
    # labels, scales and bounds decide what the policy's numbers mean
    return {**tables, "labels": sha256_file(folder / file_of("labels"))}


def write_pages(report: Report, proof: Certificate, view: PolicyView, folder: Path) -> None:
    """Write a run's report, certificate and pages."""
    write_file(folder / "report.json", json_text(report.model_dump()))
    write_file(folder / "certificate.json", json_text(proof.model_dump()))
    for page, text in zip(PAGES, drawn_pages(report, view), strict=True):
        write_file(folder / page, text)


def _same_release(final: Path, digest: str, curated: Curated) -> None:
    """A folder is rendered anew only from the release that it holds; exact tables of a simulation may change."""
    file = final / "release.parquet"
    if curated.commit is not None and file.is_file() and sha256_file(file) != digest:
        raise BudgetError(
            f"{final}: holds another release than entry {curated.commit.seq} committed: it was published before an "
            "older ledger and store were restored, or was edited. Restore the newest, or move the folder away; "
            "nothing was replaced"
        )


def drawn_pages(report: Report, view: PolicyView) -> tuple[str, str]:
    """The texts of :data:`PAGES`."""
    from reports.run.run_page import render_html, render_markdown

    return render_html(report, view), render_markdown(report, view)


def _ledger_facts(card: AnyCard, curated: Curated) -> LedgerFacts | None:
    """The lineage's budget when this release was committed: the same on every rendering."""
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


def standing(facts: LearntFacts, card: AnyCard, record: SimulatedLog | None) -> LearntFacts:
    """Learnt facts with the interval that the page shows first, cut to what an episode can pay."""
    most = card.reward.most(card.domain.states.ends) if isinstance(card, Card) else None
    value, made = _clipped(facts.value, most), record and (record.world, record.behaviour, record.episodes)
    baselines = {name: _clipped(b, most) for name, b in facts.model_baselines.items()}
    if (evaluation := facts.evaluation) is not None:
        evaluation = evaluation.within(value.lower_trivial, value.upper_trivial)
        baselines["this policy"] = Baseline.model_validate({k: getattr(value, k) for k in _ENDS[:3]})
        certified = evaluation.certified(card.domain.markov if isinstance(card, Card) else "declared")
        # a model's bound from declared first states is no bound for people who began in others
        declared_start = value.start == "declared" and isinstance(card, Card)
        value = _evaluated(value, evaluation, certified=certified)
        if declared_start:
            best = facts.best if facts.best is not None and math.isinf(facts.best.upper) else None
            facts, value = replace(facts, best=best), _with(value, {"optimal_upper": None})
    elif (
        (c := facts.contained) is not None and value.status == "modelled" and made == (c.world, c.behaviour, c.episodes)
    ):
        measured = f"containment: measured, inside in {c.inside} of {c.draws} draws of this very setting"
        assumes = [measured if line == UNMEASURED else line for line in value.assumes]
        value = _with(value, {"status": "bound", "assumes": assumes})
    return replace(facts, value=value, model_baselines=baselines, evaluation=evaluation)


def _clipped(value: _Ends, most: float | None) -> _Ends:
    if most is None or value.upper_trivial is None or value.upper_trivial <= most:
        return value
    ends = {k: min(x, most) for k in (*_ENDS, "upper_trivial") if (x := getattr(value, k, None)) is not None}
    return _with(value, ends)


def _evaluated(value: ValueFacts, evaluation: Evaluated, *, certified: bool) -> ValueFacts:
    """The value as held-out people measured it."""
    measured = asdict(evaluation.value)
    ends = {**measured, "gap": measured["upper"] - measured["lower"], "lower_flag": None, "upper_flag": None}
    assumes = [
        "the declared state holds everything that drives both what is done and what comes of it",
        "coverage: measured in simulated worlds, not a theorem"
        if certified
        else f"whoever judges is fresh, but {evaluation.judged_before}"
        if evaluation.judged_before is not None
        else "coverage: not measured for a log of this size, shape and budget"
        if not evaluation.cut
        else "the weights that were cut make no difference of this size",
        *(line for line in value.assumes if line.startswith(("no episode pays", "the binned process"))),
    ]
    status = "evaluated" if certified else "modelled"
    return _with(value, {**ends, "status": status, "assumes": assumes, "start": "people"})


def _with(value: _Ends, changes: Dump) -> _Ends:
    return type(value).model_validate({**value.parts(), **changes})


def _record_of(run: MadeRun, home: Home) -> SimulatedLog | None:
    """The record of the log that a run's snapshot was read from; None for any other log under the same card.

    A record that cannot be read counts as none.
    """
    card, number = run.card, run.snapshot
    snapshot = None if number is None else find_snapshot(home.store, card.name, number)
    file = record_of(card)
    if card.kind == "real" or snapshot is None or not file.is_file():
        return None
    try:
        record = SimulatedLog.model_validate_json(file.read_bytes())
    except ValidationError:
        return None
    from pipeline.logs.sources import source_digest_of

    return record if snapshot.source_digest == source_digest_of(record.sha256, card) else None
