"""A simulated run on the page: what its policy loses, beside what learns nothing and what adds no noise."""

from __future__ import annotations

from pipeline.declaration.numbers import clean, number
from reports.facts.dataset import Declared, DeclaredPlant, DeclaredTables
from reports.facts.measurement import Simulation, Spread
from reports.facts.policy import PlayedConstants
from reports.facts.report import Report
from reports.figures.charts import Line, draw_curves
from reports.page import Card, Figure, Opening, Section, interval, loss, table

_ROLES = {"agent": "the agent", "plain": "without noise", "control": "control"}


def played_opening(report: Report, sim: Simulation) -> Opening:
    """What was learnt, where, at which promise, and what it loses."""
    data, promise = report.dataset, report.guarantee
    what = "A controller" if isinstance(data, DeclaredPlant) else "A policy"
    learnt = (
        f"{what} for {clean(sim.world)}, learnt by {clean(report.agent)} while {number(sim.episodes)} simulated "
        f"episodes came one by one, {_each(data)}; an episode has {number(data.horizon)} steps."
    )
    return Opening(
        title=f"{what} learnt online in {clean(sim.world)}",
        answer=_answer(sim),
        why=(to_decide(sim), learnt),
        figure=_figure(sim),
        below=() if sim.proposal is None else (f"Proposal: {sim.proposal}.",),
        cards=(_lost_card(sim), _promise_card(report), _user_card(report, sim)),
        guarantee=clean(promise.sentence),
        claim=f"Claim made: {clean(promise.claim)}.",
        banner="simulation, not private: the noise is seeded and the people are invented.",
    )


def to_decide(sim: Simulation) -> str:
    """Whom the agent clearly beats, and who clearly beats it."""
    mine = sim.agents[0].suboptimality
    if mine is None:
        return "The agent emits no policy."
    others = [(a, a.suboptimality) for a in sim.agents[1:] if a.suboptimality is not None]
    beaten = [clean(a.agent) for a, s in others if _end(mine, 1) < _end(s, -1)]
    lost = [clean(a.agent) for a, s in others if _end(mine, -1) > _end(s, 1)]
    worse = f"; clearly worse than that of {_names(lost)}" if lost else ""
    return f"Its policy is clearly better than that of {_names(beaten)}{worse}."


def to_check(report: Report) -> str:
    """The command that recomputes the promise."""
    return (
        f"{clean(report.agent)}, constants: {clean(report.constants.policy.preset)}. To recompute the certificate: "
        f"reticent ledger verify {clean(report.run)}"
    )


def lost_section(sim: Simulation) -> Section:
    """Suboptimality of the emitted policies, exactly, and its interval over seeds."""
    words = [
        "Suboptimality: v* − v of the policy that an agent emits after the last episode, exactly, by planning in the "
        f"known world; v* = {number(sim.optimum)}. This run's own policy, that of seed {sim.seed}, loses "
        f"{number(sim.suboptimality)}. Intervals: Student's, of the mean over seeds.",
    ]
    if sim.price is not None:
        beside = next(clean(a.agent) for a in sim.agents if a.role == "plain")
        said = f"{number(abs(sim.price))} {'less' if sim.price < 0 else 'more'}" if sim.price else "as much"
        words.append(f"Beside {beside}, which adds no noise, its policies lose on average {said}.")
    rows = [
        (clean(a.agent), _ROLES[a.role], clean(a.trust), *_row(a.suboptimality), f"{a.runs}")
        for a in sim.agents
        if a.suboptimality is not None
    ]
    head = "Agent | Is | Trust | Mean | Interval of the mean | Least | Most | Runs"
    found = table(head, rows, "Suboptimality, reward units an episode", "Mean | Least | Most | Runs")
    return Section("suboptimality", "What the policy loses", tuple(words), tables=(found,))


def regret_section(sim: Simulation) -> Section:
    """Regret while learning: totals; the curves stand first on the page."""
    rows = [(clean(a.agent), clean(a.trust), *_row(a.regret), number(a.regret.std)) for a in sim.agents]
    head = "Agent | Trust | Mean | Interval of the mean | Least | Most | Std"
    found = table(head, rows, f"Total regret after {number(sim.episodes)} episodes", "Mean | Least | Most | Std")
    words = ("What the users lost while the agent learnt, exactly. Controls learn nothing. The curves stand above.",)
    return Section("regret", "Regret", words, tables=(found,))


