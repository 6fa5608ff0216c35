"""The value of a policy: by its release, by held-out people, and in truth where that is known.

Sections of a simulated run: suboptimality and regret, beside agents that learn nothing and agents without noise.
"""

import math

import numpy as np

from pipeline.declaration.numbers import clean, number
from pipeline.facts.evaluation import Evaluated, Interval, Simulation, Spread
from pipeline.facts.learnt import NO_GUARANTEE, Baseline, Decisions, PlayedConstants, ValueFacts
from pipeline.facts.promise import Declared, DeclaredPlant, DeclaredTables
from pipeline.facts.report import Report, verdict_of
from pipeline.facts.verdict import MISFIT, PLACEBO, REACH, Verdict, fixed_width, round_up, stricter, widened
from reports.figures.charts import Line, draw_curves
from reports.page import AnswerCard, Opening, Section, about, interval, listing, loss, one_number, percent, table
from reports.run.answer import known_truth, score, wording

# the model's estimate where held-out people evaluated the policy; and the baselines beside it
_OWN, _BESIDE = "this policy", ("practice", "uniform")
BINNED = "The declared states hide part of what was logged, so the interval concerns the binned process only."


def value_section(report: Report, data: DeclaredTables) -> Section:
    """The interval, the meaning of its status, and simple policies beside it."""
    value = report.value
    words = [
        f"{score(report)} The interval is that of the policy's expected score.",
        wording()["certifies"][value.status],
    ]
    if data.markov == "aggregated":
        words.append(BINNED)
    if data.kind != "synthetic":
        released = "sums" if report.features else "counts"
        words.append(f"Computed from the released noisy {released}. The policy in use has not been observed.")
    rows: list[tuple[str, ...]] = [
        ("Interval", interval(value.lower, value.upper)),
        ("Least and greatest possible", f"{number(value.lower_trivial)} and {number(value.upper_trivial)}"),
        ("Status", value.status + (": not a guarantee" if value.status in NO_GUARANTEE else "")),
        ("Start of an episode", wording()["starts"]["people" if report.evaluation is not None else value.start]),
    ]
    if value.optimal_upper is not None:
        rows.insert(1, ("Upper end for any policy", number(value.optimal_upper, 3, "up")))
    # baselines without an estimate, or with a trivial one, are left out
    beside = {
        name: b
        for name, b in report.model_baselines.items()
        if name in _BESIDE and not b.trivial and (b.estimate is not None or b.upper is not None)
    }
    tables = [table("Value of the policy | ", rows)]
    if beside:
        compared = _baselines(report.model_baselines.get(_OWN) or value, beside)
        head = "Policy | Estimate | Interval | This policy's interval"
        tables.append(table(head, compared, "By the released model alone", "Estimate | Interval"))
    assumes = tuple(clean(item) for item in value.assumes)
    return Section("value", "The score of the policy", tuple(words), None, tuple(tables), assumes, "It assumes:")


def _baselines(policy: ValueFacts | Baseline, beside: dict[str, Baseline]) -> list[tuple[str, ...]]:
    """The policy, then what stands beside it: estimate, interval, and whether the policy's lies apart."""
    rows = [(_OWN, _about(policy), interval(policy.lower, policy.upper), "")]
    for name, b in beside.items():
        rows.append((clean(name), _about(b), interval(b.lower, b.upper), _apart(policy, b)))
    return rows


def _about(value: ValueFacts | Baseline) -> str:
    if value.estimate is None or value.lower is None or value.upper is None:
        return number(value.estimate, 3)
    return about(value.estimate, value.lower, value.upper)


def _apart(policy: ValueFacts | Baseline, other: Baseline) -> str:
    if policy.lower is not None and other.upper is not None and policy.lower > other.upper:
        return "lies above"
    if policy.upper is not None and other.lower is not None and policy.upper < other.lower:
        return "lies below"
    return "overlaps: no clear difference"


