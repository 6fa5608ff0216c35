"""Paper 003, Figure 1: its claims, figure and tables as one study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.claims_003 import SLIGHT, Evidence, claims
from reports.figure_003 import figure_1a, figure_1b
from reports.format import number, percent
from reports.page import Section, Table, table
from reports.reproduction import Study

Rows = Sequence[Mapping[str, Any]]

_TITLES = {
    "003-figure-1a": "Paper 003, Figure 1(a): DP-VAPVI beside VAPVI and PEVI",
    "003-figure-1b": "Paper 003, Figure 1(b): DP-VAPVI at several privacy budgets",
}
_AGENTS = {"vapvi": "VAPVI", "pevi": "PEVI", "dp-vapvi": "DP-VAPVI"}


def study_003(name: str, rows: Rows) -> Study:
    """The study of ``003-figure-1a`` or ``-1b``: one grid of rows, two drawings of it."""
    e = Evidence(rows)
    return Study(
        name=name,
        title=_TITLES[name],
        claims=claims(rows),
        judged="on the paper's own setting (features, noise and shift as printed)",
        figure=(figure_1a if name == "003-figure-1a" else figure_1b)(rows),
        sections=(_losses(e), _needed(e), _privacy(e), _ties(e), _setting(e)),
        foot=f"{name}: Algorithm 2 of paper 003 (Qiao and Wang 2023) in the world of its Appendix F, {_worlds(e)}.",
    )


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
    return Section(
        "needed",
        "Episodes needed",
        words,
        tables=(table(" | ".join(["Variant", *head]), rows, numeric=" | ".join(head)),),
    )


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
    return Section(
        "privacy",
        "What the noise is worth",
        words,
        tables=(table(head, list(seen.values()), numeric="Asked ρ | True ρ"),),
    )


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
