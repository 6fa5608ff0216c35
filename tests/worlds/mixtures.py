"""Tabular worlds as mixtures, for tests."""

from pipeline.mdp.features import one_hot
from pipeline.worlds.catalog import Mixture
from pipeline.worlds.world import World


def tabular_mixture(world: World, horizon: int | None = None) -> Mixture:
    """Any tabular world with one-hot features; ``theta`` are its transition probabilities."""
    mdp = world.mdp(world.steps(horizon))
    return Mixture(world.name, mdp, one_hot(*world.shape), mdp.transitions.reshape(mdp.horizon, -1))