def truth_section(report: Report) -> Section | None:
    """The true values, which only a synthetic world has; None elsewhere."""
    if (truth := known_truth(report)) is None:
        return None
    value = report.value
    rows = [
        ("Best possible policy", number(truth.v_star, 3)),
        ("This policy", number(truth.v_policy, 3)),
        ("Policy that made the log", number(truth.v_behavior, 3)),
        ("Uniform choice", number(truth.v_uniform, 3)),
    ]
    # held-out people tell what comes of the policy itself, a release what comes of it in the process of its counts
    judged = report.evaluation is not None and report.dataset.markov != "aggregated"
    own = truth.v_policy if judged else truth.v_policy_model
    if (binned := number(own, 3)) != rows[1][1]:
        rows.insert(2, ("This policy, in the process that the interval is about", binned))
    top = value.upper_trivial if value.upper is None else value.upper
    answer = "contains" if value.lower <= own <= top else "does not contain"
    words = (
        f"The data are simulated, so the true scores are known. The interval {answer} the true value. The best "
        f"possible policy is better by {number(truth.suboptimality, 2)}.",
    )
    return Section("truth", "In the true world", words, tables=(table("Policy | True score", rows),))


def controller_value_section(report: Report) -> Section:
    """The estimate, the meaning of its status, and doing nothing beside it."""
    value = report.value
    words = (
        "The value is minus the expected summed cost of one episode, x'Qx + u'Ru a step, so more is better and 0 is "
        "the most there could be.",
        "Status: modelled, not a guarantee. It is the exact value in the plant that the released sums suggest, with "
        "the declared noise; how far that plant is from the true one is not known.",
    )
    rows = [
        ("This controller, in the released model", number(value.estimate)),
        ("Doing nothing, in the released model", number(report.model_baselines["zero"].estimate)),
        ("Least possible where the declared balls hold", number(value.lower_trivial, toward="down")),
        ("Status", "modelled: not a guarantee"),
    ]
    assumes, listed = tuple(clean(item) for item in value.assumes), table("Score of an episode | ", rows)
    return Section("value", "The score of the controller", words, None, (listed,), assumes, "It assumes:")


def controller_truth_section(report: Report) -> Section | None:
    """The true values, which only a synthetic plant has; None elsewhere."""
    truth = known_truth(report)
    if truth is None or truth.v_zero is None:
        return None
    best, zero = truth.v_star, truth.v_star - truth.v_zero
    wrong = "A fixed gain from a model that is 30 % wrong, on average over 200 of them"
    valued = (
        ("The optimal linear controller", truth.v_star),
        ("This controller", truth.v_policy),
        ("The same method without privacy, on as many simulated episodes", truth.v_certainty),
        (wrong, truth.v_fixed_gain),
        ("Doing nothing", truth.v_zero),
        ("The controller that made the log", truth.v_behavior),
        ("Controls of full length in a random direction", truth.v_uniform),
    )
    lost = [percent((best - x) / zero, 2) if zero > 0 and x is not None else "–" for _, x in valued]
    rows = [(text, number(x), part) for (text, x), part in zip(valued, lost, strict=True)]
    words = (
        "The data are simulated: exact values in the true plant, by the Riccati recursion.",
        f"This controller loses {number(truth.suboptimality)} against the optimal one; doing nothing loses "
        f"{number(zero)}.",
    )
    lead = "Lost: against the optimal controller, in parts of what doing nothing loses"
    compared = table("Controller | Value | Lost", rows, lead, "Value | Lost")
    return Section("truth", "In the true plant", words, tables=(compared,))


_SHARES = (0.2, 0.3, 0.5)
# fewer states are not split into thirds
_FEW = 9


