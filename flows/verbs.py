"""The verbs of the shell: functions of the Python interface, each with the page that it prints.

Keyword-only parameters are options, the docstring is help.  In order, which is that of the help: runs; the service;
policies; simulations, studies and audits; datasets and logs; the store; the ledger.

One list, and long because it is the shell's help: half of it is docstrings, a parameter a paragraph.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import asdict
from functools import partial
from inspect import Parameter, Signature, getdoc, signature
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer

from flows import api
from flows.api import Night
from flows.terminal.screen import MOST, Block, Chart, Grid, Json, Pairs, Place, Title, say, show, working
from pipeline.declaration.numbers import number
from pipeline.declaration.toml import CardError, read_pairs

if TYPE_CHECKING:
    from flows.jobs.audit import Audited
    from flows.jobs.book import Lineage
    from flows.jobs.proof import Proof
    from flows.server.serving import Health
    from pipeline.facts.answers import Comparison, NightAnswer, Promotion, RunAnswer
    from pipeline.facts.promise import Dump
    from pipeline.learners.policy_files import StoredPolicy
    from pipeline.operator.proposal import Draft

F = TypeVar("F", bound=Callable[..., Any])
# the shell names what Python may hold, and repeats an option for each of several values
_TYPED = {"RecipeLike": str, "CardLike": str, "Sequence": list}
# set by the options that every verb has
CHOSEN: ContextVar[Callable[[], api.Store]] = ContextVar("store")


def chosen_store() -> api.Store:
    """The store that the options of the command name."""
    return CHOSEN.get()()


def dump(result: Any) -> Mapping[str, object]:
    """Plain values of a result, as ``--json`` prints them."""
    if hasattr(result, "model_dump"):
        return result.model_dump()
    return asdict(result) if hasattr(result, "__dataclass_fields__") else result


def verb(
    into: typer.Typer,
    page: Callable[[Any], Sequence[Block]] | None,
    *,
    name: str = "",
    data: Callable[[Any], Mapping[str, object]] = dump,
    code: Callable[[Any], int] = lambda _: 0,
) -> Callable[[F], F]:
    """Make a function a verb: the shell prints what it returns, and it stays the same function.

    ``page``, ``data``: make the page that a person reads, and the values that ``--json`` prints; without a page the
    function prints by itself, and takes ``as_json``.
    ``code``: the exit code.
    """

    def listed(function: F) -> F:
        parameters = [p for p in signature(function).parameters.values() if p.name != "as_json"]
        store = next((p.name for p in parameters if p.name in ("self", "store")), None)
        text, helps = _documented(getdoc(function) or "")

        def run(as_json: bool, **values: Any) -> None:
            arguments = {name: x for name, x in values.items() if x is not None}
            if page is None:
                function(**arguments, as_json=as_json)
                return
            result = function(**arguments) if store is None else function(**{store: chosen_store()}, **arguments)
            show(data(result), as_json, partial(page, result))
            if exit_code := code(result):
                raise typer.Exit(exit_code)

        options = [_option(p, function.__globals__, helps.get(p.name)) for p in parameters if p.name != store]
        options.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json))
        setattr(run, "__signature__", Signature(options))  # noqa: B010
        run.__annotations__ = {p.name: p.annotation for p in options}
        into.command(name or function.__name__.replace("_", "-"), help=text)(run)
        return function

    return listed


def _option(p: Parameter, names: Mapping[str, Any], text: str | None) -> Parameter:
    """A parameter as typer takes it: a type that the shell can read, and its help."""
    annotation = eval(p.annotation, {**names, **_TYPED})
    kind, *infos = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if isinstance(kind, UnionType) and str in get_args(kind):
        kind = str | None if type(None) in get_args(kind) else str
    # a switch that is off has no second name that leaves it off
    off = [f"--{p.name.replace('_', '-')}"] if p.default is False else []
    default_info = typer.Option(*off) if p.kind is Parameter.KEYWORD_ONLY else typer.Argument()
    info = copy(infos[0]) if infos else default_info
    info.help = info.help or text
    default = None if p.default == () else p.default
    return Parameter(p.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """A docstring's text before its sections, and its description of each parameter."""
    text, *sections = re.split(r"\n\n(?=\w+\n-+\n)", text)
    entries = re.findall(r"^(\w+(?:, \w+)*)\n((?:    .+\n?)+)", sections[0] if sections else "", re.MULTILINE)
    return text, {name: " ".join(words.split()) for names, words in entries for name in names.split(", ")}


