"""Verbs on what is played, run and published, and on the service; attacks and worlds of our own making."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from flows import api
from flows.api import Night
from flows.terminal.screen import MOST, Block, Grid, Json, Pairs, Place, say, show, working
from flows.verbs.face import chosen_store, verb

if TYPE_CHECKING:
    from flows.jobs.audit import Audited
    from flows.jobs.opened import Run
    from flows.jobs.simulated_logs import WrittenLog
    from flows.server.serving import Health
    from pipeline.facts.answers import Comparison, NightAnswer, Promotion, RunAnswer
    from pipeline.facts.learnt import ValueFacts
    from pipeline.facts.promise import Dump
    from pipeline.learners.policy_files import StoredPolicy
    from pipeline.online.cells import Kept

top = typer.Typer()
policy = typer.Typer(help="The policy of a run, with labels.", no_args_is_help=True)


def opened(run: str, card: str | None = None) -> Run:
    """The run that is named, in the home of the command's options."""
    return chosen_store().open(run, card)


def made(found: Run) -> Dump:
    """What ``--json`` prints of a run that was made."""
    return found.said.model_dump()


for _run in (api.demo, api.run):
    verb(top, lambda r: summary(r.said), told=made)(_run)


def stopped(_: object) -> list[str]:
    """What is left to say of a service that was interrupted."""
    return ["stopped"]


@verb(top, lambda r: [r["report"]])
def report(run: str, *, card: str | None = None) -> Dump:
    """Draw report.html and report.md again, from the run's folder; never other pages than the ledger vouches for.

    Parameters
    ----------
    run
        A run, its folder, or current.
    card
        The card of the run's dataset; a real one names the ledger too.
    """
    from flows.jobs.proof import draw_pages
    from pipeline.learners.offline_agents import read_view

    made = opened(run, card)
    with working("drawing the report"):
        draw_pages(made.folder, made.facts, read_view(made.facts, made.folder), made.evidence()[0])
    return {"run": made.name, "folder": str(made.folder), "report": str(made.report.file)}


def differences(r: Comparison) -> list[str]:
    """What changed between two runs, in sentences."""
    from reports.run.comparison import sentences

    return [f"{r.a} → {r.b}", *sentences(r)]


@verb(top, differences)
def compare_runs(a: str, b: str) -> Comparison:
    """Decisions or gains that differ, intervals, budget and settings; reads nothing but the two runs' folders.

    Parameters
    ----------
    a
        A run, its folder, or current.
    b
        The newer run.
    """
    return opened(a).compare(opened(b))


@verb(top, lambda r: [f"{r['pointer']} is {r['now']}" + _was(r["before"], r["now"])])
def promote(run: str = "", *, rollback: bool = False, pointer: str = "current", card: str | None = None) -> Dump:
    """Point runs/current to a run that verifies, whatever the recipe's rule says, or back to the run before.

    Parameters
    ----------
    run
        A run, or the beginning of its name.
    rollback
        Back to the run before, and never here again.
    pointer
        Which pointer; a recipe names its own in [promote].
    card
        The card of the run's dataset; a real one names the ledger too.
    """
    from pipeline.declaration.card import CardError

    if bool(run) == rollback:
        raise CardError("promote: give a RUN, or --rollback alone")
    store = chosen_store()
    return store.roll_back(pointer=pointer) if rollback else store.promote(run, pointer=pointer, card=card)


def _was(before: str | None, now: str | None) -> str:
    return "" if before in (None, now) else f", was {before}"