def evaluation_section(report: Report) -> Section | None:
    """Values, difference, and their assumptions; None without held-out people."""
    if (e := report.evaluation) is None:
        return None
    looks = "the first evaluation" if e.look == 1 else f"evaluation number {number(e.look)}"
    part = "They had no part in choosing the policy."
    if e.confirmed:
        part = "By how often its actions are taken, not by their outcomes, they decided which of its changes stay."
    words = (
        f"{percent(e.share)} of the people were held out, about "
        f"{number(round_up(e.people, 'nearest'))} by a noisy count. {part} Current practice is the mean of "
        "their own scores, old and recent alike: where practice or what comes of it changed lately, it is not that of "
        "today. The difference is taken person by person, with noise of its own: it need not be that of the two "
        "scores.",
        f"This is {looks} on this data that its ledger knows of, so each interval is one at {percent(e.level)}: more "
        "evaluations mean more chances to be wrong, those of other ledgers and of copies of the log too.",
        "It assumes that the recorded state, as it stood before each decision, holds everything that drives both "
        "decisions and outcomes, that each action is recorded as it was chosen, and each outcome alike, whatever was "
        "done, that no person, outcome or step is missing or comes after the last declared step, that the same comes "
        "of a choice on all days, that states, actions, score and vetoes were not chosen by what came of choices in "
        "this log, and that people are independent: nobody has two ids, each choice was made for one person alone, not"
        " for a site or a class, and what is done for one, or comes of it, changes nothing for another"
        + ("" if e.misfit is None else ", and that values are linear in the declared features")
        + ("" if e.led is None else ", and that the policy hardly changes which states people come to")
        + f".{_hidden(verdict_of(report))}",
    )
    scores = {"New policy": e.value, "Current practice": e.practice, "Difference": e.improvement}
    rows = [(name, *_both(x)) for name, x in scores.items()]
    if (other := e.against) is not None:
        rows.append((f"Difference to {clean(other.run)}, modelled", *_both(other.improvement)))
    uniform = report.model_baselines.get("uniform")
    if uniform is not None and not uniform.trivial and uniform.estimate is not None:
        ends = interval(uniform.lower, uniform.upper) if uniform.lower is not None else "–"
        rows.append(("Uniform choice (by the released model, no guarantee)", _about(uniform), ends))
    values = table("Score | Estimate | Interval", rows, "", "Estimate | Interval")
    return Section("evaluation", "How it was tested", words, tables=(values,))


def _hidden(verdict: Verdict) -> str:
    """Sentence on unrecorded traits: excluded or not, and why."""
    confounding = verdict.confounding
    return (
        "" if confounding is None else f" Unrecorded traits: {confounding.status.replace('_', ' ')}. {confounding.why}"
    )


def _both(x: Interval) -> tuple[str, str]:
    return about(x.estimate, x.lower, x.upper), interval(x.lower, x.upper)


def checks_section(report: Report, view: Decisions) -> Section | None:
    """The checks of an evaluation, with their prices; None where there was none."""
    if (e := report.evaluation) is None:
        return None
    meaning = f"must come out as 0; beyond {PLACEBO:g} on either side the answer is withheld"
    rows = [
        _placebo("Placebo, the course before a choice", e.placebo, f"{meaning}; sees traits that move the course"),
        _placebo("Placebo, earlier rewards", e.past, f"{meaning}; sees traits that move rewards, by its reach"),
    ]
    if e.reach is not None:
        meant = f"share of a trait's effect on rewards that they show; below {REACH:g} they show too little"
        rows.append(("Reach of earlier rewards, at least", number(e.reach, 2, "down"), "free", meant))
    confounding = verdict_of(report).confounding
    if e.hidden is not None and confounding is not None and confounding.status in ("checked", "not_excluded"):
        most = number(e.hidden, 2, "up")
        rows.append(("Explained by a hidden trait that lasts, at most", most, "free", wording()["meanings"]["hidden"]))
    if e.ratios is not None:
        rows.append(("Logged probabilities", f"z = {number(e.ratios, 2)}", "in the same release", meaning))
    if e.misfit is not None:
        z = f"z = {number(e.misfit, 2)}"
        meaning = f"must come out as 0; beyond {MISFIT:g} on either side the features do not describe the values"
        rows.append(("What features leave out, the farthest of 12 directions", z, "in the same release", meaning))
    for d in e.diagnostics:
        cost = f"ρ = {number(d.price, 2, 'up')}" if d.price else "free"
        rows.append((clean(d.name), number(d.value, 3), cost, _meaning(d.name)))
    rows += [(name, percent(share), "free", wording()["meanings"]["overlap"]) for name, share in overlaps(view)]
    for name, policy, measured in (("policy", "this policy", e.value), ("practice", "practice", e.practice)):
        modelled = report.model_baselines.get(policy)
        if modelled is not None and modelled.estimate is not None:
            off = number(modelled.estimate - measured.estimate, 2)
            rows.append((f"Calibration of the model, {name}", off, "free", wording()["meanings"]["calibration"]))
    for share in _SHARES:
        clear = abs(e.improvement.estimate) > (half := half_width(e, share)) * stricter(float(e.level))
        remark = f"the same difference would {'' if clear else 'not '}be distinguished from 0"
        rows.append((f"Margin with {percent(share)} held out", f"± {number(half, 2, 'up')}", "free", remark))
    words = f"Estimator: {clean(e.estimator)}. Free: computed from what was released anyway."
    listed = table("Check | Value | Price | Meaning", rows, "", "Value")
    return Section("checks", "Checks of the test", (words,), tables=(listed,))


