"""The public features of a world's states, as the table that lies beside a card."""

from __future__ import annotations

import numpy as np

from pipeline.declaration.state_features import StateFeatures, table_of_features
from pipeline.environments.world import World

# its file beside a card
FEATURES = "states.parquet"


def world_features(world: World) -> StateFeatures | None:
    """The public features of a world's live states as a table beside a card; None where it has none."""
    live = np.flatnonzero(~world.terminal)
    if not world.state_features:
        return None
    values = np.stack([column[live] for column in world.state_features.values()], axis=1)
    return table_of_features(FEATURES, [world.raw_labels[s] for s in live], list(world.state_features), values)
