"""Paper 004: its claims, regret curves and tables as one study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pipeline.declaration.numbers import number
from pipeline.studies.paper_004 import VARIANTS, Evidence, claims, kind_of
from pipeline.studies.study_rows import Found, Rows
from reports.figures.charts import Line, draw_curves, line_of
from reports.page import Figure, Section, Table, table
from reports.studies.study_page import PaperStudy, communication

_NAMES = {
    "zero": "zero",
    "fixed-gain": "fixed gain, model 30 % wrong",
    "certainty-equivalence": "certainty equivalence",
    "ofu-rl": "OFU-RL",
    "private-ofu-rl": "Private-OFU-RL",
    "dp-lqr": "dp-lqr (ours, offline)",
    "explore-then-commit": "explore, then commit (ours)",
}
_DRAWN = 1.0


def study_004(name: str, rows: Rows) -> PaperStudy:
    """The study of ``004-regret``."""
    e = Evidence(rows)
    return PaperStudy(
        name=name,
        title="Paper 004: private control of linear-quadratic systems",
        printed=(
            "Paper 004 prints a theorem and no experiment: sublinear regret of Private-OFU-RL under joint privacy."
        ),
        claims=claims(rows),
        judged=f"with the noise as printed, at K = {e.episodes:,}",
        figure=_figure(e),
        sections=(_regret(e), _left(e), _privacy(e), communication(rows), _setting(e)),
        foot=f"{name}: Algorithm 1 of paper 004 (Chowdhury, Zhou, Shroff 2021) in {', '.join(e.worlds)}.",
    )


def _figure(e: Evidence) -> Figure:
    eps = _DRAWN if _DRAWN in e.epsilons else e.epsilons[0]
    panels: dict[str, dict[str, Line]] = {}
    for w in e.worlds:
        rows = {
            "OFU-RL": e.need("ofu-rl", w),
            f"Private-OFU-RL, ε = {number(eps)}": e.need("private-ofu-rl", w, eps, VARIANTS[0]),
            f"dp-lqr, ε = {number(eps)}, offline": e.need("dp-lqr", w, eps),
            f"explore, then commit, ε = {number(eps)}": e.need("explore-then-commit", w, eps),
            "fixed gain": e.need("fixed-gain", w),
            "zero": e.need("zero", w),
        }
        panels[w] = {name: line_of(row) for name, row in rows.items()}
    note = (
        "Lines: mean over runs of the regret summed up to an episode, exactly. Bands: one standard deviation. "
        "Private-OFU-RL lies on the line of zero wherever it has not left it."
    )
    return draw_curves(panels, "regret-004", "Regret of LQ controllers", note=note)


def _ordered(rows: Rows) -> list[Found]:
    agents = list(_NAMES)
    return sorted(rows, key=lambda r: (agents.index(r["agent"]), _kind(r), r["epsilon"] or 0.0))


def _kind(row: Found) -> str:
    return kind_of(row) if row["agent"] == "private-ofu-rl" else ""


def _label(row: Found) -> tuple[str, str, str]:
    return _NAMES[row["agent"]], _kind(row) or "–", number(row["epsilon"])


def _by_label(worlds: Sequence[str], rows: Rows, cell: Callable[[Found], str]) -> Iterator[tuple[str, ...]]:
    """A row a contender, a column a world."""
    for label in dict.fromkeys(map(_label, _ordered(rows))):
        mine = {str(r["world"]): r for r in rows if _label(r) == label}
        yield (*label, *(cell(mine[w]) if w in mine else "–" for w in worlds))


def _regret(e: Evidence) -> Section:
    now = [r for r in e.rows if r["episodes"] == e.episodes]
    head = " | ".join(["Agent", "Noise", "ε", *e.worlds])
    numeric = " | ".join(["ε", *e.worlds])
    words = (
        "Cost above the optimal controller's, summed over the episodes: exact, by the Riccati recursion of the gains "
        "played. dp-lqr's logs were played by others and cost it nothing; explore-then-commit pays for its own.",
    )
    zero = {w: float(e.need("zero", w)["mean"]) for w in e.worlds}
    measures: dict[str, Callable[[Found], str]] = {
        "mean": lambda r: number(float(r["mean"])),
        "mean over the zero controller's": lambda r: number(float(r["mean"]) / zero[r["world"]], 3),
        # what rounding leaves of equal runs is no spread
        "standard deviation over runs": lambda r: number(float(r["std"]) if r["std"] > 1e-9 * r["mean"] else 0.0, 3),
    }
    tables = (
        table(head, list(_by_label(e.worlds, now, cell)), f"{said}, K = {e.episodes:,}", numeric=numeric, grouped=True)
        for said, cell in measures.items()
    )
    return Section("regret", "Regret", words, tables=tuple(tables))


def _left(e: Evidence) -> Section:
    words = (
        "First episode that was played with a gain other than zero, in the first run. While the gain is zero the data "
        "say nothing about B, so nothing changes until a model with A = 0 can be excluded: it is the most optimistic "
        "one.",
    )
    rows = [r for r in e.rows if r["agent"] in ("ofu-rl", "private-ofu-rl")]
    tables: list[Table] = []
    for K in sorted({int(r["episodes"]) for r in rows}):  # noqa: N806
        now = [r for r in rows if r["episodes"] == K]
        worlds = [w for w in e.worlds if any(r["world"] == w for r in now)]
        zero = {w: e.row("zero", w, episodes=K) for w in worlds}
        found = list(_by_label(worlds, now, lambda r, zero=zero: _left_cell(r, zero[r["world"]])))
        head = " | ".join(["Agent", "Noise", "ε", *worlds])
        said = f"K = {K:,}: first episode (mean regret over zero's)"
        tables.append(table(head, found, said, numeric="ε", grouped=True))
    return Section("left", "When it leaves the zero gain", words, tables=tuple(tables))


def _left_cell(row: Found, zero: Found | None) -> str:
    left = row["facts"].get("left_zero_at")
    when = "never" if left is None else f"{left:,}"
    return when if zero is None else f"{when} ({number(float(row['mean']) / float(zero['mean']), 3)})"


def _privacy(e: Evidence) -> Section:
    words = (
        "One user is one episode, replaced by any other. ε of the noise drawn: both sums together, largest joint move "
        "after x, u and x' were cut to their balls, by the conversion valid for every ρ, and by the one for Gaussians. "
        "The printed sensitivities are those of one episode, not of a difference of two; the printed noise is enough "
        "all the same, because its conversion to ε is loose.",
    )
    private = [r for r in e.rows if r["epsilon"] is not None and r["episodes"] == e.episodes]
    rows = [
        (
            *_label(r),
            str(r["world"]),
            number(r["true_rho"], toward="up"),
            number(r["true_epsilon"], toward="up"),
            number(r["facts"].get("true_epsilon_gdp"), toward="up"),
        )
        for r in _ordered(private)
        if r["world"] in e.worlds[:1] + e.worlds[3:4]
    ]
    head = "Agent | Noise | Asked ε | World | ρ | ε | ε, Gaussian"
    numeric = "Asked ε | ρ | ε | ε, Gaussian"
    return Section("privacy", "What the noise is worth", words, tables=(table(head, rows, numeric=numeric),))


def _setting(e: Evidence) -> Section:
    now = [r for r in e.rows if r["episodes"] == e.episodes]
    seen = {(_NAMES[r["agent"]], _kind(r) or "–", str(r["constants"] or "–")): None for r in _ordered(now)}
    runs = sorted({int(r["runs"]) for r in now})
    words = (
        f"{' or '.join(map(str, runs))} runs a row (1 where nothing is random). The systems' matrices are normal draws "
        "scaled to the norms of Assumption 1, plant noise is uniform on a sphere (double integrator: truncated "
        "normal), Q = I, R = r I with the smallest r of a list at which optimal gains stay within γ.",
        "Not printed by the paper and chosen here: the noise covariance (declared, exact), α = 0.05, λ = 1, the lazy "
        "schedule, the search (projected gradient from several starts: no proof of a global minimum).",
    )
    return Section("setting", "The setting", words, tables=(table("Agent | Noise | Constants", list(seen)),))