top = typer.Typer()
policy = typer.Typer(help="The policy of a run, with labels.", no_args_is_help=True)
catalog = typer.Typer(help="Datasets of the catalog.", no_args_is_help=True)
store = typer.Typer(help="The operator's store of raw rows.", no_args_is_help=True)
ledger = typer.Typer(help="What was spent on which lineage, by which run.", no_args_is_help=True)


for _run in (api.demo, api.run):
    verb(top, lambda r: summary(r.said), data=lambda r: r.said.model_dump())(_run)


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

    made = chosen_store().open(run, card)
    with working("drawing the report"):
        draw_pages(made.folder, made.facts, made.evidence()[0])
    return {"run": made.name, "folder": str(made.folder), "report": str(made.report.file)}


def differences(r: Comparison) -> list[str]:
    """Sentences on the changes between two runs."""
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
    return chosen_store().open(a).compare(chosen_store().open(b))


@verb(
    top,
    lambda r: [f"{r['pointer']} is {r['now']}" + ("" if r["before"] in (None, r["now"]) else f", was {r['before']}")],
)
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
    if bool(run) == rollback:
        raise CardError("promote: give a RUN, or --rollback alone")
    store = chosen_store()
    return store.roll_back(pointer=pointer) if rollback else store.promote(run, pointer=pointer, card=card)


