"""``reticent compare RECIPE…``: one world under every trust model, and through a grid of budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from flows.terminal.progress import progress_line
from flows.terminal.screen import Context, Json, say, show


def compare(
    context: typer.Context,
    recipes: Annotated[list[str], typer.Argument(help="Recipes with [compare], such as trust_riverswim.")],
    full: Annotated[bool, typer.Option("--full", help="The recipe's larger grid.")] = False,
    as_json: Json = False,
) -> None:
    """What privacy and trust cost: none, central, joint, shuffle, local at the same (ε, δ) (simulation, not private).

    A comparison broken off goes on where it was: finished runs are kept in the home.  What changed between two runs of
    your own data is `compare-runs A B`.
    """
    from flows.config.shelf import find_recipe
    from flows.jobs.study import compare_job
    from flows.server.engine import carry_out

    options: Context = context.obj
    home = options.home_folder()
    results: list[dict[str, Any]] = []
    for name in recipes:
        path = find_recipe(name)
        with progress_line(path.stem, "runs") as progress:
            results.append(
                carry_out(
                    "compare",
                    lambda step, p=path, b=progress: compare_job(p, home, step, full=full, say=say, progress=b),
                )
            )
    result = results[0] if len(results) == 1 else together(results)
    show(result, as_json, lambda: [line for r in results for line in summary(r)])


def together(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several comparisons as one object."""
    return {
        "name": ", ".join(r["name"] for r in results),
        "rows": [row for r in results for row in r["rows"]],
        "claims": [{"name": r["name"], **claim} for r in results for claim in r["claims"]],
        "needed": [{"name": r["name"], **row} for r in results for row in r["needed"]],
        "files": [file for r in results for file in r["files"]],
    }


def summary(result: Mapping[str, Any]) -> list[str]:
    """Episodes needed by trust model and budget, the claims, and where the page is."""
    from pipeline.declaration.numbers import number

    lines = [f"{result['name']} ({result['world']}): episodes until suboptimality stays ≤ 10 % of uniform choice's"]
    by_agent: dict[str, list[Mapping[str, Any]]] = {}
    for row in result["needed"]:
        by_agent.setdefault(f"  {row['trust']:8} {row['agent']:18}", []).append(row)
    for who, rows in by_agent.items():
        told = [
            ("no noise: " if r["epsilon"] is None else f"ε = {number(r['epsilon'])}: ")
            + (f"> {r['most']:,}" if r["episodes"] is None else f"{r['episodes']:,}")
            for r in rows
        ]
        lines.append(who + " | ".join(told))
    lines += [f"{'yes' if c['holds'] else 'no':4}{c['claim']}: {c['regime']}" for c in result["claims"]]
    return [*lines, *(f"page    {file}" for file in result["files"] if file.endswith("page.html"))]