def summary(result: RunAnswer) -> list[Block]:
    """What a person wants to know of a run, in a few lines."""
    from pipeline.declaration.numbers import number
    from pipeline.facts.learnt import NO_GUARANTEE
    from reports.run.answer import hidden_traits, shell_line

    v, g, b, verdict = result.value, result.guarantee, result.ledger, result.verdict
    promised = "not private (exact counts of simulated data)"
    if g.epsilon is not None:
        promised = (
            f"ε = {number(g.epsilon, toward='up')} at δ = {g.delta:g} (ρ = {number(g.rho, toward='up')}), "
            f"{g.trust_model}, replace one {g.protected or 'person'}"
        )
    status = f"{v.status}, not a guarantee" if v.status in NO_GUARANTEE else v.status
    hidden = "" if verdict.confounding is None else verdict.confounding.status.replace("_", " ")
    rows = [
        ("verdict", shell_line(verdict, g.epsilon, binned=False)),
        # the status of hidden traits stands before the first of its sentences
        *zip((hidden, ""), hidden_traits(verdict), strict=False),
        ("guarantee", f"{promised}; claim: {g.claim}"),
        ("value", f"{_interval(v)} ({status}){_empty(v)}"),
        (
            "budget",
            f"spent ρ = {number(b.spent_rho, toward='up')}, left {number(b.remaining_rho, toward='down')}"
            + ("   (replayed: nothing was drawn)" if result.replayed else ""),
        ),
    ]
    if t := result.truth:
        true = {"policy": t.v_policy, "optimal": t.v_star, "behaviour": t.v_behavior, "uniform": t.v_uniform}
        rows.append(("truth", " | ".join(f"{name} {x:.4f}" for name, x in true.items())))
    if c := result.counter:
        times = number(c.times_one_release, 3, "up")
        rows.insert(2, ("night", f"{c.night} of {c.nights} ({c.date}); noise {times} × that of one release"))
    return [Pairs(rows), Place("report", result.report)]


def _interval(v: ValueFacts) -> str:
    """Rounded outward; at least the lower end where no upper one is given."""
    from pipeline.declaration.numbers import number
    from reports.page import interval

    return number(v.estimate) if v.upper is None and v.estimate is not None else interval(v.lower, v.upper)


def _empty(v: ValueFacts) -> str:
    """An interval that holds every possible value says nothing, and the line says so."""
    if v.upper is None or v.lower > v.lower_trivial or v.upper < v.upper_trivial:
        return ""
    return ": all that is possible, so this run says nothing about the value"


verb(top, stopped)(api.serve)
verb(policy, stopped, name="serve")(api.Store.serve_policy)


def night_page(r: NightAnswer | Dump) -> list[Block]:
    """A night that was done, or what is known of the last one."""
    if not isinstance(r, dict):
        return [*summary(r), *_promotion(r.promotion)]
    last, keys = r["last"], ("at", "outcome", "kind", "text", "run", "done_at", "news_at")
    lines = [f"{r['recipe']}: {'all is well' if r['problem'] is None else r['problem']}"]
    return [*lines, *(f"  {k:10}{last[k]}" for k in keys if k in last)]


@verb(top, night_page, code=lambda r: int(not r["ok"]) if isinstance(r, dict) else r.exit)
def nightly(recipe: str, *, check: bool = False, hours: float = 30.0, night: Night = None) -> NightAnswer | Dump:
    """Ingest what is there, and do what the recipe declares for this date: a fresh release, or the last one stands.

    The night goes on where its log breaks the card, and exits 3 all the same.

    Parameters
    ----------
    recipe
        A path or a name.
    check
        Run nothing; exit 1 if somebody should look.
    hours
        With --check: how old the last good night may be.
    night
        The date of the night; default today.
    """
    if not check:
        return api.nightly(recipe, night=night, store=chosen_store())
    from flows.jobs.nightly import alert

    found = api.night_problem(recipe, hours=hours, store=chosen_store())
    if found["problem"] is not None:
        alert(found["problem"], say)
    return found


def _promotion(p: Promotion) -> list[str]:
    lines: list[str] = []
    if (changes := p.changes) is not None:
        what, count = ("gains", changes.gains) if changes.gains is not None else ("cells", changes.cells)
        if count is not None:
            lines.append(f"changed     {count.differ:,} of {count.total:,} {what} against {changes.a}")
    if p.promoted:
        word = "" if p.accepted is None else f', on the word of the recipe: accept = "unchecked" (entry {p.accepted})'
        return [*lines, f"promoted    {p.pointer} is {p.now}{word}"]
    if p.held:
        stays = "leads to no run" if p.practice_since is not None else f"stays {p.now}"
        return [*lines, f"held        {p.pointer} {stays}: {'; '.join(p.held)}"]
    return [*lines, f"in use      {p.now}"] if p.now else lines


