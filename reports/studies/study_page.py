"""Pages of studies (claims, figure, numbers) and of audits (lower bounds by attacks)."""

# pyright: reportUnknownMemberType=false
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pipeline.audits.attack import AttackResult
from pipeline.declaration.numbers import number
from pipeline.online.cells import Rows, StudyRow, end_loss, growth, median
from pipeline.online.study import Judged, Study, band, bar_of, first_meeting, label_of, needed_table, pooled, select
from pipeline.online.trial import TrialRow
from pipeline.privacy.budget import largest_delta
from reports.figures.charts import PALETTE, Line, draw_chart, draw_curves
from reports.page import Chapter, Figure, Section, between, table, templates

BANNER = "simulation, not private: the noise is seeded and the people are invented."


@dataclass(frozen=True)
class StudyPage:
    """A page as words and tables."""

    kind: str
    name: str
    title: str
    answer: str
    parts: Sequence[Chapter]
    foot: str
    banner: str = BANNER

    @property
    def html(self) -> str:
        """One file that loads nothing."""
        return templates().get_template("study.html.j2").render(opening=self, parts=self.parts)

    @property
    def markdown(self) -> str:
        """The same words and tables as Markdown."""
        return templates().get_template("study.md.j2").render(opening=self, parts=self.parts)


def study_page(study: Study, rows: Rows, claims: Sequence[Judged]) -> StudyPage:
    """Claims, figure and episodes needed first, the numbers after."""
    true_claims = [c["claim"] for c in claims if c["holds"]]
    answer = f"Of {len(claims)} claims checked by a stated rule, {number(len(true_claims))} hold"
    answer += f": {'; '.join(true_claims)}." if true_claims else "."
    drawn = draw_study(study, rows)
    words = "Each verdict is computed from the rows."
    if study.variants:
        words += f" Judged on the first variant, {next(iter(study.variants))}; the same rules on the others below."
    first = [claims_section(claims, words), Section("figure", "The figure", (drawn.note,), drawn)]
    bar = bar_of(rows)
    if bar is not None:
        least = min((r["episodes"] for r in rows if r["variant"] != "control"), default=0)
        first.append(_needed(needed_table(rows, bar), bar, least))
    numbers = _totals(rows), _privacy(rows), communication(rows), _ties(rows), _setting(study, rows)
    parts = [Chapter("What holds", tuple(first)), Chapter("The numbers", numbers)]
    name, title = study.study.name, study.study.title or study.study.name
    foot = f"{name}: measured on seeds that tuned nothing, exactly, by planning in the known world."
    return StudyPage("study", name, title, answer, parts, foot)


def overview(results: Sequence[tuple[Study, Sequence[Judged]]]) -> StudyPage:
    """The verdicts of several studies."""
    claims = [c for _, each in results for c in each]
    parts = [Chapter(study.study.title, (claims_section(each, "", study.study.name),)) for study, each in results]
    answer = f"Of {len(claims)} claims checked by a stated rule, {sum(c['holds'] for c in claims)} hold."
    foot = "Each study has a page of its own beside this one; docs/errata.md says where claims and truth differ."
    return StudyPage("study", "all", "Five papers, measured anew", answer, parts, foot)