def agents_section(sim: Simulation, constants: PlayedConstants) -> Section:
    """Every option, and what each agent said of its first run."""
    options = [(clean(k), "derived" if v is None else clean(str(v))) for k, v in constants.options.items()]
    rows = [(clean(a.agent), clean(k.replace("_", " ")), clean(v)) for a in sim.agents for k, v in a.facts.items()]
    tables = (
        table("Option | Value", options, "[agent]"),
        table("Agent | Fact | Value", rows, "What each said of its first run", grouped=True),
    )
    return Section("agents", "Agents and options", (clean(constants.policy.source["chosen"]),), tables=tables)


def communication_section(sim: Simulation) -> Section | None:
    """What one user sends."""
    if (told := sim.communication) is None:
        return None
    rows = [("To", clean(told.who)), ("Messages", number(told.messages)), ("Bits together", number(told.bits))]
    return Section("communication", "What one user sends", tables=(table("Communication | ", rows),))


def place_section(data: DeclaredTables | DeclaredPlant, sim: Simulation) -> Section:
    """The world as a deployment would declare it."""
    rows = [
        ("World", clean(sim.world)),
        ("Episodes", f"{number(sim.episodes)}, {_each(data)}"),
        ("Steps of an episode", number(data.horizon)),
        ("Seeds", f"{sim.seed} to {sim.seed + sim.runs - 1}"),
    ]
    if isinstance(data, DeclaredTables):
        rows += [
            ("States", number(len(data.live_states))),
            ("Actions", number(len(data.actions))),
            ("Dynamics", clean(data.dynamics)),
        ]
    else:
        rows.append(("Coordinates and controls", f"{len(data.observation.names)} and {len(data.action.names)}"))
    return Section("data", "The world", tables=(table("Declared | ", rows),))


def _each(data: Declared) -> str:
    m = data.episodes_per_user
    return "one user is one episode" if m == 1 else f"at most {number(m)} of one user"


def _row(s: Spread) -> tuple[str, str, str, str]:
    between = "–" if s.lower is None or s.upper is None else interval(s.lower, s.upper)
    return number(s.mean), between, number(s.least), number(s.most)


def _end(s: Spread, side: int) -> float:
    end = s.upper if side > 0 else s.lower
    return s.mean if end is None else end


def _names(names: list[str]) -> str:
    return ", ".join(names) or "nobody beside it"


def _answer(sim: Simulation) -> str:
    """What the emitted policies lose, over the seeds."""
    s, best = sim.agents[0].suboptimality, f"against the best policy's {number(sim.optimum)}"
    if s is None or sim.runs == 1:
        return f"The policy loses {number(sim.suboptimality)} an episode {best}."
    between = ""
    if s.lower is not None and s.upper is not None and s.lower < s.upper:
        between = f" ({interval(s.lower, s.upper)})"
    return f"Its policies lose {number(s.mean)} an episode on average over {sim.runs} seeds{between}, {best}."


def _figure(sim: Simulation) -> Figure:
    """Regret curves of all agents in one panel."""
    lines = {
        a.agent: Line(a.curve.episodes, a.curve.mean, a.curve.std, control=a.role == "control") for a in sim.agents
    }
    return draw_curves({sim.world: lines}, "regret", f"{sim.agents[0].agent} and what plays beside it")


def _lost_card(sim: Simulation) -> Card:
    mine = sim.agents[0]
    words = (f"regret while learning: {number(mine.regret.mean)} ± {number(mine.regret.std)} over {mine.runs} seeds",)
    return Card(f"The policy of seed {sim.seed} loses", number(sim.suboptimality), words)


def _promise_card(report: Report) -> Card:
    p = report.guarantee
    asked = ", ".join(f"{clean(k)} = {number(v)}" for k, v in p.asked.items())
    words = (f"asked: {asked}, {clean(p.calibration)}",) if asked else ()
    return Card("A deployment would promise", loss(p.rho, p.epsilon, p.delta, pure=p.pure), words)


def _user_card(report: Report, sim: Simulation) -> Card:
    told = sim.communication
    sent = () if told is None else (f"a user sends {number(told.bits)} bits",)
    return Card("Trust model", clean(report.guarantee.trust_model), (_each(report.dataset), *sent))