def _started(r: Dump) -> list[str]:
    lines = [f"{r['deployment']}: {r['name']} is {r['state'].lower()}   (flow run {r['flow_run']})"]
    return [*lines, f"  {r['message']}"] if r["message"] else lines


@verb(top, _started, code=lambda r: int(r["waited"] and r["state"] != "COMPLETED"))
def trigger(
    deployment: str,
    *,
    param: Annotated[Sequence[str], typer.Option(metavar="KEY=VALUE")] = (),
    wait: bool = False,
    timeout: float = 86_400.0,
) -> Dump:
    """Start a deployed flow on the server that PREFECT_API_URL names; `serve` or a worker runs it.

    Parameters
    ----------
    deployment
        nightly, simulate, reproduce; or FLOW/DEPLOYMENT.
    param
        A parameter; may be repeated.  JSON where it is.
    wait
        Wait for its end; exit 1 if it did not complete.
    timeout
        With --wait: give up after so many seconds.
    """
    import json

    from flows.server.serving import trigger as start
    from pipeline.declaration.toml import read_pairs

    return start(deployment, read_pairs(param, json.loads), timeout=timeout if wait else None)


@verb(top, lambda r: [f"sent by {r['block']}"])
def alert(block: str, text: str) -> Dump:
    """Send a text by a notification block of the Prefect server: RETICENT_ALERT="reticent alert slack-webhook/ops".

    Parameters
    ----------
    block
        A saved notification block: KIND/NAME, e.g. slack-webhook/ops.
    text
        What is sent.
    """
    from flows.server.serving import alert as send

    send(block, text)
    return {"block": block, "sent": text}


def _health(found: Health) -> list[Block]:
    words = {True: "ok", False: "WRONG", None: "–"}
    rows = [(words[f.ok], f.what, f.found, "" if f.ok else f.do) for f in found.findings]
    return [Grid(("", "what", "found", "to do"), rows, left=4, most=len(rows))]


verb(
    top,
    _health,
    told=lambda h: {"ok": h.ok, "findings": [asdict(f) for f in h.findings]},
    code=lambda h: int(not h.ok),
)(api.doctor)


def _shown(file: StoredPolicy) -> Dump:
    return {"run": file.of.run, "rows": file.shown()[0]}


@verb(policy, lambda file: file.shown()[1], name="show", told=_shown)
def show_policy(run: str, *, card: str | None = None) -> StoredPolicy:
    """What to do in each state at each step, where the policy abstains, and where it was a tie; or the gains.

    Parameters
    ----------
    run
        A run, its folder, or current.
    card
        The card of the run's dataset; a real one names the ledger too.
    """
    return opened(run, card).policy.stored


@verb(policy, lambda r: [r["file"]])
def export(
    run: str,
    *,
    to: Path,
    form: Annotated[Literal["csv", "json"] | None, typer.Option("--format")] = None,
    force: bool = False,
    card: str | None = None,
) -> Dump:
    """Write the policy of a run that verifies, with labels, as CSV that no spreadsheet evaluates, or as JSON.

    Parameters
    ----------
    run
        A run, its folder, or current.
    to
        File to write.
    form
        Default: by the file's suffix, else csv.
    force
        Replace the file if it exists.
    card
        The card of the run's dataset; a real one names the ledger too.
    """
    return opened(run, card).export_policy(to, form, force=force)


