"""A log of gymnasium's CartPole in Minari's layout: ``python -P -m tests.campaigns.cartpole_log FOLDER [EPISODES]``.

The logging policy is mediocre: three times in ten it pushes to where the pole falls, else it tosses a coin.
"""

import sys
from pathlib import Path

import gymnasium
import h5py
import numpy as np
from numpy.typing import NDArray

STEPS, SKILL = 20, 0.3
Array = NDArray[np.float64]


def simulate(episodes: int, steps: int = STEPS, seed: int = 0) -> tuple[Array, Array, NDArray[np.int64]]:
    """Observations ``(E, H+1, 4)``, actions ``(E, H)`` and lengths ``(E,)``: until the pole falls, or H steps."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=episodes, vectorization_mode="vector_entry_point")
    rng, (seen, _) = np.random.default_rng(seed), env.reset(seed=seed)
    observations, actions, lengths = [seen.astype(np.float64)], [], np.full(episodes, steps)
    for h in range(steps):
        good = seen[:, 2] + 0.5 * seen[:, 3] > 0
        action = np.where(rng.random(episodes) < SKILL, good, rng.random(episodes) < 0.5).astype(np.int64)
        seen, _, fallen, _, _ = env.step(action)
        lengths = np.where(fallen & (lengths == steps), h + 1, lengths)
        observations.append(seen.astype(np.float64))
        actions.append(action)
    return np.stack(observations, axis=1), np.stack(actions, axis=1), lengths


def write_minari(folder: Path, episodes: int, steps: int = STEPS, seed: int = 0) -> Path:
    """Write ``main_data.hdf5``: T actions between T + 1 observations, one group an episode."""
    folder.mkdir(parents=True, exist_ok=True)
    observations, actions, lengths = simulate(episodes, steps, seed)
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for i, (x, a, n) in enumerate(zip(observations, actions, lengths, strict=True)):
            group, over = file.create_group(f"episode_{i}"), np.arange(n) == n - 1
            group.attrs["id"], group.attrs["total_steps"] = i, n
            # an episode that reaches the last step is cut there; the others end because the pole fell
            fell = n < steps
            group["observations"], group["actions"], group["rewards"] = x[: n + 1], a[:n], np.ones(n)
            group["terminations"], group["truncations"] = over & fell, over & (not fell)
    return folder / "main_data.hdf5"


if __name__ == "__main__":
    print(write_minari(Path(sys.argv[1]), int((sys.argv[2:] or ["40000"])[0])))
