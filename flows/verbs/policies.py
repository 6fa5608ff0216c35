"""``reticent policy show|export|act RUN``: the policy, with labels; for people, for programs, for one decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.terminal.screen import MOST, Json, show
from flows.verbs.runs import CardOption, chosen_store, opened

app = typer.Typer(help="The policy of a run, with labels.", no_args_is_help=True)


@app.command("show")
def show_policy(run: str, card: CardOption = None, as_json: Json = False) -> None:
    """What to do in each state at each step, where the policy abstains, and where it was a tie; or the gains."""
    file = opened(run, card).policy.stored
    rows, lines = file.shown()
    show({"run": file.of.run, "rows": rows}, as_json, lambda: lines)


@app.command("export")
def export(
    run: str,
    to: Annotated[Path, typer.Option("--to", help="File to write.")],
    form: Annotated[
        Literal["csv", "json"] | None, typer.Option("--format", help="Default: by the file's suffix, else csv.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    card: CardOption = None,
    as_json: Json = False,
) -> None:
    """Write the policy of a run that verifies, with labels, as CSV that no spreadsheet evaluates, or as JSON."""
    r = opened(run, card).export_policy(to, form, force=force)
    show(r, as_json, lambda: [r["file"]])


@app.command("serve")
def serve(
    run: Annotated[str, typer.Argument(help="A run, or a pointer such as current, which is followed when it moves.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0: any that is free.")] = 4280,
    card: CardOption = None,
    as_json: Json = False,
) -> None:
    """Answer `POST /act` for programs that know the secret, until interrupted; no question is written anywhere."""
    chosen_store().serve_policy(run, card=card, port=port)
    show({"served": run}, as_json, lambda: ["stopped"])


@app.command("act")
def act(
    run: str,
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
    card: CardOption = None,
    as_json: Json = False,
) -> None:
    """What the policy says in a state (or at an observation) at a step, or for each record of a file."""
    import numpy as np

    from pipeline.declaration.card import CardError
    from pipeline.learners.gains import StoredGains, parsed_observation
    from pipeline.learners.observed_policy import StoredObserved
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