@policy.command("act")
def act(
    run: Annotated[str, typer.Argument(help="A run, its folder, or current.")],
    state: Annotated[str | None, typer.Option(help="The state: its declared label, or with --raw a raw value.")] = None,
    observation: Annotated[
        str | None, typer.Option(help='Where observations are vectors: the numbers as logged, e.g. "0.5, -0.2".')
    ] = None,
    step: Annotated[int | None, typer.Option(max=MOST, help="The step, counted from 0.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="States are values as the log's column holds them.")] = False,
    sample: Annotated[bool, typer.Option("--sample", help="Draw where several actions have probability.")] = False,
    person: Annotated[
        str | None, typer.Option(help="Who is there, where a share of the people meets the policy ([play] share).")
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(help="CSV or NDJSON: state (or observation) and step; '-' is standard input. One JSON line each."),
    ] = None,
    card: Annotated[
        str | None, typer.Option(help="The card of the run's dataset; a real one names the ledger too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What the policy says in a state (or at an observation) at a step, or for each record of a file."""
    import numpy as np

    from pipeline.declaration.card import CardError
    from pipeline.learners.gains import StoredGains, StoredObserved, parsed_observation
    from pipeline.logs.decode import read_observations, read_queries

    policy = opened(run, card).policy
    of, steps = policy.stored.of.run, np.array([step or 0], dtype=np.int64)
    vectors = isinstance(policy.stored, StoredGains | StoredObserved)
    if vectors and (raw or sample):
        raise CardError("policy act: this policy takes --observation; it draws nothing, and states are labels")
    if not vectors and observation is not None:
        raise CardError("policy act: this policy has declared states: give --state, not --observation")
    asked = observation if vectors else state
    if (batch is None) == (asked is None or step is None) or (batch is not None and (asked, step) != (None, None)):
        option = "--observation" if vectors else "--state"
        raise CardError(f"policy act: give {option} with --step, or --batch alone")
    if batch is not None and policy.stored.of.play is not None:
        raise CardError("policy act: a share of the people meets this policy: ask for one --person, or `policy serve`")
    if isinstance(policy.stored, StoredGains | StoredObserved):
        names = policy.stored.observation.names
        if batch is not None:
            told = policy.observe(*read_observations(*_content(batch), names), state)
            _print_batch(of, told, np.arange(len(told)), as_json)
            return
        [found] = policy.observe(parsed_observation(str(observation), names), steps, state)
        found = policy.met_by(person, found)
        lines = [f"step {found['step']}: {found['advice']}"]
        lines += ["  shortened to the declared radius of the control"] if found.get("cut") else []
        if found.get("outside"):
            lines.append("  the observation is longer than declared: nothing like it was learnt from")
        show({"run": of, **found}, as_json, lambda: lines)
        return
    states, steps = ([state], steps) if batch is None else read_queries(*_content(batch))
    decisions, which = policy.decide(states, steps, raw=raw, sample=sample)
    if batch is not None:
        _print_batch(of, decisions, which, as_json)
    else:
        told = policy.met_by(person, decisions[0])
        show({"run": of, **told}, as_json, lambda: _sentences(told, state))


def _content(batch: str) -> tuple[bytes, str]:
    import sys

    from pipeline.declaration.card import CardError

    try:
        content = sys.stdin.buffer.read() if batch == "-" else Path(batch).read_bytes()
    except OSError as e:
        raise CardError(f"{batch}: cannot be read ({e.strerror}); name a CSV or NDJSON file, or '-'") from None
    return content, "standard input" if batch == "-" else batch


def _print_batch(run: str, decisions: Sequence[Mapping[str, object]], which: Any, as_json: bool) -> None:
    import json

    import numpy as np

    lines = np.array([json.dumps(d, ensure_ascii=False, allow_nan=False) for d in decisions], dtype=object)
    if as_json:
        print(f'{{"run": {json.dumps(run)}, "decisions": [{", ".join(lines[which])}]}}')
    elif len(which):
        print("\n".join(lines[which]))


def _sentences(d: Mapping[str, Any], state: str | None) -> list[str]:
    """One decision in words."""
    lines = [f"step {d['step']}, {d.get('state', state)}: {d['advice']}"]
    if d.get("arm") == "practice":
        return lines
    lines += [f"  {c['action']}: probability {c['probability']:g}" for c in d["actions"]]
    if d["tie"]:
        lines.append("  a tie: other actions were as good; this one was drawn among them when the policy was made")
    return lines + ([f"  never (vetoed): {', '.join(d['vetoed'])}"] if d["vetoed"] else [])


def _simulated(result: Kept | WrittenLog) -> list[str]:
    return _written(cast("WrittenLog", result)) if "card" in result else _played(result)


@verb(top, _simulated)
def simulate(
    world: str = "",
    *,
    logs: bool = False,
    from_run: Annotated[str, typer.Option(metavar="RUN")] = "",
    behaviour: str | None = None,
    episodes: Annotated[int | None, typer.Option(min=1, max=MOST)] = None,
    horizon: Annotated[int | None, typer.Option(min=1, max=MOST)] = None,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    bins: str | None = None,
    param: Annotated[Sequence[str], typer.Option(metavar="KEY=VALUE")] = (),
    episodes_per_user: Annotated[int | None, typer.Option(min=1, max=MOST)] = None,
    rho: float | None = None,
    name: str | None = None,
    to: Path | None = None,
) -> Kept | WrittenLog:
    """An online agent in a known world beside its baselines; with --logs a log of the world, ready to ingest and run.

    A simulation broken off goes on where it was: finished runs are kept in the home.  `simulate DATASET --logs` and
    nothing else writes the log of a shipped dataset anew, byte for byte.

    Parameters
    ----------
    world
        A recipe with [world]; with --logs a world (docs/research.md) or a shipped dataset.
    logs
        Write a simulated log with card and recipe.
    from_run
        Sample from what this run released, instead of a world.
    behaviour
        Logging policy: uniform, near-optimal-0.3, or one of the world's own.
    episodes
        Number of episodes; default 10000.
    horizon
        Steps an episode; default the world's.
    seed
        Seed of the log; default 0.
    bins
        ICU-Sepsis: 4, 8 or 32 bins of the SOFA score, or all.
    param
        Parameter of the world; may be repeated.
    episodes_per_user
        Episodes a user; default 1.
    rho
        Lifetime cap of the new lineage (zCDP); default 4.
    name
        Name of the new dataset; default made from what is asked.
    to
        Folder to write; default simulated/NAME in the home, or a shipped log's own.
    """
    from flows.jobs.simulated_logs import LogOptions
    from pipeline.declaration.card import CardError
    from pipeline.worlds.catalog import WORLDS

    params = tuple(param)
    asked = LogOptions(behaviour, episodes, horizon, seed, bins, params, episodes_per_user, rho, name, to)
    if logs:
        return api.simulate_logs(world, asked, from_run=from_run or None, store=chosen_store())
    if not world or world in WORLDS or asked != LogOptions():
        raise CardError("simulate: name a recipe that has [world], or say --logs to write a log; see --help")
    return api.simulate(world, store=chosen_store())


def _played(result: Kept) -> list[str]:
    from pipeline.declaration.numbers import number

    lines = [
        f"{r['agent']:22} regret {number(r['mean']):>9} ± {number(r['std']):<9} median {number(r['median']):>9}  "
        f"{r['trust']}"
        for r in result["rows"]
    ]
    head = f"{result['world']}, {result['episodes']:,} episodes; simulation, not private"
    loses = f"run            {result['run']}; its policy loses {number(result['suboptimality'])} an episode"
    true = result["true_epsilon"]
    asked = [] if result["epsilon"] is None else [f"asked ε = {number(result['epsilon'], toward='up')}"]
    real = [] if true is None else [f"the noise drawn is worth ε = {number(true, toward='up')}"]
    promise = "; ".join([*asked, *real]) or "no noise, no promise"
    proposal = [f"proposal       {result['proposal']}"] if result["proposal"] else []
    told = [f"would promise  {promise}", *proposal, f"report         {result['report']}"]
    return [head, *lines, result["answer"], loses, *told]


def _written(result: WrittenLog) -> list[str]:
    files = result["files"]
    if "folder" not in result or "recipe" not in result:
        return list(files)
    lines = [f"{result['dataset']}: {result['episodes']:,} simulated episodes in {len(files)} files"]
    if exact := result.get("values"):
        lines.append("exact       " + " | ".join(f"{k} {v:.4f}" for k, v in exact.items()))
    if "from_run" in result and "guarantee" in result:
        claim = result["guarantee"]["claim"]
        lines.append(f"privacy     nothing beyond the release of {result['from_run']}; its claim: {claim}")
    return [*lines, f"next        reticent ingest {result['folder']}", f"            reticent run {result['recipe']}"]


def _verdicts(result: Kept) -> list[str]:
    """The claims with their verdicts, and where the page is."""
    lines = [f"{'yes' if c['holds'] else 'no':4}{c['claim']}\n    {c['regime']}" for c in result["claims"]]
    return [*lines, *(f"page    {file}" for file in result["files"] if file.endswith("page.html"))]


verb(top, _verdicts)(api.reproduce)


@verb(
    top,
    lambda results: [line for r in results for line in [*_prices(r), *_verdicts(r)]],
    told=lambda results: results[0] if len(results) == 1 else _together(results),
)
def compare(recipes: Sequence[str], *, full: bool = False) -> list[Kept]:
    """Measure a study: who needs how many episodes for the same quality, which claims hold (simulation, not private).

    A study broken off goes on where it was: finished runs are kept in the home.  What changed between two runs of
    your own data is `compare-runs A B`.

    Parameters
    ----------
    recipes
        Studies: a path, or a name such as trust_riverswim.
    full
        The study's larger sizes.
    """
    store = chosen_store()
    return [api.compare(name, full=full, store=store) for name in recipes]


def _together(results: Sequence[Kept]) -> Kept:
    """Several comparisons as one object."""
    return {
        "name": ", ".join(r["name"] for r in results),
        "rows": [row for r in results for row in r["rows"]],
        "claims": [{"name": r["name"], **claim} for r in results for claim in r["claims"]],
        "needed": [{"name": r["name"], **row} for r in results for row in r.get("needed", ())],
        "files": [file for r in results for file in r["files"]],
    }


def _prices(result: Kept) -> list[str]:
    """Episodes needed by trust model and budget."""
    from pipeline.declaration.numbers import number
    from pipeline.online.study import first_meeting

    by_agent: dict[str, list[Kept]] = {}
    least = min((r["episodes"] for r in result["rows"] if r["variant"] != "control"), default=0)
    for row in result.get("needed", ()):
        by_agent.setdefault(f"  {row['trust']:8} {row['agent']:18}", []).append(row)
    lines = [f"{result['name']}: episodes until suboptimality stays ≤ 10 % of uniform choice's"] if by_agent else []
    for who, rows in by_agent.items():
        told = [
            ("no noise: " if r["epsilon"] is None else f"ε = {number(r['epsilon'])}: ")
            + first_meeting(r["episodes"], least, r["most"])
            for r in rows
        ]
        lines.append(who + " | ".join(told))
    return lines


def _audited(result: Audited) -> list[Block]:
    from reports.audit_page import attacked, summary

    head = ("mechanism", "trust", "claimed", "proved ≥", "of it", "the pair spends", "broken", "seconds")
    rows = [
        (*attacked(v), "yes" if v.violates else "no", str(round(seconds, 2)))
        for v, seconds in zip(result.verdicts, result.seconds, strict=True)
    ]
    whole = (
        []
        if (found := result.one_run) is None
        else [
            f"  whole pipeline, {found.canaries:,} people, {found.right} of {found.guesses} guesses right: "
            f"ε ≥ {found.lower_bound_epsilon:.3g} proved, {found.claimed_epsilon:.3g} claimed (in or out)"
        ]
    )
    page = Place("report", str(result.folder / "page.html"))
    return [summary(result.name, result.verdicts), Grid(head, rows, left=2), *whole, page]


verb(top, _audited, told=lambda result: result.answer())(api.audit)
