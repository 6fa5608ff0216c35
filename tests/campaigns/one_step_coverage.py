"""What rows of one-step evaluations say: ``python -P -m tests.campaigns.one_step_coverage`` prints a line a cell.

It also writes what coverage a run may state, ``pipeline/evaluation/coverage_one_step.csv``, and has the tables of the
pages.  A cell is a world with its log, people, budget, share of them who evaluate, and whose policy.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import polars as pl
from scipy.stats import beta

from pipeline.evaluation.coverage import ONE_STEP, code_of
from reports.facts.measurement import LEANS
from reports.facts.verdict import PLACEBO, stricter
from tests.campaigns import rows as committed
from tests.campaigns.one_step_evaluation import BUDGETS, CAMPAIGNS, CELL, FEW, FIELDS, OPEN, TABLE, Cell, text_of
from tests.campaigns.one_step_worlds import WORLDS

# the first evaluation of a lineage is at this level; how far from 0 is clear was chosen on runs of smaller seeds
FIRST_LOOK, FRESH = 0.975, 9400
# with a thousand states and no numbers of them the gain comes out .01 too large: coverage ends below
BOX = (*(world for world in OPEN if world != "depot"), *FEW)


@lru_cache(1)
def measured():
    """What the rows of today's code say, a row a cell."""
    rows = pl.DataFrame(committed.read(TABLE)).filter(code=code_of(ONE_STEP))
    numbers = ("people", "rho", "share", *FIELDS[len(CELL) :])
    rows = rows.with_columns(pl.col(numbers).cast(pl.Float64)).fill_nan(None)
    true, gain = pl.col("truth") - pl.col("practice"), pl.col("gain")
    held = true.is_between("gain_low", "gain_high")
    withheld = pl.col("placebo").abs() > PLACEBO
    # beyond what hidden state may make, and not to the side to which the placebo leans: else the status is modelled
    sure = (pl.col("hidden") < gain.abs()) & (pl.col("placebo") * gain.sign() <= LEANS)
    # as the page decides at the first look
    above = ~withheld & (gain > (gain - pl.col("gain_low")) * stricter(FIRST_LOOK))
    fresh = pl.col("seed").cast(pl.Int64) >= FRESH
    of = rows.group_by(CELL[:-1]).agg(
        pl.len().alias("runs"),
        pl.col("proposed", "truth", "practice").mean(),
        (pl.col("truth").std() / pl.len().sqrt()).alias("truth_se"),
        (gain - true).mean().alias("bias"),
        ((gain - true).std() / pl.len().sqrt()).alias("se"),
        pl.col("truth").is_between("value_low", "value_high").sum().alias("value_held"),
        (pl.col("value_high") - pl.col("value_low")).mean().alias("value_width"),
        held.sum().alias("gain_held"),
        (pl.col("gain_high") - pl.col("gain_low")).mean().alias("gain_width"),
        (pl.col("gain_high") - gain).mean().alias("half"),
        above.sum().alias("above"),
        (above & sure).sum().alias("better"),
        (true <= 0).sum().alias("not_better"),
        (above & (true <= 0)).sum().alias("false"),
        ((true <= 0) & fresh).sum().alias("fresh"),
        (above & (true <= 0) & fresh).sum().alias("fresh_false"),
        (above & sure & (true <= 0)).sum().alias("certified"),
        (above & sure & ~held).sum().alias("wrong"),
        (~withheld & (pl.col("gain_high") < 0)).sum().alias("worse"),
        withheld.sum().alias("withheld"),
        pl.col("placebo").mean().alias("z"),
    )
    return of.sort(CELL[:-1]).to_dicts()


def table():
    """What the rows say, a line a cell."""
    for r in measured():
        n = r["runs"]
        text = f"{r['world']:13} {r['people']:>7,.0f} rho {r['rho']:>3g} f {r['share']:.1f} {r['policy']:6} {n:>4} runs"
        text += f"  policy {r['truth']:.4f}({r['truth_se'] or 0:.4f}), proposed {r['proposed']:.4f}"
        text += f", practice {r['practice']:.4f}"
        if r["share"]:
            text += f"  bias {r['bias']:+.4f}({r['se'] or 0:.4f})"
            for what in ("value", "gain"):
                held = r[f"{what}_held"]
                text += f"  {what} {held} (>= {least(held, n):.3f}) / {r[f'{what}_width']:.4f}"
            text += f"  above 0 {r['above']}, evaluated {r['better']} (wrong {r['wrong']}), false"
            text += f" {r['false']} of {r['not_better']}, worse {r['worse']}, withheld {r['withheld']}  z {r['z']:+.1f}"
        print(text)


def _markdown(head, lines):
    lines = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def of_campaigns(*names, **only):
    """Measured cells of campaigns."""
    wanted = {c for name in names for c in CAMPAIGNS[name][1]}
    here = [r for r in measured() if Cell(*(r[k] for k in CELL[:-1])) in wanted]
    return [r for r in here if all(r[k] == v for k, v in only.items())]