def _placebo(name: str, z: float | None, meaning: str) -> tuple[str, ...]:
    shown = ("not released", "free") if z is None else (f"z = {number(z, 2)}", "in the same release")
    return name, *shown, meaning


def _meaning(name: str) -> str:
    meanings = wording()["meanings"].items()
    return next((meaning for start, meaning in meanings if name.lower().startswith(start)), "")


def overlaps(view: Decisions) -> list[tuple[str, float]]:
    """Agreement of practice with the policy, by how often states are visited; from released counts.

    Returns name and share of each third of the states; of all of them where they are few; nothing where practice is
    unknown.
    """
    known = ~np.isnan(view.practice).any(-1) & ~view.abstains
    usual = np.broadcast_to(view.practice, (*view.action.shape, len(view.action_labels)))
    agree = np.take_along_axis(usual, view.action[..., None], -1)[..., 0]
    visits = np.where(known, view.evidence.sum(-1), 0.0)
    followed, by_state = np.where(known, visits * np.nan_to_num(agree), 0.0).sum(0), visits.sum(0)
    order = [s for s in np.argsort(-by_state, kind="stable").tolist() if by_state[s] > 0]
    if not order:
        return []
    if len(order) < _FEW:
        return [("Overlap, all states", float(followed[order].sum() / by_state[order].sum()))]
    names = ("the most visited third of states", "the middle third", "the least visited third")
    parts = np.array_split(np.array(order), 3)
    return [
        (f"Overlap, {name}", float(followed[part].sum() / by_state[part].sum()))
        for name, part in zip(names, parts, strict=True)
    ]


def half_width(e: Evaluated, share: float) -> float:
    """Half-width of the difference's interval with another share of the same people held out.

    ``e``: holds the released variances.
    """
    times = share / e.share
    now, then = (math.sqrt(e.person_variance / max(e.people, 1) / x + e.noise_variance / x**2) for x in (1.0, times))
    fixed = fixed_width(e)
    half = fixed + (float(e.half_width) - fixed) * then / now if now > 0 else float(e.half_width)
    return half + widened(e) * max(0.0, half - float(e.improvement.estimate))


_ROLES = {"agent": "the agent", "plain": "without noise", "control": "control"}


