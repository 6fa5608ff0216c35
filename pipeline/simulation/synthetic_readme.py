"""README.md of a simulated log: what it is, how it was made, what it is good for and what not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.simulation.synthetic_from_release import ReleasedRun

_USE = """**Use it**

```sh
reticent ingest {folder}
reticent run {folder}/recipe.toml
```
"""


def world_readme(
    *,
    name: str,
    world: str,
    params: Mapping[str, Any],
    log: Mapping[str, Any],
    values: Mapping[str, float],
    command: str,
) -> str:
    """README of a log of a known world.

    Parameters
    ----------
    name
        Of the new dataset.
    world, params
        The world and its arguments.
    command
        The command line that writes the same bytes.
    log
        What was simulated: horizon, behaviour, episodes, seed, in words and numbers.
    values
        Name of a policy -> exact value of one episode.
    """
    settings = ", ".join(f"{k} = {v}" for k, v in params.items()) or "its defaults"
    rows = "\n".join(f"| {policy} | {value:.6g} |" for policy, value in values.items())
    made = "\n".join(f"| {k} | {v} |" for k, v in log.items())
    return f"""# {name}: simulated episodes of {world}

**Not people.** Every row is drawn from a world whose parameters are known ({world}; {settings}).
Reports on this log can therefore say what is true beside what was learnt (`truth`); `world.toml` is where they find
the world.

| the log | |
|---|---|
{made}

Exact values of one episode, in the world's own reward units, by dynamic programming:

| policy | value |
|---|---|
{rows}

**Made by** `{command}`. The same command and library versions write the same bytes.

{_USE.format(folder="THIS_FOLDER")}"""


def release_readme(*, name: str, run: ReleasedRun, episodes: int, seed: int, command: str) -> str:
    """README of a log sampled from a released model.

    Parameters
    ----------
    name
        Of the new dataset.
    run
        The run whose release was sampled.
    episodes, seed
        Of the log.
    command
        The command line that writes the same bytes.
    """
    g = run.guarantee
    return f"""# {name}: synthetic episodes from a release

Every row is drawn from the model that run `{run.name}` released of the dataset `{run.dataset.name}`:
start, transitions, rewards and logging policy are ratios of its noisy counts. **No row is anybody's record**, and no
record was read to make one: {episodes} episodes, seed {seed}.

**Privacy.** This log costs nothing beyond the release it was made from, however many episodes are drawn, and promises
what that release promises, no more:

> {g.sentence}

Claim: {g.claim}.

**Good for**: trying the pipeline; teaching; showing a partner the format; load tests.

**Not good for**

- *evidence*: whatever is found here re-reads the one release; more episodes tell nothing more about people, and the
  intervals of a run on this log concern the released model, not the people behind it;
- *small cells*: where few people were, the counts are mostly noise, and so is what is sampled from them;
- *effects of actions*: what the released states do not hold is lost, and so is every link between steps beyond them;
- *sums of rewards*: a step's reward is drawn beside its released mean, whatever comes next; where a person's total is
  declared, an episode is paid up to it and no further.

In a state that the counts never saw, actions are uniform over the allowed ones; an unvisited cell leads anywhere.

**Made by** `{command}`. The same command and library versions write the same bytes.

{_USE.format(folder="THIS_FOLDER")}"""


def release_about(run: ReleasedRun, episodes: int) -> list[str]:
    """Head of the card of a log sampled from a released model: the README in four lines."""
    return [
        f"{episodes} episodes from what run {run.name} released of {run.dataset.name}; no record was read.",
        "Good for trying the pipeline, teaching, sharing the format, load tests.  No new evidence: any analysis",
        "re-reads the one release, small cells are noise, effects of actions cannot be estimated.  Costs nothing",
        "beyond that release and promises what it promises: see README.md.",
    ]
