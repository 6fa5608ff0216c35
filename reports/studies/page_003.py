"""Paper 003, Figure 1: its claims, figure and tables as one study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipeline.declaration.numbers import number
from pipeline.simulation.trial import Row
from pipeline.studies.paper_003 import SLIGHT, Curve, Evidence, Key, claims
from reports.figures.charts import Line, draw_curves
from reports.page import Figure, Section, Table, percent, table
from reports.studies.study_page import PaperStudy, communication

_TITLES = {
    "003-figure-1a": "Paper 003, Figure 1(a): DP-VAPVI beside VAPVI and PEVI",
    "003-figure-1b": "Paper 003, Figure 1(b): DP-VAPVI at several privacy budgets",
}
_PRINTED = {
    "003-figure-1a": (
        "Figure 1(a) of paper 003 shows the loss of DP-VAPVI at several ρ, VAPVI and PEVI against K up to 1 000 on "
        "its synthetic linear world: private curves a little above VAPVI's, PEVI above all of them."
    ),
    "003-figure-1b": (
        "Figure 1(b) of paper 003 shows DP-VAPVI's loss against K for several ρ: the larger ρ, the lower the curve, "
        "all falling towards VAPVI's."
    ),
}
_AGENTS = {"vapvi": "VAPVI", "pevi": "PEVI", "dp-vapvi": "DP-VAPVI"}
_CONTROLS: dict[str, Key] = {
    "always action 0": ("always-first", "control", None),
    "behaviour": ("behaviour", "control", None),
    "uniform": ("uniform", "control", None),
}
_PANELS = {
    "literal": "As printed (spends {} × ρ)",
    "normalised": "Features over √7, printed noise ({} × ρ)",
    "centred": "Our calibration, centred ({} × ρ)",
    "one-shot": "Our calibration, one release ({} × ρ)",
}
_NOTE = (
    "Lines: mean over runs and worlds. Bands: one standard deviation up and down, differences between worlds included."
)


def study_003(name: str, rows: Sequence[Row]) -> PaperStudy:
    """The study of ``003-figure-1a`` or ``-1b``: one grid of rows, two drawings of it."""
    e = Evidence(rows)
    return PaperStudy(
        name=name,
        title=_TITLES[name],
        printed=_PRINTED[name],
        claims=claims(rows),
        judged="on the paper's own setting (features, noise and shift as printed)",
        figure=(_figure_1a if name == "003-figure-1a" else _figure_1b)(e),
        sections=(_losses(e), _needed(e), _privacy(e), communication(rows), _ties(e), _setting(e)),
        foot=f"{name}: Algorithm 2 of paper 003 (Qiao and Wang 2023) in the world of its Appendix F, {_worlds(e)}.",
    )


def _figure_1a(e: Evidence) -> Figure:
    """Algorithms side by side, DP-VAPVI at the smallest budget of the grid."""
    rho = e.budgets[0]
    at = f"ρ = {number(rho)}"
    panels = {
        f"As printed: {at} asked, {_true(e, 'literal', rho)} spent": {
            "VAPVI": ("vapvi", "literal", None),
            "PEVI, β = C √d": ("pevi", "literal, matched β", None),
            "PEVI, β = c d H √log": ("pevi", "literal, theory β", None),
            "DP-VAPVI, printed noise": ("dp-vapvi", "literal", rho),
            **_CONTROLS,
        },
        f"Features over √7, {at} asked and held": {
            "VAPVI": ("vapvi", "normalised", None),
            "PEVI, β = C √d": ("pevi", "normalised, matched β", None),
            "PEVI, β = c d H √log": ("pevi", "normalised, theory β", None),
            "DP-VAPVI, printed noise": ("dp-vapvi", "normalised", rho),
            "DP-VAPVI, centred (ours)": ("dp-vapvi", "centred", rho),
            "DP-VAPVI, one-shot (ours)": ("dp-vapvi", "one-shot", rho),
            **_CONTROLS,
        },
    }
    return _drawn(e, panels, "figure-1a", f"PEVI, VAPVI and DP-VAPVI at {at}")


def _figure_1b(e: Evidence) -> Figure:
    """DP-VAPVI at every budget of the grid, a panel a variant, VAPVI beside it."""
    panels: dict[str, dict[str, Key]] = {}
    for variant in e.variants:
        features = "literal" if variant == "literal" else "normalised"
        lines: dict[str, Key] = {f"ρ = {number(rho)} asked": ("dp-vapvi", variant, rho) for rho in e.budgets}
        lines |= {"no noise (VAPVI)": ("vapvi", features, None), "uniform": _CONTROLS["uniform"]}
        panels[_PANELS[variant].format(_true(e, variant, e.budgets[0], ratio=True))] = lines
    return _drawn(e, panels, "figure-1b", "DP-VAPVI at several budgets")


def _true(e: Evidence, variant: str, rho: float, *, ratio: bool = False) -> str:
    rows = (r for r in e.rows if (r["agent"], r["variant"], r["rho"]) == ("dp-vapvi", variant, rho))
    true = next(found for r in rows if (found := r["true_rho"]) is not None)
    return number(true / rho if ratio else true, 3, "up")


def _drawn(e: Evidence, panels: Mapping[str, Mapping[str, Key]], key: str, title: str) -> Figure:
    lines = {panel: {name: _line(e.curves[at]) for name, at in named.items()} for panel, named in panels.items()}
    for panel, named in panels.items():
        # a control has no spread but that between the worlds
        lines[panel] |= {n: replace(lines[panel][n], control=True) for n, at in named.items() if at[1] == "control"}
    words = "v* − v of the policy"
    return draw_curves(
        lines, key, title, log_y=False, x_title="logged episodes K", y_title=words, note=_NOTE, x_format=",", ends=True
    )


def _line(curve: Curve) -> Line:
    points = [*curve.values()]
    low, high = [max(p.mean - p.sd, 0.0) for p in points], [p.mean + p.sd for p in points]
    return Line([*curve], [p.mean for p in points], [p.sd for p in points], low=low, high=high)


def _losses(e: Evidence) -> Section:
    words = ("v* less the policy's value, evaluated exactly; over all runs and worlds.",)
    means = [(*_names(*key), *(f"{p.mean:.2f}" for p in curve.values())) for key, curve in e.curves.items()]
    spreads = [(*_names(*key), *(f"{p.sd:.2f}" for p in curve.values())) for key, curve in e.curves.items()]
    tables = (
        _by_episodes(e, means, "Mean"),
        _by_episodes(e, spreads, "Standard deviation, differences of worlds included"),
    )
    return Section("losses", "Loss against the best policy", words, tables=tables)


def _ties(e: Evidence) -> Section:
    words = (
        "Share of (step, state) where clipping left several best actions. Such ties go to the unclipped value, then to "
        "chance: left to the first index they would copy action 0, the most logged one.",
    )
    learners = [(key, curve) for key, curve in e.curves.items() if key[0] in _AGENTS]
    rows = [(*_names(*key), *(percent(p.ties) for p in curve.values())) for key, curve in learners]
    return Section("ties", "Ties", words, tables=(_by_episodes(e, rows),))


def _needed(e: Evidence) -> Section:
    words = (
        f"Fewest episodes of the grid from which DP-VAPVI stays within {percent(SLIGHT)} of uniform choice's loss of "
        "VAPVI on the same features.",
    )
    rows = [(v, *(_count(e.slight_from(v, rho)) for rho in e.budgets)) for v in e.variants]
    head = [f"asked ρ = {number(rho)}" for rho in e.budgets]
    found = table(" | ".join(["Variant", *head]), rows, numeric=" | ".join(head))
    return Section("needed", "Episodes needed", words, tables=(found,))


def _count(episodes: int | None) -> str:
    return "more than tried" if episodes is None else f"{episodes:,}"


def _privacy(e: Evidence) -> Section:
    words = (
        "Replace-one zCDP of the noise drawn, recomputed from features, clips and printed scales, jointly over all "
        "sums of a step; ε by the conversion valid for every ρ.",
    )
    seen = {
        (r["variant"], r["rho"]): (
            str(r["variant"]),
            number(r["rho"]),
            number(r["true_rho"], toward="up"),
            f"{number(r['true_epsilon'], toward='up')} at δ = {r['delta']:g}",
            str(r["calibration"]),
        )
        for r in e.rows
        if r["agent"] == "dp-vapvi"
    }
    head = "Variant | Asked ρ | True ρ | True ε | Scales"
    found = table(head, list(seen.values()), numeric="Asked ρ | True ρ")
    return Section("privacy", "What the noise is worth", words, tables=(found,))


def _setting(e: Evidence) -> Section:
    constants = {(_AGENTS[r["agent"]], str(r["variant"])): str(r["constants"]) for r in e.rows if r["agent"] in _AGENTS}
    runs = sorted({int(r["runs"]) for r in e.rows})
    words = (
        f"{' or '.join(map(str, runs))} runs in each world ({_worlds(e)}); each run draws a fresh log, the same for "
        "all agents, and fresh noise. Sufficient counts are drawn by multinomials, the exact law. Data is used "
        "twice (no split), as in the paper.",
        "Not printed by the paper and chosen here: C, D, λ, c1 = c2 = 1 and failure 0.1 in E, β, ρ, the order of the "
        "bits (most significant first), deterministic rewards. Instances 0 and 1 served to choose these constants.",
        f"β below is that of K = {e.episodes[-1]:,}: it grows with log K.",
    )
    rows = [(*names, said) for names, said in constants.items()]
    return Section("setting", "The setting", words, tables=(table("Agent | Variant | Constants", rows),))


def _worlds(e: Evidence) -> str:
    return ", ".join(dict.fromkeys(str(r["world"]) for r in e.rows))


def _names(agent: str, variant: str, rho: float | None) -> tuple[str, str, str]:
    return _AGENTS.get(agent, agent), variant, "–" if rho is None else number(rho)


def _by_episodes(e: Evidence, rows: list[tuple[str, ...]], caption: str = "") -> Table:
    numbers = [f"{K:,}" for K in e.episodes]
    head = " | ".join(["Agent", "Variant", "ρ", *numbers])
    said = f"{caption}, by K" if caption else "By K"
    return table(head, rows, said, numeric=" | ".join(["ρ", *numbers]), grouped=True)
