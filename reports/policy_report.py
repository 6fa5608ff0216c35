"""A run's report: one page of HTML that loads nothing, and its Markdown twin."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from reports.check_sections import consistency_section, constants_section, data_section, verify_section
from reports.facts.policy import Decisions, Gains
from reports.format import clean, markdown
from reports.glossary import glossary_section
from reports.lq_sections import evidence_section, gains_section, lq_opening, plant_section
from reports.lq_value import lq_truth_section, lq_value_section
from reports.opening import opening
from reports.page import Part, Section
from reports.policy_sections import abstention_section, policy_section, shares_section, weights_section
from reports.practice_section import practice_section
from reports.promise_sections import ledger_section, limits_sections, mechanisms_section, promise_section
from reports.short_answers import to_approve, to_check, to_decide
from reports.value_sections import truth_section, value_section

if TYPE_CHECKING:
    from jinja2 import Environment


def render_html(facts: dict[str, Any], policy: Decisions | Gains) -> str:
    """The report as one HTML file: no script, no address that a browser would load.

    Parameters
    ----------
    facts
        The content of ``report.json``.
    policy
        The policy beside its released evidence, or linear gains.
    """
    return _render("report.html.j2", facts, policy)


def render_markdown(facts: dict[str, Any], policy: Decisions | Gains) -> str:
    """The same words and tables as Markdown; pictures are replaced by what they show."""
    return _render("report.md.j2", facts, policy)


def parts(facts: dict[str, Any], policy: Decisions | Gains) -> list[Part]:
    """All sections after the first, by reader: who decides, who approves, who checks."""
    if isinstance(policy, Gains):
        decide = lq_value_section(facts), lq_truth_section(facts), gains_section(facts, policy)
        check = plant_section(facts), evidence_section(facts)
    else:
        decide = (
            value_section(facts),
            truth_section(facts),
            policy_section(facts, policy),
            shares_section(policy),
            weights_section(policy),
            abstention_section(facts, policy),
            practice_section(facts, policy),
        )
        check = data_section(facts), constants_section(facts), consistency_section(facts)
    approve = promise_section(facts), mechanisms_section(facts), ledger_section(facts), *limits_sections(facts)
    return [
        _part("To decide", to_decide(facts), *decide),
        _part("To approve", to_approve(facts), *approve),
        _part("To check", to_check(facts), *check, verify_section(facts), glossary_section(facts)),
    ]


def _part(title: str, answer: str, *sections: Section | None) -> Part:
    return Part(title, tuple(section for section in sections if section is not None), answer)


def _render(template: str, facts: dict[str, Any], policy: Decisions | Gains) -> str:
    run = {key: clean(facts[key]) for key in ("run", "agent", "recipe", "schema_version")}
    page = templates().get_template(template)
    first = lq_opening(facts) if isinstance(policy, Gains) else opening(facts)
    return page.render(opening=first, parts=parts(facts, policy), run=run)


@cache
def templates() -> Environment:
    """The page templates, with this package's filters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("reports"),
        # Markdown escapes through its own filter: HTML entities inside its words would be wrong twice.
        autoescape=lambda name: name is not None and ".html." in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters["md"] = markdown
    found.filters["fence"] = _fence
    return found


def _fence(lines: tuple[str, ...]) -> str:
    """Indented lines: a code block that no run of backticks in a command can close."""
    return "\n".join(f"    {line}" for line in lines)