def played_opening(report: Report, sim: Simulation) -> Opening:
    """The answer, picture and guarantee of a simulated run."""
    data, promise = report.dataset, report.guarantee
    what = "A controller" if isinstance(data, DeclaredPlant) else "A policy"
    learnt = (
        f"{what} for {clean(sim.world)}, learnt by {clean(report.agent)} while {number(sim.episodes)} simulated "
        f"episodes came one by one, {_each(data)}; an episode has {number(data.horizon)} steps."
    )
    agent, communication = sim.agents[0], sim.communication
    cost = loss(promise.rho, promise.epsilon, promise.delta, pure=promise.pure)
    seeds = f"{agent.runs} seed{'s' * (agent.runs > 1)}"
    # one run tells no spread
    spread = f" ± {number(agent.regret.std)}" if agent.runs > 1 else ""
    words = f"regret while learning: {number(agent.regret.mean)}{spread} over {seeds}"
    asked = ", ".join(f"{clean(k)} = {number(v)}" for k, v in promise.asked.items())
    sends = () if communication is None else (f"a user sends {number(communication.bits)} bits",)
    cards = (
        AnswerCard(f"The policy of seed {sim.seed} loses", number(sim.suboptimality), (words,)),
        AnswerCard(
            "A deployment would promise", cost, (f"asked: {asked}, {clean(promise.calibration)}",) if asked else ()
        ),
        AnswerCard("Trust model", clean(promise.trust_model), (_each(data), *sends)),
    )
    lines = {
        a.agent: Line(a.curve.episodes, a.curve.mean, a.curve.std, control=a.role == "control") for a in sim.agents
    }
    return Opening(
        title=f"{what} learnt online in {clean(sim.world)}",
        answer=played_answer(sim),
        why=(to_decide(sim), learnt),
        figure=draw_curves({sim.world: lines}, "regret", f"{sim.agents[0].agent} and what plays beside it"),
        below=() if sim.proposal is None else (f"Proposal: {sim.proposal}.",),
        cards=cards,
        guarantee=clean(promise.sentence),
        claim=f"Claim made: {clean(promise.claim)}.",
        banner="simulation, not private: the noise is seeded and the people are invented.",
    )


def to_decide(sim: Simulation) -> str:
    """Sentence on the agents that are clearly worse, and clearly better."""
    own_loss = sim.agents[0].suboptimality
    if own_loss is None:
        return "The agent emits no policy."
    if sim.runs == 1:
        return "One seed tells what its policy loses, not whether the agent does better than what plays beside it."
    idle = next((a.suboptimality for a in sim.agents[1:] if a.agent == "zero"), None)
    if idle is not None and abs(own_loss.least - idle.mean) + abs(own_loss.most - idle.mean) <= 1e-9 * idle.mean:
        return "It never left zero: its controller does nothing, and is worth what doing nothing is."
    others = [(a, a.suboptimality) for a in sim.agents[1:] if a.suboptimality is not None]
    if not others:
        return "No other policy was played beside it."
    beaten = [a.agent for a, s in others if _end(own_loss, 1) < _end(s, -1)]
    lost = [a.agent for a, s in others if _end(own_loss, -1) > _end(s, 1)]
    if not beaten and not lost:
        return "Its policy is neither clearly better nor clearly worse than any beside it."
    better = f"clearly better than that of {listing(beaten)}" if beaten else ""
    worse = f"clearly worse than that of {listing(lost)}" if lost else ""
    return f"Its policy is {'; '.join(filter(None, (better, worse)))}."


def lost_section(sim: Simulation) -> Section:
    """Suboptimality of the emitted policies, exactly, and its interval over seeds."""
    words = [
        "Suboptimality: v* − v of the policy that an agent emits after the last episode, exactly, by planning in the "
        f"known world; v* = {number(sim.optimum)}. This run's own policy, that of seed {sim.seed}, loses "
        f"{number(sim.suboptimality)}. Intervals: Student's, of the mean over seeds; where runs of an agent agree, of "
        "what a share of seeds that none of them shows may lose."
    ]
    if sim.price is not None:
        beside = next(clean(a.agent) for a in sim.agents if a.role == "plain")
        plain = next(a.suboptimality for a in sim.agents if a.role == "plain")
        own, middle = sim.agents[0].suboptimality, ""
        if own is not None and plain is not None and own.median is not None and plain.median is not None:
            middle = f"; by medians {_more(own.median - plain.median)}"
        words.append(f"Beside {beside}, which adds no noise, its policies lose on average {_more(sim.price)}{middle}.")
    rows = [
        (clean(a.agent), _ROLES[a.role], clean(a.trust), *_row(a.suboptimality), f"{a.runs}")
        for a in sim.agents
        if a.suboptimality is not None
    ]
    head = "Agent | Is | Trust | Mean | Median | Interval of the mean | Least | Most | Runs"
    losses = table(head, rows, "Suboptimality, reward units an episode", "Mean | Median | Least | Most | Runs")
    return Section("suboptimality", "What the policy loses", tuple(words), tables=(losses,))


