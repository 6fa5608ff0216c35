"""Paper 000: Private-LinOpt-VI and -PO, printed against tight calibration, known and learnt rewards, as one study."""

from __future__ import annotations

from pipeline.declaration.numbers import number
from pipeline.studies.paper_000 import PO, VARIANTS, VI, Evidence, claims
from pipeline.studies.study_rows import Rows, only, spread
from reports.page import Figure, Section, table
from reports.studies.curves import Line, draw_curves, line_of
from reports.studies.study_page import PaperStudy, agents, totals

_WORDS = (
    "The paper prints no experiment; the worlds are those of paper 001 and mixtures of known kernels.",
    "Tight: one budget over all counters, steps and tree levels; four fifths go to the transitions where rewards are "
    "learnt, and of each part a fifth to the Gram matrices. Leaves of the tree are batches of one policy; rows are "
    "unit. "
    "Printed: the paper's scales, rows, and plain tree over episodes.",
    "What follows the noise is ours in every row (floor, prior, replanning): it costs no privacy, and gives the "
    "printed noise its best chance. Bonus c and the step of mirror descent are tuned on seeds that no row uses.",
)


def study_000(name: str, rows: Rows) -> PaperStudy:
    """The study of ``000-joint``."""
    e = Evidence(rows)
    return PaperStudy(
        name=name,
        title="Paper 000: Private-LinOpt-VI and Private-LinOpt-PO",
        printed=(
            "Paper 000 prints theorems and no experiment: sublinear regret of Private-LinOpt-VI and -PO under joint "
            "privacy, falling in ε, free of the number of states."
        ),
        claims=claims(rows),
        judged="on the tight calibration with known rewards",
        figure=_figure(e),
        sections=(_side_by_side(e), totals(rows), *agents(rows, _WORDS)),
        foot=f"{name}: Algorithms 1 to 3 of paper 000 (Zhou 2022).",
    )


def _figure(e: Evidence) -> Figure:
    panels: dict[str, dict[str, Line]] = {}
    for rewards in ("known", "learnt"):
        lines: dict[str, Line] = {}
        for agent, short in ((VI, "VI"), (PO, "PO")):
            for scales in ("tight", "paper"):
                for r in e.private(agent, f"{scales}, rewards {rewards}"):
                    if scales == "tight" or r["epsilon"] == 10:
                        lines[f"{short} {scales}, ε = {number(r['epsilon'])}"] = line_of(r)
        for control in ("ucrl-vtr", "linopt-po", "uniform", "no-data"):
            lines[control] = line_of(only(e.rows, agent=control, world=e.river))
        panels[f"{e.river}, rewards {rewards}"] = lines
    return draw_curves(panels, "joint", "Private-LinOpt-VI and -PO beside their baselines")


def _side_by_side(e: Evidence) -> Section:
    words = ("Mean ± standard deviation of the total regret.",)
    worlds = dict.fromkeys(str(r["world"]) for r in e.rows)
    rows = [
        (world, number(a["epsilon"]), variant, spread(a), spread(b))
        for world in worlds
        for variant in VARIANTS
        for a, b in zip(e.private(VI, variant, world), e.private(PO, variant, world), strict=True)
    ]
    found = table("World | ε | Variant | VI | PO", rows, numeric="ε", grouped=True)
    return Section("side", "Value iteration beside policy optimization", words, tables=(found,))
