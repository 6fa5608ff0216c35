"""A run's report: one page of HTML that loads nothing, and its Markdown twin."""

from __future__ import annotations

from pipeline.declaration.numbers import clean
from reports.facts.dataset import DeclaredPlant, DeclaredTables
from reports.facts.policy import Constants, Decisions, Gains, PlantConstants, PlayedConstants, PolicyView
from reports.facts.report import Report
from reports.facts.simulation import Simulation
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
from reports.run.evaluation_section import evaluation_section
from reports.run.opening import opening, to_approve, to_check, to_decide
from reports.run.policy_sections import abstention_section, policy_section, shares_section, weights_section
from reports.run.policy_table import practice_section
from reports.run.promise_sections import ledger_section, limits_sections, mechanisms_section, promise_section
from reports.run.value_sections import controller_truth_section, controller_value_section, truth_section, value_section

Words = dict[str, str]

_PROMISE = {
    "Differential privacy": "a limit on how much any one person's record can change the probability of what is "
    "published, whatever else anyone knows",
    "ρ, zCDP": "zero-concentrated differential privacy: the unit in which the ledger adds up losses; smaller is more "
    "private",
    "ε, δ": "the same limit as a factor: probabilities change by at most e^ε, but for a probability of δ",
    "Neighbouring relation": "which two logs must look alike: here what may change about one person",
    "Trust model": "who sees the raw data; central: one curator, who adds the noise",
    "Sensitivity": "the most by which one person can change a sum; the noise is scaled to it",
    "Mechanism": "a sum with noise added once; the noise is an exact sample from a discrete distribution",
    "Calibration": "how the noise was scaled; tight: as little as the promise needs; paper: as printed there",
    "Release": "the noisy sums of one run; all that follows from them costs nothing further",
    "Lineage, ledger": "a dataset under its registered name, and the chain of entries that charges what is released "
    "of it",
    "Certificate": "certificate.json: the promise in numbers that a program can check without the data",
}
_VALUE = {
    "Episode, step": "one course of decisions about one person, and each decision in it, counted from 0",
    "Value": "the expected sum of rewards of one episode",
    "Proved, evaluated, bound, modelled": "what an interval certifies. Proved: a theorem of the paper. Evaluated: "
    "measured on people who did not propose the policy. Bound: measured on logs made just as this one was. "
    "Modelled: of the released model alone, no guarantee",
    "Paper, ours": "whether a constant is the paper's own or was chosen by us; only the paper's carry its theorem",
}
_TABULAR = {
    "State, action": "what is known at a decision, and what can be done; both declared, never read off the data",
    "Cell": "one state at one step",
    "Current practice": "what the log shows people doing, as far as noisy counts tell it",
    "Abstain": "no allowed action has enough evidence; keep current practice",
    "Tie": "another action looks equally good; the choice among them is chance",
}
_COUNTS = {
    "Released count": "how often something happened, plus noise; the true count is not on this page",
    "Consistency step": "the least change of the noisy counts that makes parts sum to their total",
}
_BINNED = {"Binned process": "the process as the declared states see it; what they hide is not in it"}
_LINEAR = {
    "Feature, weight": "a number that describes state and action, and what it adds to the predicted value",
    "Gram matrix": "released sums of products of features; it tells how much evidence each direction has",
}
CONTROLLER: Words = {
    "Plant, control, gain": "what is steered, with what, and how strongly each observed number moves each control",
    "Certainty equivalence": "the estimated plant is treated as the true one",
    "Gram matrix": "released sums of products of observations and controls",
}


def policy_words(report: Report) -> Words:
    """Terms of a policy over declared states."""
    return (
        _TABULAR
        | (_LINEAR if report.features else _COUNTS)
        | (_BINNED if report.dataset.markov == "aggregated" else {})
    )


def glossary_section(own: Words) -> Section:
    """Term by term.

    Parameters
    ----------
    own
        Those of this kind of page: :func:`policy_words` or :data:`CONTROLLER`.
    """
    words = _VALUE | own | _PROMISE
    return Section("glossary", "Words", tables=(table("Term | Means", list(words.items())),))


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
            answer, words = to_decide(report), policy_words(report)
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
            words = CONTROLLER
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
        _part("To check", to_check(report), *check, verify_section(report), glossary_section(words)),
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