def summary(result: RunAnswer) -> list[Block]:
    """The main results of a run, in a few lines."""
    from pipeline.facts.learnt import NO_GUARANTEE
    from reports.page import interval
    from reports.run.answer import hidden_traits, shell_line

    v, g, b, verdict = result.value, result.guarantee, result.ledger, result.verdict
    promised = "not private (exact counts of simulated data)"
    if g.epsilon is not None:
        promised = (
            f"ε = {number(g.epsilon, toward='up')} at δ = {g.delta:g} (ρ = {number(g.rho, toward='up')}), "
            f"{g.trust_model}, replace one {g.protected or 'person'}"
        )
    # at least the lower end where no upper one is given
    ends = number(v.estimate) if v.upper is None and v.estimate is not None else interval(v.lower, v.upper)
    status = f"{v.status}, not a guarantee" if v.status in NO_GUARANTEE else v.status
    everything = v.upper is not None and v.lower <= v.lower_trivial and v.upper >= v.upper_trivial
    vain = ": all that is possible, so this run says nothing about the value" if everything else ""
    hidden = "" if verdict.confounding is None else verdict.confounding.status.replace("_", " ")
    rows = [
        ("verdict", shell_line(verdict, g.epsilon, binned=result.markov == "aggregated")),
        # the status of hidden traits stands before the first of its sentences
        *zip((hidden, ""), hidden_traits(verdict), strict=False),
        ("guarantee", f"{promised}; claim: {g.claim}"),
        ("value", f"{ends} ({status}){vain}"),
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
        times = number(c.times_one_release, toward="up")
        rows.insert(
            2, ("night", f"{c.night} of {c.nights} ({c.date}); its noise has {times} × the variance of one release")
        )
    return [Pairs(rows), Place("report", result.report)]


verb(top, lambda _: ["stopped"])(api.serve)
verb(policy, lambda _: ["stopped"], name="serve")(api.Store.serve_policy)


def night_page(r: NightAnswer | Dump) -> list[Block]:
    """Page of a night that was done, or of the note on the last one."""
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
        Run nothing; exit 1 if the nights need attention.
    hours
        With --check: how old the last good night may be.
    night
        The date of the night; default today.
    """
    if not check:
        return api.nightly(recipe, night=night, store=chosen_store())
    from flows.jobs.nightly import alert

    status = api.night_problem(recipe, hours=hours, store=chosen_store())
    if status["problem"] is not None:
        alert(status["problem"], say)
    return status


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
    from flows.server.serving import trigger as start

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


def _health(health: Health) -> list[Block]:
    words = {True: "ok", False: "WRONG", None: "–"}
    rows = [(words[f.ok], f.what, f.found, "" if f.ok else f.do) for f in health.findings]
    return [Grid(("", "what", "found", "to do"), rows, left=4, most=len(rows))]


verb(top, _health, data=lambda h: {"ok": h.ok, **asdict(h)}, code=lambda h: int(not h.ok))(api.doctor)


@verb(policy, lambda f: f.shown()[1], name="show", data=lambda f: {"run": f.of.run, "rows": f.shown()[0]})
def show_policy(run: str, *, card: str | None = None) -> StoredPolicy:
    """What to do in each state at each step, where the policy abstains, and where it was a tie; or the gains.

    Parameters
    ----------
    run
        A run, its folder, or current.
    card
        The card of the run's dataset; a real one names the ledger too.
    """
    return chosen_store().open(run, card).policy.stored


@verb(policy, lambda r: [r["file"]], name="export")
def export_policy(
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
    return chosen_store().open(run, card).export_policy(to, form, force=force)


@verb(policy, None)
def act(
    run: str,
    *,
    state: str | None = None,
    observation: str | None = None,
    step: Annotated[int | None, typer.Option(max=MOST)] = None,
    raw: bool = False,
    sample: bool = False,
    person: str | None = None,
    batch: str | None = None,
    card: str | None = None,
    as_json: Json = False,
) -> None:
    """What the policy says in a state (or at an observation) at a step, or for each record of a file.

    Parameters
    ----------
    run
        A run, its folder, or current.
    state
        The state: its declared label, or with --raw a raw value.
    observation
        Where observations are vectors: the numbers as logged, e.g. "0.5, -0.2".
    step
        The step, counted from 0.
    raw
        States are values as the log's column holds them.
    sample
        Draw where several actions have probability.
    person
        Who is there, where a share of the people meets the policy ([play] share).
    batch
        CSV or NDJSON: state (or observation) and step; '-' is standard input. One JSON line each.
    card
        The card of the run's dataset; a real one names the ledger too.
    """
    import numpy as np

    from pipeline.learners.policy_files import StoredGains, StoredObserved, parsed_observation
    from pipeline.logs.decode import read_observations, read_queries

    policy = chosen_store().open(run, card).policy
    stored, steps = policy.stored, np.array([step or 0], dtype=np.int64)
    vectors = isinstance(stored, StoredGains | StoredObserved)
    if vectors and (raw or sample):
        raise CardError("policy act: this policy takes --observation; it draws nothing, and states are labels")
    if not vectors and observation is not None:
        raise CardError("policy act: this policy has declared states: give --state, not --observation")
    query = observation if vectors else state
    if (batch is None) == (query is None or step is None) or (batch is not None and (query, step) != (None, None)):
        option = "--observation" if vectors else "--state"
        raise CardError(f"policy act: give {option} with --step, or --batch alone")
    if batch is not None and stored.of.play is not None:
        raise CardError("policy act: a share of the people meets this policy: ask for one --person, or `policy serve`")
    if isinstance(stored, StoredGains | StoredObserved):
        names = stored.observation.names
        if batch is None:
            observations = parsed_observation(str(observation), names)
        else:
            observations, steps = read_observations(*_content(batch), names)
        decisions = policy.observe(observations, steps, state)
        which = np.arange(len(decisions))
    else:
        states, steps = ([state], steps) if batch is None else read_queries(*_content(batch))
        decisions, which = policy.decide(states, steps, raw=raw, sample=sample)
    if batch is not None:
        _print_batch(stored.of.run, decisions, which, as_json)
        return
    decision = policy.met_by(person, decisions[0])
    words = _at_an_observation(decision) if vectors else _sentences(decision, state)
    show({"run": stored.of.run, **decision}, as_json, lambda: words)


def _content(batch: str) -> tuple[bytes, str]:
    try:
        content = sys.stdin.buffer.read() if batch == "-" else Path(batch).read_bytes()
    except OSError as e:
        raise CardError(f"{batch}: cannot be read ({e.strerror}); name a CSV or NDJSON file, or '-'") from None
    return content, "standard input" if batch == "-" else batch


def _print_batch(run: str, decisions: Sequence[Mapping[str, object]], which: Iterable[int], as_json: bool) -> None:
    distinct = [json.dumps(d, ensure_ascii=False, allow_nan=False) for d in decisions]
    lines = [distinct[i] for i in which]
    if as_json:
        print(f'{{"run": {json.dumps(run)}, "decisions": [{", ".join(lines)}]}}')
    elif lines:
        print("\n".join(lines))


def _at_an_observation(d: Mapping[str, Any]) -> list[str]:
    """One decision at an observation in words."""
    lines = [f"step {d['step']}: {d['advice']}"]
    lines += ["  shortened to the declared radius of the control"] if d.get("cut") else []
    lines += ["  the observation is longer than declared: nothing like it was learnt from"] if d.get("outside") else []
    return lines


def _sentences(d: Mapping[str, Any], state: str | None) -> list[str]:
    """One decision in a state in words."""
    lines = [f"step {d['step']}, {d.get('state', state)}: {d['advice']}"]
    if d.get("arm") == "practice":
        return lines
    lines += [f"  {c['action']}: probability {c['probability']:g}" for c in d["actions"]]
    if d["tie"]:
        lines.append("  a tie: other actions were as good; this one was drawn among them when the policy was made")
    return lines + ([f"  never (vetoed): {', '.join(d['vetoed'])}"] if d["vetoed"] else [])


@verb(top, lambda r: _written(r) if "card" in r else _played(r))
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
) -> Dump:
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
    from pipeline.worlds.catalog import WORLDS

    params = tuple(param)
    options = LogOptions(behaviour, episodes, horizon, seed, bins, params, episodes_per_user, rho, name, to)
    if logs:
        return api.simulate_logs(world, options, from_run=from_run or None, store=chosen_store())
    if not world or world in WORLDS or options != LogOptions():
        raise CardError("simulate: name a recipe that has [world], or say --logs to write a log; see --help")
    return api.simulate(world, store=chosen_store())


def _played(result: Dump) -> list[str]:
    # one run tells no spread
    stds = [f"± {number(r['std'])}" if r["runs"] > 1 else "" for r in result["rows"]]
    lines = [
        f"{r['agent']:22} regret {number(r['mean']):>9} {std:<11} median {number(r['median']):>9}  {r['trust']}"
        for r, std in zip(result["rows"], stds, strict=True)
    ]
    head = f"{result['world']}, {result['episodes']:,} episodes; simulation, not private"
    loses = f"run            {result['run']}; its policy loses {number(result['suboptimality'])} an episode"
    true = result["true_epsilon"]
    requested = [] if result["epsilon"] is None else [f"asked ε = {number(result['epsilon'], toward='up')}"]
    real = [] if true is None else [f"the noise drawn is worth ε = {number(true, toward='up')}"]
    promise = "; ".join([*requested, *real]) or "no noise, no promise"
    proposal = [f"proposal       {result['proposal']}"] if result["proposal"] else []
    closing = [f"would promise  {promise}", *proposal, f"report         {result['report']}"]
    return [head, *lines, result["answer"], loses, *closing]


def _written(result: Dump) -> list[str]:
    files = result["files"]
    if "recipe" not in result:
        return list(files)
    lines = [f"{result['dataset']}: {result['episodes']:,} simulated episodes in {len(files)} files"]
    if exact := result.get("values"):
        lines.append("exact       " + " | ".join(f"{k} {v:.4f}" for k, v in exact.items()))
    if "from_run" in result:
        claim = result["guarantee"]["claim"]
        lines.append(f"privacy     nothing beyond the release of {result['from_run']}; its claim: {claim}")
    return [*lines, f"next        reticent ingest {result['folder']}", f"            reticent run {result['recipe']}"]


def _verdicts(result: Dump) -> list[str]:
    """The claims with their verdicts, and the page's address."""
    lines = [f"{'yes' if c['holds'] else 'no':4}{c['claim']}\n    {c['regime']}" for c in result["claims"]]
    return [*lines, *(f"page    {file}" for file in result["files"] if file.endswith("page.html"))]


verb(top, _verdicts)(api.reproduce)


@verb(
    top,
    lambda results: [line for r in results for line in [*_prices(r), *_verdicts(r)]],
    data=lambda results: results[0] if len(results) == 1 else _together(results),
)
def compare(recipes: Sequence[str], *, full: bool = False) -> list[Dump]:
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


def _together(results: Sequence[Dump]) -> Dump:
    """Several comparisons as one object."""
    return {
        "name": ", ".join(r["name"] for r in results),
        "rows": [row for r in results for row in r["rows"]],
        "claims": [{"name": r["name"], **claim} for r in results for claim in r["claims"]],
        "needed": [{"name": r["name"], **row} for r in results for row in r.get("needed", ())],
        "files": [file for r in results for file in r["files"]],
    }


def _prices(result: Dump) -> list[str]:
    """Episodes needed by trust model and budget."""
    from pipeline.online.study import first_meeting

    by_agent: dict[str, list[Dump]] = {}
    least = min((r["episodes"] for r in result["rows"] if r["variant"] != "control"), default=0)
    for row in result.get("needed", ()):
        by_agent.setdefault(f"  {row['trust']:8} {row['agent']:18}", []).append(row)
    lines = [f"{result['name']}: episodes until suboptimality stays ≤ 10 % of uniform choice's"] if by_agent else []
    for agent_label, rows in by_agent.items():
        meetings = [
            ("no noise: " if r["epsilon"] is None else f"ε = {number(r['epsilon'])}: ")
            + first_meeting(r["episodes"], least, r["most"])
            for r in rows
        ]
        lines.append(agent_label + " | ".join(meetings))
    return lines


def _audited(result: Audited) -> list[Block]:
    from reports.studies.study_page import attacked, summary

    head = ("mechanism", "trust", "claimed", "proved ≥", "of it", "the pair spends", "broken", "seconds")
    rows = [
        (*attacked(v), "yes" if v.violates else "no", str(round(seconds, 2)))
        for v, seconds in zip(result.verdicts, result.seconds, strict=True)
    ]
    canaries = [] if result.one_run is None else [f"  {result.one_run.words}"]
    page = Place("report", str(result.folder / "page.html"))
    return [summary(result.name, result.verdicts, result.faults), Grid(head, rows, left=2), *canaries, page]


verb(top, _audited, data=lambda result: result.answer())(api.audit)


def _catalog(r: Dump) -> list[Block]:
    rows = [(d["name"], d["kind"], "here" if d["log"] else "fetch" if d["fetch"] else "missing") for d in r["datasets"]]
    return [Grid(("dataset", "kind", "log"), rows, left=3, most=len(rows))]


@verb(catalog, _catalog, name="list")
def list_all() -> Dump:
    """Every dataset of the catalog: its kind, and whether its log is there, or can be fetched."""
    from flows.jobs.datasets import list_datasets

    return {"datasets": list_datasets(shelf=chosen_store().home.shelf)}


@verb(catalog, lambda r: list(r["files"].values()))
def fetch(names: Sequence[str]) -> Dump:
    """Bring logs that may not be shipped: a package is downloaded and opened, nothing of it is installed or run.

    Parameters
    ----------
    names
        Datasets whose logs are brought from where they are published.
    """
    return {"files": {name: str(api.fetch(name, shelf=chosen_store().home.shelf)) for name in names}}


# above this share an accepted rule is worth a warning
_LOUD = 0.05
# design §5.1: the log breaks its card
_BROKEN = 3


@verb(top, lambda r: [r["card"].rstrip("\n")] if r["file"] is None else [r["file"]])
def draft(
    files: Sequence[Path],
    *,
    user: Sequence[str] = (),
    name: str | None = None,
    action: str | None = None,
    state: Sequence[str] = (),
    reward: str | None = None,
    order: str | None = None,
    episode: str | None = None,
    rename: Sequence[str] = (),
    unit: Sequence[str] = (),
    dates: str | None = None,
    several: str | None = None,
    paid: str | None = None,
    last_row: str | None = None,
    word: Sequence[str] = (),
    rewards: str | None = None,
    to: Path | None = None,
) -> Dump:
    """Propose a card and a recipe for a log: a look at raw rows, for your eyes only.

    The card goes to stdout or to a folder; what was seen, counts too, to the terminal (stderr) alone.  Where a wrong
    guess would ruin the run it asks; without a terminal it ends with exit 2 and the option to add.

    Parameters
    ----------
    files
        Files of the log; ingest reads the same kinds.
    user
        A column that names people; of several the one that protects most.
    name
        Of the dataset; default after the first file.
    action
        The column of what was done.
    state
        The column of what was seen before; several make the state together.
    reward
        The column of what came of it.
    order
        The column of steps, or of dates that order the rows.
    episode
        The column of episodes; default one a person.
    rename
        THEIRS=OURS: a column as one file calls it, and as the others do.
    unit
        COLUMN:UNIT=WORTH: what a unit behind numbers is worth in the card's.
    dates
        How dates are written, such as dd.mm.yyyy.
    several
        Rows of a person at one place: last:COLUMN or first:COLUMN counts, or each.
    paid
        An outcome that stands in every row is paid by the last, or by each.
    last_row
        After its last row an episode is over (ends), or goes on unseen (unknown).
    word
        TEXT=WORTH: what an outcome in words is worth.
    rewards
        LEAST:MOST that a reward can be, where those of few people weigh.
    to
        Write card.toml and recipe.toml into this folder, above the files; default: print the card.
    """
    from pipeline.operator.proposal import RECIPE, check_folder

    if to is not None:
        # before anything is asked
        check_folder(to, files)

    def propose(options: Mapping[str, Any]) -> Draft:
        pairs: dict[str, Any] = {"rename": _pairs(options["rename"], "--rename"), "unit": _units(options["unit"])}
        pairs["word"] = _worths(options["word"])
        return api.draft(files, name=name, episode=episode, **{**options, **pairs})

    options: dict[str, Any] = {"user": list(user), "state": list(state)}
    options |= {"rename": list(rename), "unit": list(unit), "word": list(word)}
    options |= {"action": action, "reward": reward, "order": order, "dates": dates, "several": several, "paid": paid}
    proposal = _answered(propose, {**options, "last_row": last_row, "rewards": rewards})
    say("OPERATOR ONLY: what was seen in the log")
    for key, seen in proposal.seen:
        say(f"  {key:24}  {seen}")
    for note in proposal.notes:
        say(f"note: {note}")
    card = None if to is None else proposal.save(to)
    if card is not None:
        recipe = card.with_name(RECIPE)
        say(f"{card}: change what an expert would set, then `reticent register {card}`, which notes the look")
        say(f"{recipe}: what to learn, for how much; `reticent plan {recipe}` says what it costs")
    return {
        "card": proposal.toml if card is None else card.read_text(encoding="utf-8"),
        "file": None if card is None else str(card.resolve()),
        "recipe": proposal.recipe,
        "keys": [key.key for key in proposal.keys],
    }


def _answered(propose: Callable[[Mapping[str, Any]], Draft], given: Mapping[str, Any]) -> Draft:
    """The proposal, once every question is answered; without a terminal a question is an error."""
    from pipeline.operator.look import QuestionError

    while True:
        try:
            return propose(given)
        except QuestionError as question:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            question_text, options = question.asked, question.options
        say(question_text)
        for i, option in enumerate(options, 1):
            say(f"  {i}  {option}")
        answer = str(typer.prompt("a number, or options such as these", default="1", err=True))
        words = shlex.split(dict(enumerate(options, 1)).get(int(answer), "") if answer.isdecimal() else answer)
        updated: dict[str, Any] = dict(given)
        for option, value in zip(words[::2], words[1::2], strict=False):
            key = option.removeprefix("--").replace("-", "_")
            if key not in updated:
                known_options = ", ".join(f"--{name.replace('_', '-')}" for name in updated)
                raise CardError(f"draft: {option}: answer with {known_options}")
            updated[key] = [*updated[key], value] if isinstance(updated[key], list) else value
        given = updated


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs = [one.rpartition("=") for one in given]
    if wrong := next((one for one, (left, _, _) in zip(given, pairs, strict=True) if not left), None):
        raise CardError(f"draft: {option} {wrong!r}: write NAME=VALUE")
    return {left: right for left, _, right in pairs}


def _worths(given: Sequence[str]) -> dict[str, float]:
    try:
        return {text: float(worth) for text, worth in _pairs(given, "--word").items()}
    except ValueError:
        raise CardError(f"draft: --word {' '.join(given)!r}: write TEXT=WORTH, such as recovered=1") from None


def _units(given: Sequence[str]) -> dict[str, dict[str, float]]:
    units: dict[str, dict[str, float]] = {}
    for left, worth in _pairs(given, "--unit").items():
        column, colon, unit = left.rpartition(":")
        try:
            units.setdefault(column, {})[unit] = float(worth)
        except ValueError:
            colon = ""
        if not colon:
            raise CardError(f"draft: --unit '{left}={worth}': write COLUMN:UNIT=WORTH, such as dose:g=1000")
    return units


def _ingested(r: Dump) -> list[Block]:
    from flows.terminal.pages import rules_table
    from pipeline.operator.ingest_report import PAGE

    return [
        f"{r['dataset']} snapshot {r['snapshot']}: {r['rows']:,} rows, {r['users']:,} users, "
        f"{r['episodes']:,} episodes, {r['partitions']} partitions   (operator only: not for publication)",
        *rules_table(r["report"]),
        Place("page", f"{r['folder']}/{PAGE}"),
    ]


@verb(top, _ingested, code=lambda r: 0 if r["problem"] is None else _BROKEN)
def ingest(card: str) -> Dump:
    """The next edition: validate, bound contributions, partition; operator-only facts on stdout.

    It is numbered whatever came in.  Exit 3: the log does not fit its card; the edition stays.

    Parameters
    ----------
    card
        A path or a name.
    """
    from flows.terminal.pages import warnings_of

    r = chosen_store().ingest(card)
    for rule, count in r["quarantined"].items():
        # the cap is the card's wish, and a closing row is a way to write an episode: neither is a fault of the log
        if rule not in ("over_cap", "closing_row") and count > _LOUD * max(1, r["rows"]):
            say(f"warning: {rule} touched {count:,} rows; `reticent inspect {card} --quarantine` shows what they hold")
    for warning in warnings_of(r["report"]):
        say(warning)
    if r["same_as"] is not None:
        # never done by itself: to replay is a decision that depends on raw rows
        say(
            f"these are the bytes of snapshot {r['same_as']}: `run --edition {r['same_as']}` replays its release for "
            "nothing. That is for you to know and to decide (docs/privacy.md)"
        )
    if r["same_rows"]:
        say(
            f"warning: {', '.join(r['same_rows'])} holds the very same rows. Unless both cards name one ledger, their "
            "budgets are not added up, and neither knows of the other's evaluations (docs/ledger.md, Names)"
        )
    if r["problem"] is not None:
        say(f"reticent: {r['problem']}.  Snapshot {r['snapshot']} stays")
    return r


def _inspected(r: Dump) -> list[Block]:
    from flows.terminal.pages import ingest_page, inspection_page

    if "report" not in r:
        return inspection_page(r)
    entry = f"This look is entry {r['ledger_entry']} of the ledger."
    return [*ingest_page(r["dataset"], r["snapshot"], r["report"]), entry]


@verb(top, _inspected)
def inspect(card: str, *, quarantine: bool = False) -> Dump:
    """Rows, rules broken, coverage and warnings of a snapshot; for the operator only, nothing may be published.

    Parameters
    ----------
    card
        A path or a name.
    quarantine
        What the newest ingest set aside.
    """
    return chosen_store().quarantine(card) if quarantine else chosen_store().inspect(card)


def _purged(r: Dump) -> list[str]:
    doing = "removed" if r["purged"] else "would remove"
    lines = [f"{doing} {path}" for path in r["paths"]] or ["nothing to remove"]
    if r["paths"]:
        lines.append(f"{r['bytes']:,} bytes of {r['dataset']}" + ("" if r["purged"] else "; say --yes to do it"))
        lines += [f"not undone: {what}" for what in r["not_undone"]]
    return lines


def _read(r: Dump) -> list[str]:
    return [f"snapshot {one['snapshot']}: {one['problem'] or 'ok'}" for one in r["snapshots"]] or ["no snapshot"]


def _registered(r: Dump) -> list[str]:
    return [
        f"{r['dataset']}: {r['action']} ({r['kind']}), cap ρ = {r['cap_rho']:g}, "
        f"spent {number(r['spent_rho'], toward='up')}, ledger {r['ledger']}",
        f"  this host signs with the public key {r['public_key']}; keep it elsewhere too (docs/ledger.md)",
    ]


verb(store, _purged)(api.Store.purge)
verb(store, _read, code=lambda r: 0 if r["ok"] else 4)(api.Store.verify)
verb(top, _registered)(api.Store.register)
verb(top, lambda r: r.blocks(), code=lambda r: 0 if r.allowed else 4)(api.plan)


def _history(datasets: Sequence[Lineage]) -> list[Block]:
    from flows.jobs.book import chart
    from pipeline.ledger.ledger import now

    blocks: list[Block] = []
    for d in datasets:
        blocks.append(Title(d.name, f"spent ρ = {number(d.spent_rho, 6, 'up')} of {d.cap_rho:g} (δ = {d.delta:g})"))
        blocks.append(Chart(chart(d.spending, d.cap_rho, d.registered_at, now().isoformat(timespec="seconds"))))
        if d.schedule:
            limits = ", ".join(f"ρ = {rho:g} a {period}" for period, rho in d.schedule.items())
            blocks.append(f"  schedule: {limits}; left now {number(d.limit.left_rho, 6, 'down')} (of {d.limit.of})")
        blocks += _events(d)
    return blocks or ["no lineage is registered"]


def _events(d: Lineage) -> list[Block]:
    """A row an entry of a lineage, in the ledger's order."""
    events = [
        *((a, "amended", f"{a.cap_rho:g}", "the cap") for a in d.amendments),
        *(
            (i, "inspected", "", f"snapshot {i.snapshot}" if i.snapshot else "the log, to draft the card")
            for i in d.inspections
        ),
        *(
            (
                e,
                e.state,
                number(e.rho, 6, "up"),
                e.run + ("" if e.night is None else f"  night {e.night} of {e.nights}"),
            )
            for e in d.entries
        ),
        *((p, "purged", "", p.what or "") for p in d.purges),
        *((t, "retry", "", "draws that died may be tried again") for t in d.retries),
        *((s, "signed", "", f"{s.run} by {s.by}" + (f": {s.note}" if s.note else "")) for s in d.signatures),
    ]
    rows = [(str(e.entry), e.at, *line) for e, *line in sorted(events, key=lambda x: x[0].entry)]
    return [Grid(("entry", "at", "what", "ρ", "of"), rows, left=5, most=len(rows))] if rows else []


@verb(ledger, _history, name="show", data=lambda datasets: {"datasets": [d.model_dump() for d in datasets]})
def show_ledger(*, card: str | None = None) -> Sequence[Lineage]:
    """Cap, spending over time, entries and sign-offs of every lineage.

    Parameters
    ----------
    card
        The card whose ledger is meant; default: home's ledger.
    """
    return chosen_store().ledger(card).lineages()


def _verified(result: Proof | Dump) -> list[Block]:
    if not isinstance(result, dict):
        return _checked(result)
    line = f"ok: {result['entries']} entries, chain unbroken" if result["ok"] else f"damaged: {result['problem']}"
    if "vouched" in result:
        behind, count = result.get("unsigned", 0), "entry" if result.get("unsigned") == 1 else "entries"
        line += f"; vouched up to entry {result['vouched']}"
        line += f"; {behind} {count} behind it {'is' if behind == 1 else 'are'} not signed" if behind else ""
    return [*result.get("recovered", []), line]


@verb(ledger, _verified, code=lambda r: 0 if (r["ok"] if isinstance(r, dict) else r.ok) else 4)
def verify(
    run: str | None = None,
    *,
    card: str | None = None,
    head: Sequence[str] = (),
    certificate: Sequence[Path] = (),
    public_key: Sequence[str] = (),
    ledger: Path | None = None,
) -> Proof | Dump:
    """Check the hash chain, and that nothing seen elsewhere is lacking; exit 4 where it is damaged or old.

    With RUN the run is verified: its certificate is recomputed, its files are compared with what the ledger vouches
    for, and with the card at hand they are made again.  What cannot be checked is said.

    Parameters
    ----------
    run
        A run, or its folder: verify it too.
    card
        The card whose ledger is meant; default: home's ledger.
    head
        SEQ:HASH kept elsewhere, or a file of them; the ledger must have it.
    certificate
        A certificate.json; the ledger must have its entry.
    public_key
        64 hex digits, or a file of them; one of them must have signed.
    ledger
        A file that `ledger export` wrote, in place of the ledger.
    """
    from pipeline.ledger.publication import parse_public_keys

    if run is not None:
        return chosen_store().open(run, card).verify(ledger=ledger, trusted=parse_public_keys(list(public_key)))
    book = chosen_store().ledger(card)
    return book.verify(heads=head, certificates=certificate, public_keys=public_key, exported=ledger)


def _checked(proof: Proof) -> list[Block]:
    from pipeline.ledger.publication import OLDER

    words = {True: "ok", False: "WRONG", None: "not checked"}
    rows = [(words[c.ok], c.what + (f": {c.found}" if c.found else "")) for c in proof.checks]
    table = Grid(("result", "check"), rows, left=2, most=len(rows))
    ok = "ok" if proof.vouched else "ok as far as was checked; not vouched for by a ledger"
    older = next((c.found for c in proof.checks if c.ok is None and c.found.startswith(OLDER)), None)
    ok += "" if older is None else f": its files and its charge are what the ledger holds; {older}"
    return [table, Title(proof.run, ok if proof.ok else f"damaged: {proof.problem}")]


@verb(ledger, lambda r: [f"{r['entries']} entries in {r['file']}"], name="export")
def export_ledger(to: Path, *, card: str | None = None) -> Dump:
    """Write all entries as JSON, for an auditor.

    Parameters
    ----------
    to
        File to write.
    card
        The card whose ledger is meant; default: home's ledger.
    """
    return chosen_store().ledger(card).export(to)


@verb(ledger, lambda r: [f"{r['seq']}:{r['hash']}"])
def head(*, card: str | None = None) -> Dump:
    """Print SEQ:HASH of the newest entry, to be kept in another place than the ledger; with --json it is signed.

    Parameters
    ----------
    card
        The card whose ledger is meant; default: home's ledger.
    """
    return chosen_store().ledger(card).head()


@verb(ledger, lambda r: [f"{r['dataset']}: lost draws may be tried again (entry {r['entry']})"])
def retry(card: str) -> Dump:
    """Let a release be drawn again whose draws died, when you know why they did; each such draw is paid for.

    Parameters
    ----------
    card
        Of the dataset.
    """
    return chosen_store().ledger(card).retry()


@verb(ledger, lambda r: [f"{r['run']}: signed by {r['by']} at {r['at']} (entry {r['entry']})"])
def sign(run: str, *, by: str, note: str | None = None, card: str | None = None) -> Dump:
    """Sign off a run that verifies: who, when and for which certificate, as an entry of the chain.

    Parameters
    ----------
    run
        A run, its folder, or current.
    by
        Who answers for the run; the name enters the ledger.
    note
        A line beside the name.
    card
        The card of the run's dataset; a real one names the ledger too.
    """
    return chosen_store().open(run, card).sign(by, note)
