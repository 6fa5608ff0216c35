"""What runs of one-step evaluations say: ``python -P -m tests.campaigns.one_step_coverage`` counts them by cell.

It writes the counts, ``results/one_step_cells.csv``, and what coverage a run may state,
``pipeline/evaluation/coverage_one_step.csv``, and has the tables of the pages.  A cell is a world with its log, people,
budget, share of them who evaluate, and whose policy.
"""

import itertools
from functools import lru_cache

import polars as pl
from scipy.stats import beta

from pipeline.evaluation.coverage import ONE_STEP, code_of
from pipeline.facts.evaluation import LEANS
from pipeline.facts.verdict import PLACEBO, stricter
from tests.campaigns import rows as committed
from tests.campaigns.one_step_evaluation import CAMPAIGNS, CELL, FEW, FIELDS, OPEN, Cell, made, text_of
from tests.campaigns.one_step_worlds import WORLDS

CELLS = "one_step_cells"
# the first evaluation of a lineage is at this level
FIRST_LOOK = 0.975
# with a thousand states and no numbers of them the gain comes out .01 too large: coverage ends below.  Where all stay,
# as in the shop, no run is called measured
BOX = (*(world for world in OPEN if world not in ("depot", "retention")), *FEW)
BOX += tuple(world for world in WORLDS if world.startswith(("contexts", "leading")))
# of one step an episode
SINGLE = {
    "contexts": "what was learnt",
    "contexts_apart": "the same, on a card of steps with tables of their own",
    "contexts_level": "nearest to practice among what is no better",
    "contexts_inert": "what was learnt where all actions do the same",
}
# of several steps, in which actions decide who comes to which states
LEADS = {
    "leading": "what was learnt, where most people leave before the last step",
    "staying": "the same, where most people stay to it",
}
# of 21 to 100 steps, which is beyond what is called measured: counted by whose policy, not by world
LONG = "one_step_lasting"
LASTING = {
    ("lasting", "learnt"): "what was learnt",
    ("lasting", "level"): "nearest to practice among what is no better",
    ("lasting_inert", "learnt"): "what was learnt where all actions do the same",
}


@lru_cache(1)
def measured():
    """The counts that are kept, a row a cell."""
    return _numbers(committed.read(CELLS))


def _numbers(found):
    """Rows with numbers for what is no name."""
    rows = pl.DataFrame(found)
    numbers = [c for c in rows.columns if c not in ("world", "policy")]
    return rows.with_columns(pl.col(numbers).replace("", None).cast(pl.Float64)).to_dicts()


def counted():
    """What the runs of this very code say, a row a cell."""
    rows = pl.DataFrame(made())
    numbers = ("people", "rho", "share", *FIELDS[len(CELL) :])
    rows = rows.with_columns(pl.col(numbers).cast(pl.Float64)).fill_nan(None)
    true, gain = pl.col("truth") - pl.col("practice"), pl.col("gain")
    held = true.is_between("gain_low", "gain_high")
    # of one step there is no placebo
    withheld = (pl.col("placebo").abs() > PLACEBO).fill_null(value=False)
    # beyond what a hidden trait may make, and not to the side to which the placebo leans: else it is on a condition
    sure = ((pl.col("hidden") < pl.col("gain_low")) & (pl.col("placebo") * gain.sign() <= LEANS)).fill_null(value=False)
    # as the page decides at the first look
    above = ~withheld & (gain > (gain - pl.col("gain_low")) * stricter(FIRST_LOOK))
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
        (above & sure & (true <= 0)).sum().alias("certified"),
        (above & sure & ~held).sum().alias("wrong"),
        (~withheld & (pl.col("gain_high") < 0)).sum().alias("worse"),
        withheld.sum().alias("withheld"),
        pl.col("placebo").mean().alias("z"),
    )
    cells = of.sort(CELL[:-1]).to_dicts()
    return [{k: "" if v is None else text_of(v) for k, v in cell.items()} for cell in cells]


def of_campaigns(*names, **only):
    """Measured cells of campaigns."""
    wanted = {c for name in names for c in CAMPAIGNS[name][1]}
    here = [r for r in measured() if Cell(*(r[k] for k in CELL[:-1])) in wanted]
    return [r for r in here if all(r[k] == v for k, v in only.items())]


def single(_name):
    return _by_policy({policy: of_campaigns(name) for name, policy in SINGLE.items()})


def leads(_name):
    """Several steps an episode, by how many people stay to the last one."""
    return _by_policy({policy: of_campaigns(name) for name, policy in LEADS.items()})


