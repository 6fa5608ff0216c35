"""Papers 000 and 001, linear mixtures under joint and under local privacy: sentences, figures and tables as studies."""

from __future__ import annotations

from pipeline.declaration.numbers import number
from pipeline.studies import paper_000, paper_001
from pipeline.studies.paper_000 import PO, VARIANTS, VI
from pipeline.studies.paper_001 import SCALES, tuned
from pipeline.studies.study_rows import Rows, end_loss, learns, only, spread
from reports.figures.charts import Line, draw_curves, line_of
from reports.page import Figure, Section, table
from reports.studies.study_page import PaperStudy, agents, cells, totals

_WORDS_000 = (
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
    e = paper_000.Evidence(rows)
    return PaperStudy(
        name=name,
        title="Paper 000: Private-LinOpt-VI and Private-LinOpt-PO",
        printed=(
            "Paper 000 prints theorems and no experiment: sublinear regret of Private-LinOpt-VI and -PO under joint "
            "privacy, falling in ε, free of the number of states."
        ),
        claims=paper_000.claims(rows),
        judged="on the tight calibration with known rewards",
        figure=_figure_000(e),
        sections=(_side_by_side(e), totals(rows), *agents(rows, _WORDS_000)),
        foot=f"{name}: Algorithms 1 to 3 of paper 000 (Zhou 2022).",
    )


def _figure_000(e: paper_000.Evidence) -> Figure:
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


def _side_by_side(e: paper_000.Evidence) -> Section:
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


_DRAWN = {"printed": (1.0, 10.0), "tight": (1.0, 10.0)}


def study_001(name: str, rows: Rows) -> PaperStudy:
    """The study of ``001-figure-2``."""
    e = paper_001.Evidence(rows)
    return PaperStudy(
        name=name,
        title="Paper 001, Figure 2: LDP-UCRL-VTR in RiverSwim",
        printed=(
            "Figure 2 of paper 001 shows the regret of LDP-UCRL-VTR in two RiverSwim worlds over 10⁴ episodes: "
            "sublinear curves, lower as ε grows, above UCRL-VTR's."
        ),
        claims=paper_001.claims(rows),
        judged="on the printed noise at δ = 0.1",
        figure=_figure_001(e),
        sections=(totals(rows), _patience(e), _bonus(), *agents(rows, _WORDS_001)),
        foot=f"{name}: section 6 of paper 001 (Liao, He and Gu 2021), K = {e.K:,}.",
    )


_WORDS_001 = (
    "The paper prints neither S nor its budgets nor c: S, ε and c are chosen here; c by a separate command on seeds "
    "that no row uses. Its δ = 0.1 is kept for the printed noise; the tight noise is asked at δ = 1e-5.",
    "What follows the noise is ours in every row (floor, prior, replanning, no regression at the last step): it costs "
    "no privacy, and gives the printed noise its best chance.",
    "UCRL-VTR's ln(1/K) is negative as printed; read as ln(1/α). Its c multiplies the whole bonus; the row "
    "'paper-experiment' scales the first term alone, as printed.",
)


def _figure_001(e: paper_001.Evidence) -> Figure:
    panels: dict[str, dict[str, Line]] = {}
    for world in e.rivers:
        lines = {"UCRL-VTR, no privacy": line_of(e.plain(world))}
        for scales in SCALES:
            for r in e.private(scales, world):
                if r["epsilon"] in _DRAWN[scales]:
                    lines[f"LDP {scales}, ε = {number(r['epsilon'])}"] = line_of(r)
        for control in ("uniform", "no-data", "always-right"):
            lines[control] = line_of(only(e.rows, agent=control, world=world))
        panels[world] = lines
    return draw_curves(panels, "figure-2", "LDP-UCRL-VTR beside UCRL-VTR and what learns nothing")


def _patience(e: paper_001.Evidence) -> Section:
    words = (
        "Learns: an episode at the end costs at most half of what it costs the better of uniform choice and the agent "
        "without data.",
    )
    private = [r for r in e.every if r["agent"] == "ldp-ucrl-vtr" and "dense" not in r["variant"]]
    private.sort(key=lambda r: (r["world"], r["calibration"], r["epsilon"], r["episodes"]))
    asked = cells("World | Scales | ε | Episodes", private)
    rows = [
        (*first, spread(r), number(end_loss(r), 2), "yes" if learns(e.every, r) else "no")
        for first, r in zip(asked, private, strict=True)
    ]
    head = "World | Scales | ε | Episodes | Regret | At the end | Learns"
    found = table(head, rows, numeric="ε | Episodes | At the end", grouped=True)
    return Section("patience", "From which ε or K it learns", words, tables=(found,))


def _bonus() -> Section:
    words = (
        "Mean regret by c on tuning seeds, the tight noise at δ = 1e-5; the committed table of "
        "`python -P -m tests.campaigns.tune_online`. The paper picks the best c of a grid on the seeds it reports.",
    )
    rows = [
        (agent, r["world"], r["epsilon"] or "–", r["value"], f"{r['mean']} ± {r['std']}", r["worst"], r["taken"])
        for agent in ("ucrl-vtr", "ldp-ucrl-vtr")
        for r in tuned(agent, "bonus")
    ]
    found = table("Agent | World | ε | c | Regret | Worst run | Taken", rows, numeric="ε | c | Worst run", grouped=True)
    return Section("bonus", "The bonus", words, tables=(found,))