def _more(price: float) -> str:
    return f"{number(abs(price))} {'less' if price < 0 else 'more'}" if price else "as much"


def regret_section(sim: Simulation) -> Section:
    """Regret while learning: totals; the curves stand first on the page."""
    stds = [a.regret.std if a.runs > 1 else None for a in sim.agents]
    rows = [(clean(a.agent), clean(a.trust), *_row(a.regret), number(s)) for a, s in zip(sim.agents, stds, strict=True)]
    head = "Agent | Trust | Mean | Median | Interval of the mean | Least | Most | Std"
    totals = table(
        head, rows, f"Total regret after {number(sim.episodes)} episodes", "Mean | Median | Least | Most | Std"
    )
    words = ["What the users lost while the agent learned, exactly. Controls learn nothing. The curves stand above."]
    if any("long_batches" in a.facts for a in sim.agents):
        words.append(
            "Of batches longer than 4,096 episodes the first 4,096 are played, and exact means stand for the others."
        )
    return Section("regret", "Regret", tuple(words), tables=(totals,))


def agents_section(sim: Simulation, constants: PlayedConstants) -> Section:
    """Every option, and each agent's facts on its first run."""
    options = [(clean(k), "derived" if v is None else clean(str(v))) for k, v in constants.options.items()]
    rows = [(clean(a.agent), clean(k.replace("_", " ")), clean(v)) for a in sim.agents for k, v in a.facts.items()]
    tables = (
        table("Option | Value", options, "[agent]"),
        table("Agent | Fact | Value", rows, "What each said of its first run", grouped=True),
    )
    return Section("agents", "Agents and options", (clean(constants.policy.source["chosen"]),), tables=tables)


def communication_section(sim: Simulation) -> Section | None:
    """Size of one user's messages; None where users send none."""
    if (sent := sim.communication) is None:
        return None
    rows = [("To", clean(sent.who)), ("Messages", number(sent.messages)), ("Bits together", number(sent.bits))]
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


def _row(s: Spread) -> tuple[str, ...]:
    between = "–" if s.lower is None or s.upper is None else interval(s.lower, s.upper)
    return number(s.mean), number(s.median), between, number(s.least), number(s.most)


def _end(s: Spread, side: int) -> float:
    end = s.upper if side > 0 else s.lower
    return s.mean if end is None else end


def played_answer(sim: Simulation) -> str:
    """Sentences on the suboptimality of the emitted policies over seeds, and on the regret while learning."""
    return f"{_at_the_end(sim)} {_meanwhile(sim)}"


def _meanwhile(sim: Simulation) -> str:
    agent, beside = sim.agents[0], [a for a in sim.agents[1:] if a.role == "control"]
    best = min(beside, key=lambda a: a.regret.mean, default=None)
    control = (
        "" if best is None else f", where {clean(best.agent)}, which learns nothing, loses {number(best.regret.mean)}"
    )
    if "logged" in agent.variant:
        met = f"the {number(sim.episodes)} who then meet it lose"
        return f"It was learnt from logs; {met} {number(agent.regret.mean)}{control}."
    return f"The {number(sim.episodes)} episodes from which it learnt lost {number(agent.regret.mean)} in all{control}."


def _at_the_end(sim: Simulation) -> str:
    s, best = sim.agents[0].suboptimality, f"against the best policy's {number(sim.optimum)}"
    if s is None or sim.runs == 1:
        return f"The policy loses {number(sim.suboptimality)} an episode {best}."
    between = ""
    if s.lower is not None and s.upper is not None and not one_number(s.lower, s.upper):
        between = f" ({interval(s.lower, s.upper)})"
    return f"Its policies lose {number(s.mean)} an episode on average over {sim.runs} seeds{between}, {best}."
