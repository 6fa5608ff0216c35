"""One-step improvement in known worlds: true values over fresh logs and noises, beside what else one could do.

Run it as ``python -P -m tests.campaigns.one_step_figures``; a part of it with names of worlds.  It measures the rows
that ``results/one_step.csv`` lacks, or whose code has changed.  Seeds from 9000 on tuned nothing.  Simulation: seeded
noise.
"""

from __future__ import annotations

import sys
from datetime import date

import numpy as np

from pipeline.agents.pessimism import constants
from pipeline.declaration.card import task_of
from pipeline.declaration.lineage import Nightly
from pipeline.learners.forecast import night_shares, one_step_policy
from pipeline.learners.one_step import OneStepLearner
from pipeline.learners.terms import Privacy, Terms
from pipeline.mdp.planning import greedy, optimal_values, policy_value
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation import logged_trials
from pipeline.simulation.simulate import sample_people
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from tests.campaigns.one_step_worlds import WORLDS
from tests.campaigns.rows import out_of_date, place, read, write

NAME, OF = "one_step", "python -P -m tests.campaigns.one_step_figures"
KEYS = ("world", "people", "rho", "agent", "seed")
TITLES = {
    "clinicians": "ICU-Sepsis logged by its clinicians, 713 states and 25 actions",
    "retention": "A shop's customers, 240 states and 6 offers, logged by a shop that is nearly greedy",
    "lake": "Gymnasium's FrozenLake 8 × 8, logged by a mediocre policy",
}
LOGS, NIGHT_LOGS, FIRST = 10, 2, 9000
CELLS = {
    "clinicians": [(100_000, (1.0, 0.1)), (20_000, (1.0, 0.1)), (300_000, (1.0,))],
    "retention": [(20_000, (1.0, 0.1)), (100_000, (1.0, 0.1))],
    "lake": [(5_000, (1.0, 0.1)), (50_000, (1.0, 0.1))],
}
# one counter of so many nights: name -> epoch, and share of all people who come on the first night (0: as on any)
YEAR = 360
NIGHTS = {
    **{f"nights, epoch {e}": (e, 0.0) for e in (360, 180, 90, 30)},
    "nights, epoch 360, half on the first": (360, 0.5),
}
# a table of transitions of all states of the clinicians' world has 13 million cells: counts drown there
COUNTED = ("retention", "lake")


def one_step(logged, people, rho, seed):
    """Policy of one run."""
    agent, privacy = ("one-step", None) if rho is None else ("dp-one-step", Privacy(rho=rho))
    terms = Terms("campaign", agent, privacy)
    return one_step_policy(OneStepLearner().plan(logged.card, terms).plan, terms, [people], SeededNoise(seed))


def nightly(logged, n, epoch, first, seed):
    """Policy of the last night of an epoch of a year's counter at rho = 1; ``first``: of all people, on night 1."""
    nights = Nightly(nights=YEAR, first=date(2026, 1, 1), counter="toeplitz", epoch=epoch)
    terms = Terms("campaign", "dp-one-step", Privacy(rho=1.0), nightly=nights)
    plan, rng = OneStepLearner().plan(logged.card, terms).plan, np.random.default_rng(seed)
    values, gains = night_shares(plan)
    counts = [round(n * share) for share in (max(values, first), gains)]
    logs = [sample_people(logged.card, logged.mdp, logged.practice, k, rng) for k in counts]
    return one_step_policy(plan.once, terms, logs, SeededNoise(seed))


def counted(logged, n, rho, preset, seed):
    """Policy of DP-APVI on counts of as many people."""
    card, task = logged.card, task_of(logged.card)
    cells = task.horizon * task.allowed.size
    c = constants(preset, cells, 0.1, pooled=True)
    trial = logged_trials.Logged(card, task, logged.mdp, logged.practice, count_sum(card, Ask(rho)).mechanisms, c)
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


def run(world, done, write):
    """All rows of one world that are not there yet."""
    for n, budgets in CELLS[world]:
        logged = WORLDS[world](n)
        for name, value in references(logged).items():
            if (world, str(n), "", name, "") not in done:
                write(world, n, "", name, "", value, "")
        for seed in range(FIRST, FIRST + LOGS):
            agents = [("one-step", rho) for rho in (None, *budgets)]
            agents += [
                (f"apvi {c}", rho) for rho in (None, *budgets) for c in ("practical", "tail") if world in COUNTED
            ]
            few = (world, n) == ("clinicians", 100_000) and seed < FIRST + NIGHT_LOGS
            agents += [(name, 1.0) for name in NIGHTS if few]
            left = [
                (a, rho)
                for a, rho in agents
                if (world, str(n), "" if rho is None else f"{rho:g}", a, str(seed)) not in done
            ]
            if not left:
                continue
            rng = np.random.default_rng(seed)
            people = sample_people(logged.card, logged.mdp, logged.practice, n, rng)
            for agent, rho in left:
                if agent == "one-step":
                    policy = one_step(logged, people, rho, seed)
                elif agent in NIGHTS:
                    policy = nightly(logged, n, *NIGHTS[agent], seed)
                else:
                    policy = counted(logged, n, rho, agent.removeprefix("apvi "), seed)
                value, rho_text = logged.worth(policy), "" if rho is None else f"{rho:g}"
                write(world, n, rho_text, agent, seed, value, float(policy.abstains.mean()))


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
            shown = [
                _shown([v for at, v in cells.items() if at[:2] == (n, rho) and _is(agent, at[2])])
                for rho, agent in columns
            ]
            lines.append(f"| {n:,} | {' | '.join(shown)} |".replace(",", " ", 1))
    return "\n".join(lines[1:])


def _is(wanted, agent):
    # of the presets of counts the better one is shown
    return agent.partition(" ")[0] == wanted


def _shown(found):
    """Of the presets that were tried, the best mean; a dash where there is none."""
    if not found:
        return "–"
    best = max(found, key=np.mean)
    return f"{np.mean(best):.4f}({1e4 * np.std(best, ddof=1) / len(best) ** 0.5:.0f})"


def main(worlds):
    """Measure what is missing, or out of date."""
    rows = [r for r in read(NAME) if not out_of_date(NAME, r)] if place(NAME).is_file() else []
    done = {tuple(r[k] for k in KEYS) for r in rows}

    def keep(world, n, rho, agent, seed, value, abstains):
        shown = f"{abstains:.4f}" if abstains != "" else ""
        of = dict(zip(KEYS, (world, n, rho, agent, seed), strict=True))
        write(NAME, [{**of, "value": f"{value:.6f}", "abstains": shown}], "of each row", KEYS, OF)

    for world in worlds or CELLS:
        run(world, done, keep)


if __name__ == "__main__":
    main(sys.argv[1:])
