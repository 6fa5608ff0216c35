"""One-step improvement in known worlds: true values over fresh logs and noises, beside what else one could do.

Run it as ``python -P -m tests.campaigns.one_step_figures``; a part of it with names of worlds.  It measures the rows
that ``results/one_step.csv`` lacks, or whose code has changed.  Seeds from 9000 on tuned nothing.  Simulation: seeded
noise.
"""

import numpy as np

from pipeline.agents.pessimism import constants
from pipeline.declaration.card import task_of
from pipeline.learners.forecast import one_step_learnt
from pipeline.learners.one_step_learning import OneStepLearner
from pipeline.learners.terms import Privacy, Terms
from pipeline.mdp.planning import greedy, optimal_values, policy_value
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.worlds.simulated_logs import sample_people
from pipeline.worlds.surrogate import Logged
from tests.campaigns.one_step_worlds import WORLDS
from tests.campaigns.resumed import resumed
from tests.campaigns.rows import read, write

NAME = "one_step"
FIELDS = ("world", "people", "rho", "agent", "seed", "value", "abstains")
TITLES = {
    "clinicians": "ICU-Sepsis logged by its clinicians, 713 states and 25 actions",
    "retention": "A shop's customers, 240 states and 6 offers, logged by a shop that is nearly greedy",
    "lake": "Gymnasium's FrozenLake 8 × 8, logged by a mediocre policy",
}
LOGS, FIRST = 10, 9000
CELLS = {
    "clinicians": [(100_000, (1.0, 0.1)), (20_000, (1.0, 0.1)), (300_000, (1.0,))],
    "retention": [(20_000, (1.0, 0.1)), (100_000, (1.0, 0.1))],
    "lake": [(5_000, (1.0, 0.1)), (50_000, (1.0, 0.1))],
}
# a table of transitions of all states of the clinicians' world has 13 million cells: counts drown there
COUNTED = ("retention", "lake")


def one_step(logged, people, rho, seed):
    agent, privacy = ("one-step", None) if rho is None else ("dp-one-step", Privacy(rho=rho))
    terms = Terms("campaign", agent, privacy)
    return one_step_learnt(OneStepLearner().plan(logged.card, terms).plan, terms, people, SeededNoise(seed)).policy


def counted(logged, n, rho, preset, seed):
    """Policy of DP-APVI on counts of as many people."""
    card, task = logged.card, task_of(logged.card)
    cells = task.horizon * task.allowed.size
    c = constants(preset, cells, 0.1, pooled=True)
    trial = Logged(card, task, logged.mdp, logged.practice, count_sum(card, Ask(rho)).mechanisms, c)
    counts = trial.counts(n, np.random.default_rng(seed))
    return trial.plan(counts, SeededNoise(seed + 1), np.random.default_rng(seed + 2)).policy


def references(logged):
    """Values of policies that need no log."""
    H, S, A = logged.mdp.shape
    steady = {f"always {a}": np.broadcast_to(np.eye(A)[a], (H, S, A)) for a in range(A)}
    values = {name: policy_value(logged.mdp, p) for name, p in steady.items()}
    best = max(values, key=values.__getitem__)
    return {
        "practice": policy_value(logged.mdp, logged.practice),
        "uniform": policy_value(logged.mdp, np.full((H, S, A), 1 / A)),
        f"best constant ({best})": values[best],
        "optimum": policy_value(logged.mdp, greedy(optimal_values(logged.mdp)[0])),
    }


def log(world, n, seed):
    """Value and share of abstentions of every agent on one log."""
    logged, found = WORLDS[world](n), {}
    people = sample_people(logged.card, logged.mdp, logged.practice, n, np.random.default_rng(seed))
    for rho in (None, *dict(CELLS[world])[n]):
        policies = {"one-step": one_step(logged, people, rho, seed)}
        if world in COUNTED:
            policies |= {f"apvi {c}": counted(logged, n, rho, c, seed) for c in ("practical", "tail")}
        for agent, policy in policies.items():
            value = f"{logged.worth(policy):.6f}, {float(policy.abstains.mean()):.4f}"
            found[f"{'' if rho is None else f'{rho:g}'}, {agent}"] = value
    return found


def measured(worlds):
    """A row an agent and log, and one for each policy that needs no log."""
    for world in worlds:
        for n, _ in CELLS[world]:
            for name, value in references(WORLDS[world](n)).items():
                yield dict(zip(FIELDS, (world, n, "", name, "", f"{value:.6f}", ""), strict=True))
            for seed in range(FIRST, FIRST + LOGS):
                [found] = resumed(NAME, [f"{world} {n} {seed}"], lambda _, of=(world, n, seed): log(*of))
                for of, told in found.items():
                    cells = (world, n, *of.split(", "), seed, *str(told).split(", "))
                    yield dict(zip(FIELDS, cells, strict=True))


def page(name):
    """A table a world: means over fresh logs and noises with the standard error in the last digits."""
    lines = []
    for world, title in TITLES.items():
        cells, known = {}, {}
        for r in (r for r in read(name) if r["world"] == world):
            cells.setdefault((int(r["people"]), r["rho"], r["agent"]), []).append(float(r["value"]))
        for (_, _, agent), values in cells.items():
            if agent in ("practice", "uniform", "optimum") or agent.startswith("best"):
                known[agent] = f"{agent} {values[0]:.4f}"
        lines += ["", f"**{title}**: {', '.join(known.values())}.", ""]
        columns = [(rho, agent) for rho in ("0.1", "1", "") for agent in ("one-step", "apvi")[: 1 + (world in COUNTED)]]
        told = [f"{'ρ = ' + rho if rho else 'without noise'}{', counts' * (a == 'apvi')}" for rho, a in columns]
        lines += [f"| people | {' | '.join(told)} |", "|---" * (1 + len(columns)) + "|"]
        for n in sorted({n for n, _, _ in cells}):
            # of the presets of counts the better one is shown
            shown = [
                _shown([v for (*at, a), v in cells.items() if at == [n, rho] and a.partition(" ")[0] == agent])
                for rho, agent in columns
            ]
            lines.append(f"| {n:,} | {' | '.join(shown)} |".replace(",", " ", 1))
    return "\n".join(lines[1:])


def _shown(found):
    """Of the presets that were tried, the best mean; a dash where there is none."""
    if not found:
        return "–"
    best = max(found, key=np.mean)
    return f"{np.mean(best):.4f}({1e4 * np.std(best, ddof=1) / len(best) ** 0.5:.0f})"


if __name__ == "__main__":
    write(NAME, [*measured(CELLS)])