def draw_study(study: Study, rows: Rows) -> Figure:
    """A panel a world or a budget, a line an agent: against episodes, or as its regret grew."""
    drawn, lost = study.figure, study.study.metric == "suboptimality"
    wanted = drawn.of or [{}]
    shown = [r for r in (pooled(rows) if study.study.pool_worlds else rows) if any(select([r], w) for w in wanted)]
    panels: dict[str, dict[str, Line]] = {}
    letter = {"epsilon": "ε = ", "rho": "ρ = ", "world": ""}[drawn.panel]
    ends = [min(r["episodes"] for r in shown), max(r["episodes"] for r in shown)]
    for key in dict.fromkeys(k for r in shown if (k := r[drawn.panel]) is not None):
        panel_rows = [r for r in shown if r[drawn.panel] in (key, None)]
        panel_rows.sort(key=lambda r: (r["variant"] == "control", r["agent"], r["variant"], r["epsilon"] or 0))
        lines: dict[str, list[StudyRow]] = {}
        for name, row in zip(
            label_of(panel_rows, (drawn.panel, *(["episodes"] if drawn.x != "curve" else []))), panel_rows, strict=True
        ):
            lines.setdefault(name, []).append(row)
        title = key if isinstance(key, str) else f"{letter}{number(key)}"
        panels[title] = {n: _line(drawn.x, sorted(r, key=lambda r: r["episodes"]), ends) for n, r in lines.items()}
    what = "v* − v of the policy handed over" if lost else "regret"
    spread = "one standard deviation"
    if lost and rows[0]["totals"]:
        spread = "nine runs in ten lie above the lower edge, nine in ten below the upper"
    note = f"Lines: mean over runs of {what}, exactly. Bands: {spread}. Grey: controls that learn nothing."
    # readers who hear the page need more than a bare name
    title = study.study.title or f"{study.study.name}: {what} by episodes"
    return draw_curves(panels, study.study.name, title, log_y=drawn.log_y, y_title=what, note=note)


def _line(x: str, rows: Rows, ends: Sequence[int]) -> Line:
    control, row = rows[0]["variant"] == "control", rows[-1]
    if x == "curve":
        return Line(row["marks"], row["curve_mean"], row["curve_std"], control)
    mean, std = [r["mean"] for r in rows], [r["std"] for r in rows]
    if len(rows) == 1:
        return Line(ends, mean * 2, std * 2, control=True)
    episodes = [r["episodes"] for r in rows]
    if row["metric"] == "suboptimality" and row["totals"]:
        return Line(episodes, mean, std, control, *([band(r)[edge] for r in rows] for edge in ("low", "high")))
    return Line(episodes, mean, std, control)


def _needed(needed: Sequence[dict[str, Any]], bar: float, least: int) -> Section:
    words = (
        f"The first n on the grid from which on the mean suboptimality stays at or under {number(bar)}, 10 % of "
        "uniform choice's; in brackets the upper edge of the band, nine runs in ten. After “>” stands the end of the "
        "range: at this ε the agent does not learn in it; “≤” stands before its beginning: the bar was met "
        "where the grid begins. The grid's steps are the resolution.",
    )
    budgets = list(dict.fromkeys(n["epsilon"] for n in needed))
    cells_of = {(n["agent"], n["epsilon"]): _episodes(n, least) for n in needed}
    rows = [
        (trust, agent, *(cells_of.get((agent, e), "") for e in budgets))
        for trust, agent in dict.fromkeys((n["trust"], n["agent"]) for n in needed)
    ]
    head = " | ".join("no noise" if e is None else f"ε = {number(e)}" for e in budgets)
    return Section(
        "needed", "Episodes for the same quality", words, tables=(table(f"Trust | Agent | {head}", rows, "", head),)
    )


def _episodes(n: dict[str, Any], least: int) -> str:
    mean, nine = (first_meeting(k, least, n["most"]) for k in (n["episodes"], n["episodes_nine_in_ten"]))
    return f"{mean} ({nine})"


def claims_section(claims: Sequence[Judged], words: str, title: str = "The claims") -> Section:
    """Every claim with its verdict, result and rule; then the verdicts on every variant."""
    rows = [(c["claim"], verdict(c["holds"]), c["regime"], c["rule"]) for c in claims]
    tables = [table("Claim | Holds | Found | Rule", rows)]
    if more := [
        (c["claim"], v["variant"], verdict(v["holds"]), v["regime"]) for c in claims for v in c.get("variants", ())
    ]:
        tables.append(table("Claim | Variant | Holds | Found", more, grouped=True))
    return Section(f"claims-{title}", title, (words,) if words else (), tables=tuple(tables))


def verdict(holds: bool) -> str:
    """Yes or no."""
    return "yes" if holds else "no"


