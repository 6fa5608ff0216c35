"""A run's report: one page of HTML that loads nothing, and its Markdown twin."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pipeline.declaration.numbers import clean
from reports.facts.dataset import DeclaredPlant, DeclaredTables
from reports.facts.measurement import Simulation
from reports.facts.policy import Constants, Decisions, Gains, PlantConstants, PlayedConstants, PolicyView
from reports.facts.report import Report
from reports.page import Opening, Part, Section, table, templates
from reports.run import simulation_sections as played
from reports.run.check_sections import (
    consistency_section,
    constants_section,
    data_section,
    evidence_section,
    gains_section,
    gains_table_section,
    plant_section,
    verify_section,
)
from reports.run.opening import opening, to_approve, to_check, to_decide
from reports.run.policy_sections import abstention_section, policy_section, shares_section, weights_section
from reports.run.policy_table import practice_section
from reports.run.promise_sections import ledger_section, limits_sections, mechanisms_section, promise_section
from reports.run.value_sections import (
    controller_truth_section,
    controller_value_section,
    evaluation_section,
    truth_section,
    value_section,
)


def policy_terms(report: Report) -> list[str]:
    """Kinds of terms of a policy over declared states."""
    kinds = ["tabular", "linear" if report.features else "counts"]
    return kinds + (["binned"] if report.dataset.markov == "aggregated" else [])


def glossary_section(*own: str) -> Section:
    """Term by term.

    Parameters
    ----------
    own
        Kinds of terms of this page, tables of ``glossary.toml``.
    """
    terms = tomllib.loads(Path(__file__).with_name("glossary.toml").read_text(encoding="utf-8"))
    rows = [row for kind in ("value", *own, "promise") for row in terms[kind].items()]
    return Section("glossary", "Words", tables=(table("Term | Means", rows),))


def render_html(report: Report, policy: PolicyView) -> str:
    """The report as one HTML file: no script, no address that a browser would load.

    Parameters
    ----------
    report
        The content of ``report.json``.
    policy
        The policy beside its released evidence, or the gains of a controller.

    Raises
    ------
    ValueError
        If the report is of another kind of policy.
    """
    return _render("report.html.j2", report, policy)


def render_markdown(report: Report, policy: PolicyView) -> str:
    """The same words and tables as Markdown; pictures are replaced by what they show.

    Parameters
    ----------
    report, policy
        As for :func:`render_html`.
    """
    return _render("report.md.j2", report, policy)


def _render(template: str, report: Report, policy: PolicyView) -> str:
    run = {"run": report.run, "agent": report.agent, "recipe": report.recipe, "schema_version": report.schema_version}
    first, parts = page(report, policy)
    told = {key: clean(value) for key, value in run.items()}
    return templates().get_template(template).render(opening=first, parts=parts, run=told)


def page(report: Report, policy: PolicyView) -> tuple[Opening, list[Part]]:
    """The first screen, and all sections after it by reader: who decides, who approves, who checks.

    Parameters
    ----------
    report, policy
        As for :func:`render_html`.
    """
    match report.dataset, report.constants, policy:
        case DeclaredTables() as data, Constants() as constants, Decisions() as view:
            answer, terms = to_decide(report), policy_terms(report)
            decide = (
                evaluation_section(report, view),
                value_section(report, data),
                truth_section(report),
                policy_section(report, view),
                shares_section(view),
                weights_section(view),
                abstention_section(report, constants, view),
                practice_section(report, view),
            )
            check = (
                data_section(data, report.features),
                constants_section(report, constants),
                consistency_section(report.consistency),
            )
        case DeclaredPlant() as data, PlantConstants() as constants, Gains() as view:
            terms = ["controller"]
            answer = (
                "The gains and what they are worth in the released model; how practice steers is not told by this page."
            )
            decide = (
                controller_value_section(report),
                controller_truth_section(report),
                gains_section(report, data, constants, view),
            )
            check = plant_section(data), evidence_section(constants, report.model)
        case (DeclaredTables() | DeclaredPlant()) as data, PlayedConstants() as constants, view if report.simulation:
            return played_page(report, report.simulation, data, constants, view)
        case _:
            raise ValueError(f"{report.run}: the policy is of another kind than the report")
    approve = (
        promise_section(report.guarantee),
        mechanisms_section(report),
        ledger_section(report),
        *limits_sections(report),
    )
    return opening(report, policy), [
        _part("To decide", answer, *decide),
        _part("To approve", to_approve(report), *approve),
        _part("To check", to_check(report), *check, verify_section(report), glossary_section(*terms)),
    ]


def played_page(
    report: Report,
    sim: Simulation,
    data: DeclaredTables | DeclaredPlant,
    constants: PlayedConstants,
    view: PolicyView,
) -> tuple[Opening, list[Part]]:
    """The same of a run that was played in a known world."""
    what = (
        (policy_section(report, view), shares_section(view))
        if isinstance(view, Decisions)
        else (gains_table_section(view),)
    )
    decide = played.lost_section(sim), played.regret_section(sim), *what
    approve = (
        promise_section(report.guarantee),
        played.communication_section(sim),
        mechanisms_section(report),
        *limits_sections(report),
    )
    check = played.place_section(data, sim), played.agents_section(sim, constants), verify_section(report)
    return played.played_opening(report, sim), [
        _part("To decide", played.to_decide(sim), *decide),
        _part("To approve", "What the very mechanism would promise in a deployment; nothing was charged.", *approve),
        _part("To check", played.to_check(report), *check),
    ]


def _part(title: str, answer: str, *sections: Section | None) -> Part:
    return Part(title, tuple(section for section in sections if section is not None), answer)