def held(_name):
    """Learnt policies in worlds that hide nothing: a line a world and size, a budget a column."""
    found, lines = of_campaigns("small", "large", "tiny", "few", "few_large"), list[list[object]]()
    for (world, people), group in itertools.groupby(found, lambda r: (r["world"], r["people"])):
        cells_, of = list(group), list[str]()
        for rho in BUDGETS:
            for r in (r for r in cells_ if r["rho"] == rho):
                of.append(f"{r['value_held']}, {r['gain_held']} of {r['runs']}; {r['half']:.3g}; {r['above']}")
        one = next(r for r in cells_ if r["rho"] == 1.0)
        bias = f"{one['bias']:+.4f} ({one['se']:.4f})"
        lines.append([world, f"{people:,.0f}", f"{one['practice']:.4g}", f"{one['truth']:.4g}", bias, *of])
    # wide intervals of small logs hold more often: they are not counted with the others
    usual = of_campaigns("small", "large")
    groups = {
        "all from 20 000 people, 30 states": usual,
        "these without depot": [r for r in usual if r["world"] in BOX],
        "few states, from 20 000": of_campaigns("few", "few_large"),
        "5 000 people": of_campaigns("tiny"),
    }
    for name, those in groups.items():
        lines.append([name, *[""] * 4, *(_together([r for r in those if r["rho"] == rho]) for rho in BUDGETS)])
    head = ["log", "people", "practice", "policy, ρ = 1", "bias of the gain, ρ = 1"]
    return _markdown([*head, *(f"ρ = {rho:g}: value, gain held; ±; better" for rho in BUDGETS)], lines)


def _together(found):
    """Held of all runs, with lower ends."""
    n = sum(r["runs"] for r in found)
    ends = (f"{x} (≥ {least(x, n):.3f})" for x in (sum(r[f"{what}_held"] for r in found) for what in ("value", "gain")))
    return f"{', '.join(ends)} of {n}"


def not_better(_name):
    """Policies that are no better than practice, and how often the page said better."""
    lines = list[list[object]]()
    for r in of_campaigns("false", "false_few", "inert", "worse"):
        if r["not_better"]:
            most = float(beta.ppf(0.95, r["false"] + 1, r["not_better"] - r["false"])) if r["not_better"] else 1.0
            gain, told = r["truth"] - r["practice"], f"{r['bias']:+.4f} ({r['se']:.4f})"
            held_ = f"{r['gain_held']} of {r['runs']}"
            said = [r["not_better"], r["false"], r["certified"], f"{most:.3f}", f"{r['fresh_false']} of {r['fresh']}"]
            lines.append([r["world"], r["policy"], f"{gain:+.4f}", told, held_, *said])
    head = [
        "log",
        "policy",
        "true gain",
        "bias",
        "gain held",
        "runs no better",
        "said better",
        "certified",
        "said better at most (95 %)",
        "on fresh seeds",
    ]
    return _markdown(head, lines)


def hides(_name):
    """States that hide what practice acts on, and logs beyond what is called measured."""
    lines = list[list[object]]()
    for r in of_campaigns("hidden", "outside"):
        true, bias = r["truth"] - r["practice"], f"{r['bias']:+.4f}"
        said = [f"{r['gain_held']} of {r['runs']}", f"{r['z']:+.1f}", r["withheld"], r["above"], r["better"]]
        lines.append([r["world"], f"{r['people']:,.0f}", f"{true:+.4f}", bias, *said])
    head = [
        "log",
        "people",
        "true gain",
        "bias",
        "gain held",
        "placebo z",
        "withheld",
        "said better",
        "of these evaluated",
    ]
    return _markdown(head, lines)


def shares(_name):
    """What holding people out costs, and what it buys."""
    lines, none = list[list[object]](), {}
    for r in of_campaigns("share"):
        at, f = (r["world"], r["people"]), r["share"]
        none |= {at: r["truth"]} if not f else {}
        worth, lost = f"{r['truth']:.4f} ({r['truth_se']:.4f})", f"{none[at] - r['truth']:.4f}" if f else ""
        told = [f"± {r['half']:.3g}", f"{r['above']} of {r['runs']}"] if f else ["", ""]
        lines.append([r["world"], f"{r['people']:,.0f}", f"{f:g}", f"{r['proposed']:.4f}", worth, lost, *told])
    head = ["log", "people", "f", "proposed", "published", "less than f = 0", "gain told to", "says better"]
    return _markdown(head, lines)


def covered():
    """The cells in which intervals held, as runs read them."""
    lines = list[dict[str, object]]()
    for r in measured():
        if r["share"] and r["world"] in BOX:
            d = WORLDS[r["world"]](int(r["people"])).card.domain
            where = {"dynamics": d.dynamics, "states": len(d.live_states), "horizon": d.horizon}
            of = {k: text_of(r[k]) for k in (*CELL[:-1], "runs", "false")} | {"people": int(r["people"])}
            told = {f"{what}_held": f"{r[f'{what}_held'] / r['runs']:.4f}" for what in ("value", "gain")}
            told |= {f"{what}_width": f"{r[f'{what}_width']:.4f}" for what in ("value", "gain")}
            lines.append(where | of | told)
    committed.write("coverage_one_step", lines, "from 9000, as results/one_step_evaluation.csv has them")


def least(held, runs):
    """Clopper and Pearson's lower end, one-sided 95 %, of the share of runs in which an interval holds."""
    return float(beta.ppf(0.05, held, runs - held + 1)) if held else 0.0


if __name__ == "__main__":
    table()
    covered()