def table_files(rows: Sequence[Mapping[str, object]]) -> tuple[bytes, str]:
    """The rows as Parquet and as CSV.

    ``rows``: plain values with the same keys; the columns are in the order of the first row's.
    """
    import polars as pl

    frame = pl.DataFrame(list(rows), infer_schema_length=None)
    file = io.BytesIO()
    frame.write_parquet(file, compression="zstd")
    return file.getvalue(), frame.write_csv()


def figure_files(figure: Figure) -> tuple[str, bytes]:
    """The figure as an SVG of its own, dark on white, and as a PNG of twice its size."""
    import vl_convert

    opening, rest = figure.svg.replace("currentColor", "#22262a").split(">", 1)
    svg = f'{opening}><rect width="100%" height="100%" fill="#ffffff"/>{rest}'
    return svg, vl_convert.svg_to_png(svg, scale=2)


# headings of words, and the text of a row under each heading; columns under other headings are set flush right
_WORDS = ("World", "Agent", "Variant", "Scales", "Constants", "Tied")
_CELLS: Mapping[str, Callable[[StudyRow], str]] = {
    "World": lambda r: str(r["world"]),
    "Agent": lambda r: str(r["agent"]),
    "Variant": lambda r: str(r["variant"]),
    "Scales": lambda r: str(r["calibration"] or "–"),
    "Constants": lambda r: str(r["constants"]),
    "Episodes": lambda r: f"{r['episodes']:,}",
    "ρ": lambda r: number(r["rho"]),
    "ε": lambda r: number(r["epsilon"]),
    "δ": lambda r: "–" if r["delta"] is None else f"{r['delta']:g}",
    "True ρ": lambda r: number(r["true_rho"], 3, "up"),
    "True ε": lambda r: number(r["true_epsilon"], 4, "up"),
    "Mean": lambda r: number(r["mean"]),
    "Median": lambda r: number(median(r)),
    "Std": lambda r: number(r["std"], 3),
    "Least": lambda r: number(min(r["totals"], default=None), 3),
    "Most": lambda r: number(max(r["totals"], default=None), 3),
    "At the end": lambda r: number(end_loss(r), 2) if r["marks"][1:] else "–",
    # fewer than ten episodes have no tenth
    "Growth": lambda r: number(min(growth(r), 99.0), 2) if r["episodes"] >= 10 and r["marks"] else "–",
    "Tied": lambda r: number(100 * (r["tie_share"] or 0.0), 2) + " %",
}


def cells(head: str, rows: Rows) -> list[tuple[str, ...]]:
    """The text of each row under the headings of a table."""
    return [tuple(_CELLS[name.removeprefix("Asked ")](row) for name in head.split(" | ")) for row in rows]


def _listed(key: str, title: str, words: str, head: str, rows: Rows, keys: int | None = None) -> Section:
    """A section with a row each; or one for all that agree in the first ``keys`` columns."""
    lines = cells(head, rows)
    if keys is not None:
        lines = list({row[:keys]: row for row in lines}.values())
    numeric = " | ".join(n for n in head.split(" | ") if n not in _WORDS)
    return Section(key, title, (words,), tables=(table(head, lines, "", numeric, grouped=True),))


def _totals(rows: Rows) -> Section:
    words = (
        "v* less the value of the policy handed over, or regret summed over all episodes, exactly, by planning in the "
        "known world. At the end: regret of one episode between the last two marks. Growth: regret after K over that "
        "after K / 10; 10 is linear."
    )
    head = "World | Episodes | Agent | Variant | Scales | ρ | ε | δ"
    head += " | Mean | Median | Std | Least | Most | At the end | Growth"
    return _listed("totals", "Every row", words, head, rows)


def _privacy(rows: Rows) -> Section:
    """The loss asked for, and the loss of the noise drawn."""
    words = (
        "Replace-one loss of the noise drawn, recomputed from its scales and the sums' own sensitivities, by the "
        "conversion valid for every ρ. At δ = 0.1 a mechanism may publish one record in ten outright: an ε there "
        "protects nobody."
    )
    head = "World | Agent | Variant | Scales | Asked ρ | Asked ε | δ | True ρ | True ε"
    drawn = [r for r in rows if r["true_rho"] is not None]
    return _listed("privacy", "What the noise is worth", words, head, drawn, 6)


