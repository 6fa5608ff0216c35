"""``reticent policy show RUN``: the policy, with labels."""

from __future__ import annotations

import json

import typer

from flows.screen import Context, Json, show

app = typer.Typer(help="The policy of a run, with labels.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``show`` a sub-command while it is the only one."""


@app.command("show")
def show_policy(context: typer.Context, run: str, as_json: Json = False) -> None:
    """What to do in each state at each step, and where the policy abstains."""
    from flows.folder import read_policy
    from flows.verbs.report import run_folder

    options: Context = context.obj
    folder = run_folder(options, run)
    labels = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    policy = read_policy(folder)
    rows = [
        {
            "step": h,
            "state": state,
            "abstains": bool(policy.abstains[h, s]),
            "action": None if policy.abstains[h, s] else labels["actions"][int(policy.probabilities[h, s].argmax())],
            "probability": None if policy.abstains[h, s] else float(policy.probabilities[h, s].max()),
        }
        for h in range(labels["horizon"])
        for s, state in enumerate(labels["states"])
    ]
    lines = [
        f"{r['step']:>4}  {r['state']:24} {r['action'] or '– keep current practice (not enough evidence)'}"
        for r in rows
    ]
    show({"run": folder.name, "rows": rows}, as_json, lambda: ["step  state                    action", *lines])
