"""The step that an adaptive regression asks with is the one its key names."""

from __future__ import annotations

import numpy as np

from pipeline.agents.linear_backup import Backup, LinearTask, greedy_step


def test_an_action_without_a_feature_is_chosen_as_before_where_no_evidence_is_asked_for():
    """V is the next question of DP-VAPVI: to leave an action out there would ask another one under the same key."""
    reference = np.array([[[0.0, 0.0], [3.0, 1.0]]])
    task = LinearTask(2, (0.0, 1.0), 100, reference, 0.25, 64, False)
    backup = Backup(np.array([-1.0, 0.0]), np.eye(2) * 0.01, 0.5, 0.1, 0.0, (0.0, 2.0), 0.25, 64)
    chosen, value, _ = greedy_step(backup, task, np.random.default_rng(0))
    assert chosen.tolist() == [[1.0, 0.0]] and value[0] == 0.5
    asked, less, _ = greedy_step(backup, task, np.random.default_rng(0), 0.0)
    assert asked.tolist() == [[0.0, 1.0]] and less[0] < value[0]