def communication(rows: Sequence[TrialRow]) -> Section:
    """Messages of one user under each agent, from the least to the most over all rows."""
    words = (
        "Of one user, at most over the runs of a row; from the least to the most over all rows. Joint and central: the "
        "whole episode, in the clear, 64 bits a number. Local: one message of noisy integers. Shuffle: one-bit "
        "messages, each under the number of its counter.",
    )
    sent: dict[tuple[str, ...], list[TrialRow]] = {}
    for r in rows:
        if r["messages"] is not None:
            sent.setdefault((r["trust"], r["agent"], r["variant"]), []).append(r)
    sizes = {key: ([r["messages"] for r in group], [r["bits"] for r in group]) for key, group in sent.items()}
    lines = [(*key, *(between(counts, "{:,}".format) for counts in each)) for key, each in sizes.items()]
    listed = table("Trust | Agent | Variant | Messages | Bits", lines, numeric="Messages | Bits")
    return Section("communication", "What one user sends", words, tables=(listed,))


def _ties(rows: Rows) -> Section:
    """Shares of tied best actions, and how they were broken."""
    words = (
        "Share of (step, state) where clipping left several best actions, in the last plan. Such ties go to the "
        "unclipped value, then to chance: broken by the last index they would go right, which alone earns nearly all "
        "in RiverSwim (see always-right)."
    )
    tied = [r for r in rows if r["tie_share"] is not None]
    return _listed("ties", "Ties", words, "World | Agent | Variant | Scales | Tied", tied, 4)


def _setting(study: Study, rows: Rows) -> Section:
    """Words of the study, remarks on delta, and constants by agent, variant and scales."""
    head = "Agent | Variant | Scales | Constants"
    constants = sorted(set(cells(head, [r for r in rows if r["constants"]])))
    vain = sorted({r["delta"] for r in rows if r["delta"] is not None and r["delta"] > largest_delta(r["episodes"])})
    more = [f"δ = {d:g} means nothing for more than {1 / (10 * d):,.0f} people." for d in vain]
    listed = table(head, constants, grouped=True)
    return Section("setting", "The setting", (*study.study.words, *more), tables=(listed,))


_ATTACK = "an attack with made-up neighbours: no row was read, nothing was charged."


def audit_page(
    name: str, verdicts: Sequence[AttackResult], notes: Sequence[str] = (), faults: Sequence[str] = ()
) -> StudyPage:
    """The page of an audit."""
    said = summary(name, verdicts, faults)
    foot = (
        "Lower bounds by Clopper and Pearson on both error rates, at a threshold fixed in advance; a bound below the "
        "claim is no proof of the claim, which rests on the enumerated sensitivities."
    )
    return StudyPage("audit", name, f"Audit of {name}", said, _parts(verdicts, notes), foot, _ATTACK)


def summary(name: str, verdicts: Sequence[AttackResult], faults: Sequence[str] = ()) -> str:
    """The result of an audit in a few sentences.

    ``faults``: sentences on claims that the whole plan, or the whole pipeline, breaks.
    """
    if bad := [v for v in verdicts if v.violates]:
        violations = "; ".join(f"{v.mechanism}: claims {claim(v)}, {_fault(v)}" for v in bad)
        faults = [f"{violations}, with confidence {verdicts[0].confidence:.4f}.", *faults]
    if faults:
        return " ".join([f"{name} is NOT as private as it says.", *faults])
    shares = ", ".join(f"{v.ratio:.0%}" for v in verdicts)
    sentence = f"No attack found {name} to lose more than it claims; the best proved {shares} of the claim to be there."
    return " ".join([sentence, *_untested(verdicts)])


def _fault(v: AttackResult) -> str:
    faults = {
        "draws less noise than it lists": v.less_noise,
        "draws noise that entries share": v.shared_noise,
        f"loses at least {bound(v)}": v.ratio > 1,
    }
    return " and ".join(fault for fault, present in faults.items() if present)