def lasting(name):
    """Many steps an episode, a kind of policy a line."""
    return _by_policy({r["policy"]: [r] for r in _numbers(committed.read(name))})


def _by_policy(found):
    lines = list[list[object]]()
    for policy, of in found.items():
        counts = (f"{sum(r[k] for r in of):.0f}" for k in ("above", "not_better", "false"))
        lines.append([policy, f"{of[0].get('worlds') or len({r['world'] for r in of}):.0f}", _ends(of), *counts])
    head = ["policy", "worlds", "value, gain held", "better", "no better in truth", "of these said better"]
    return committed.markdown(head, lines)


def _by_kind(cells):
    """Cells of :data:`LASTING` together."""
    stem = pl.col("world").str.strip_chars_end("0123456789")
    counts = pl.col("runs", "value_held", "gain_held", "above", "not_better", "false").cast(pl.Float64).sum().cast(int)
    of = pl.DataFrame(cells).group_by(stem, "policy").agg(pl.col("world").n_unique().alias("worlds"), counts)
    told = {(r.pop("world"), r.pop("policy")): r for r in of.to_dicts()}
    return [{"policy": policy, **told[kind]} for kind, policy in LASTING.items()]


def _ends(found):
    """Held of all runs, with lower ends."""
    n = sum(r["runs"] for r in found)
    ends = (f"{x:.0f} (≥ {least(x, n):.3f})" for x in (sum(r[f"{w}_held"] for r in found) for w in ("value", "gain")))
    return f"{', '.join(ends)} of {n:.0f}"


def not_better(_name):
    """Policies that are no better than practice, and how often the page said better; few runs are counted together."""
    lines, few = list[list[object]](), list[dict[str, float]]()
    for r in of_campaigns("false", "false_few", "inert", "worse", "false_1", "inert_1", "worse_1"):
        if r["not_better"] < 100:
            few.append(r)
            continue
        gain, told = r["truth"] - r["practice"], f"{r['bias']:+.4f} ({r['se']:.4f})"
        lines.append([r["world"], r["policy"], f"{gain:+.4f}", told, *_false(r)])
    counts = {k: sum(r[k] for r in few) for k in ("not_better", "false", "certified")}
    lines.append(["all others", "level, worst, random", "", "", *_false(counts)])
    head = ["log", "policy", "true gain", "bias", "runs no better", "said better", "without a condition"]
    return committed.markdown([*head, "at most (95 %)"], lines)


def _false(r):
    """Runs that are no better, how many say better, of these without a condition, and the upper end of their share."""
    most = float(beta.ppf(0.95, r["false"] + 1, r["not_better"] - r["false"]))
    return (*(f"{r[k]:.0f}" for k in ("not_better", "false", "certified")), f"{most:.3f}")


def hides(_name):
    """States that hide what practice acts on, and logs beyond what is called measured."""
    lines = list[list[object]]()
    found = sorted(of_campaigns("hidden", "outside"), key=lambda r: r["world"])
    for world, group in itertools.groupby(found, lambda r: r["world"]):
        of = list(group)
        runs, held, withheld, above = (sum(r[k] for r in of) for k in ("runs", "gain_held", "withheld", "above"))
        true = sum((r["truth"] - r["practice"]) * r["runs"] for r in of) / runs
        bias = sum(r["bias"] * r["runs"] for r in of) / runs
        counts = (f"{held:.0f}/{runs:.0f}", f"{withheld:.0f}", f"{above:.0f}")
        lines.append([world, f"{true:+.4f}", f"{bias:+.4f}", *counts])
    return committed.markdown(["log", "true gain", "bias", "gain held", "withheld", "better"], lines)


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
    committed.write("coverage_one_step", lines, "from 9000")


def least(held, runs):
    """Clopper and Pearson's lower end, one-sided 95 %, of the share of runs in which an interval holds."""
    return float(beta.ppf(0.05, held, runs - held + 1)) if held else 0.0


if __name__ == "__main__":
    # runs that build/ has no more stand beside new ones as long as the code is the one that they measured
    same = {row["code"] for row in committed.read("coverage_one_step")} == {code_of(ONE_STEP)}
    fresh = counted()
    if long := [cell for cell in fresh if cell["world"].startswith("lasting")]:
        committed.write(LONG, _by_kind(long))
    committed.write(CELLS, [cell for cell in fresh if cell not in long], keys=CELL[:-1] if same else ())
    covered()
