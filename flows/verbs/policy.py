"""``reticent policy show|export|act RUN``: the policy, with labels; for people, for programs, for one decision."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.screen import Context, Json, show

if TYPE_CHECKING:
    from flows.policy_file import PolicyFile

app = typer.Typer(help="The policy of a run, with labels.", no_args_is_help=True)


class Format(StrEnum):
    """Formats of an export."""

    csv = "csv"
    json = "json"


def _read(context: typer.Context, run: str) -> PolicyFile:
    from flows.policy_file import read_policy_file
    from flows.verbs.report import run_folder

    options: Context = context.obj
    return read_policy_file(run_folder(options, run))


@app.command("show")
def show_policy(context: typer.Context, run: str, as_json: Json = False) -> None:
    """What to do in each state at each step, where the policy abstains, and where it was a tie."""
    file = _read(context, run)
    policy, labels = file.policy, file.labels
    rows = [
        {
            "step": h,
            "state": state,
            "abstains": bool(policy.abstains[h, s]),
            "action": None if policy.abstains[h, s] else labels["actions"][int(policy.probabilities[h, s].argmax())],
            "probability": None if policy.abstains[h, s] else float(policy.probabilities[h, s].max()),
            "tie": bool(file.tied[h, s]),
        }
        for h in range(labels["horizon"])
        for s, state in enumerate(labels["states"])
    ]
    lines = [
        f"{r['step']:>4}  {r['state']:24} {r['action'] or '– keep current practice (not enough evidence)'}"
        + ("   (tie: others are as good)" if r["tie"] else "")
        for r in rows
    ]
    show({"run": file.run, "rows": rows}, as_json, lambda: ["step  state                    action", *lines])


@app.command("export")
def export(
    context: typer.Context,
    run: str,
    to: Annotated[Path, typer.Option("--to", help="File to write.")],
    form: Annotated[Format | None, typer.Option("--format", help="Default: by the file's suffix, else csv.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Write the policy with labels as CSV that no spreadsheet evaluates, or as JSON with the exact labels."""
    from flows.policy_file import FORMATS, write_whole

    file = _read(context, run)
    chosen = form or (Format.json if to.suffix.lower() == ".json" else Format.csv)
    write_whole(to, FORMATS[chosen.value](file), force=force)
    result = {"run": file.run, "file": str(to.resolve()), "format": chosen.value, "policy_sha256": file.sha256}
    show(result, as_json, lambda: [result["file"]])


@app.command("act")
def act(
    context: typer.Context,
    run: str,
    state: Annotated[str | None, typer.Option(help="The state: its declared label, or with --raw a raw value.")] = None,
    step: Annotated[int | None, typer.Option(help="The step, counted from 0.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="States are values as the log's column holds them.")] = False,
    sample: Annotated[bool, typer.Option("--sample", help="Draw where several actions have probability.")] = False,
    batch: Annotated[
        str | None, typer.Option(help="CSV or NDJSON with state and step; '-' is standard input. One JSON line each.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What the policy says in a state at a step, or for each record of a file."""
    from flows.deciding import check_steps, decide, state_indices
    from pipeline.card import CardError

    if (batch is None) == (state is None or step is None) or (batch is not None and (state, step) != (None, None)):
        raise CardError("policy act: give --state with --step, or --batch alone")
    file = _read(context, run)
    values, steps = _records(state, step, batch)
    check_steps(file, steps)
    decisions, which = decide(file, state_indices(file, values, raw=raw), steps, sample=sample)
    if batch is not None:
        _print_batch(file.run, decisions, which, as_json)
    else:
        show({"run": file.run, **decisions[0]}, as_json, lambda: _sentences(decisions[0]))


def _records(state: str | None, step: int | None, batch: str | None) -> tuple[list[str | None], Any]:
    import sys

    import numpy as np

    from pipeline.card import CardError
    from pipeline.logs.queries import read_queries

    if batch is None:
        return [state], np.array([step], dtype=np.int64)
    try:
        content = sys.stdin.buffer.read() if batch == "-" else Path(batch).read_bytes()
    except OSError as e:
        raise CardError(f"{batch}: cannot be read ({e.strerror}); name a CSV or NDJSON file, or '-'") from None
    return read_queries(content, "standard input" if batch == "-" else batch)


def _print_batch(run: str, decisions: list[dict[str, Any]], which: Any, as_json: bool) -> None:
    import json

    import numpy as np

    lines = np.array([json.dumps(d, ensure_ascii=False, allow_nan=False) for d in decisions], dtype=object)
    if as_json:
        print(f'{{"run": {json.dumps(run)}, "decisions": [{", ".join(lines[which])}]}}')
    elif len(which):
        print("\n".join(lines[which]))


def _sentences(d: dict[str, Any]) -> list[str]:
    """One decision in words."""
    lines = [f"step {d['step']}, {d['state']}: {d['advice']}"]
    lines += [f"  {c['action']}: probability {c['probability']:g}" for c in d["actions"]]
    if d["tie"]:
        lines.append("  a tie: other actions were as good; this one was drawn among them when the policy was made")
    return lines + ([f"  never (vetoed): {', '.join(d['vetoed'])}"] if d["vetoed"] else [])