def _untested(verdicts: Sequence[AttackResult]) -> list[str]:
    """Sentences on claims that are too large to test with so many draws."""
    sentences: list[str] = []
    for v in verdicts:
        if not v.testable:
            most = replace(v, lower_bound_rho=v.ceiling_rho, lower_bound_epsilon=v.ceiling_epsilon)
            sentences.append(
                f"{v.mechanism}: the claim {claim(v)} cannot be tested at so few draws; {v.draws:,} a side prove "
                f"at most {bound(most)}, even without any noise."
            )
    return sentences


def figure_of(verdicts: Sequence[AttackResult]) -> Figure:
    """Trade-off curves: how often an attacker is right, against how often wrong, beside the claimed limit."""
    from scipy import stats

    points: list[dict[str, float | str]] = []
    for i, v in enumerate(verdicts):
        colour = PALETTE[i % len(PALETTE)]
        mu = math.sqrt(2 * v.claimed_rho)
        grid = [j / 100 for j in range(1, 100)]
        for x in grid:
            y = float(stats.norm.cdf(stats.norm.ppf(x) + mu))
            if v.claimed_epsilon is not None and v.claimed_delta is None:
                e = math.exp(v.claimed_epsilon)
                y = min(e * x, 1 - (1 - x) / e)
            points.append({"who": f"{v.mechanism}: limit claimed", "x": x, "y": y, "colour": colour, "dash": "limit"})
        points += [{"who": v.mechanism, "x": x, "y": y, "colour": colour, "dash": "measured"} for x, y in v.curve]
    text = "Share of times an attacker finds the person, against the share of false alarms. " + " ".join(
        f"{v.mechanism}: {number(v.true_positives, 3)} against {number(v.false_positives, 3)} "
        "at the threshold fixed in advance."
        for v in verdicts
    )
    note = "Solid: measured. Dashed: the most that the claim allows; one clearly above it breaks the claim."
    labels = "trade-off", "Trade-off of the attacks", text
    return Figure(partial(draw_chart, "trade_off", {"points": points}, labels, 60), text, note)


def claim(v: AttackResult) -> str:
    """The claimed loss, rounded up."""
    if v.claimed_epsilon is not None:
        at = "" if v.claimed_delta is None else f" at δ = {v.claimed_delta:g}"
        return f"ε = {number(v.claimed_epsilon, toward='up')}{at}"
    return f"ρ = {number(v.claimed_rho, toward='up')}"


def bound(v: AttackResult) -> str:
    """The proved lower bound, rounded down."""
    if v.lower_bound_epsilon is not None:
        return f"ε = {number(v.lower_bound_epsilon, toward='down')}"
    return f"ρ = {number(v.lower_bound_rho, toward='down')}"


def attacked(v: AttackResult) -> tuple[str, ...]:
    """Mechanism, trust, claim, proof, and shares of the claim that are proved and that the pair spends."""
    return str(v.mechanism), str(v.trust), claim(v), bound(v), f"{v.ratio:.0%}", f"{v.attained:.0%}"


def _parts(verdicts: Sequence[AttackResult], notes: Sequence[str]) -> list[Chapter]:
    rows = [(*attacked(v), f"{v.draws:,}", "yes" if v.violates else "no") for v in verdicts]
    head = "Mechanism | Trust | Claim | Proved at least | Share | Pair spends | Draws a side | Violates"
    words = (
        f"Each bound holds with confidence {verdicts[0].confidence:.4f}.",
        "The share proved grows with the draws, up to what the attacked pair spends of the claim: exact, undrawn. The "
        "smaller the claim, the more draws it takes: at ρ = 0.03 twenty thousand prove a third to a half, at ρ = 1 "
        "nine tenths.",
        *_untested(verdicts),
        *notes,
    )
    listed = table(head, rows, numeric="Share | Pair spends | Draws a side")
    figure = figure_of(verdicts)
    proved = Section("verdicts", "Claim and proof", words, tables=(listed,))
    return [Chapter("What was proved", (proved, Section("trade-off", "Trade-off", (figure.note,), figure)))]
