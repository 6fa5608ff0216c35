"""A policy over declared states, as written, read back and shown."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.agents.against_behaviour import AgainstPractice
from pipeline.learners.policy_files import Exported, PolicyFiles, StoredDecisions, decision_files, policy_of
from pipeline.learners.tabular_facts import practice_facts
from pipeline.mdp.policy import Policy


def test_it_is_read_back_as_emitted(make_card, tmp_path):
    """A state with one likely action is no state in which the policy abstains."""
    p = np.zeros((2, 2, 2))
    p[0, 0], p[1, 1] = [1.0, 0.0], [0.25, 0.75]
    policy = Policy(p, p.sum(-1) == 0)
    files = decision_files(make_card(), policy)
    written = {stem: pq.read_table(tmp_path / f"{stem}.parquet") for stem in files.write(tmp_path)}
    labels = json.loads((tmp_path / "policy.json").read_text(encoding="utf-8"))
    tables = {stem: {name: table[name].to_numpy() for name in table.column_names} for stem, table in written.items()}
    back = policy_of(PolicyFiles(labels, tables))
    np.testing.assert_array_equal(back.probabilities, policy.probabilities)
    np.testing.assert_array_equal(back.abstains, policy.abstains)


@pytest.mark.parametrize(("silent", "more"), [(8, ""), (9, " and 1 more")])
def test_eight_silent_states_are_named_and_the_rest_is_counted(silent, more):
    policy = Policy(np.zeros((1, silent, 2)), np.ones((1, silent), dtype=bool))
    labels = [f"s{i}" for i in range(silent)]
    tied, stored = np.zeros((1, silent), dtype=bool), {"states": labels, "actions": ["go", "stay"]}
    line = StoredDecisions(Exported("", "", ""), policy, stored, tied, tied).shown()[1][-1]
    assert line.endswith(": " + ", ".join(labels[:8]) + more)


def test_shares_of_practice_are_of_the_cells_that_speak():
    p = np.zeros((2, 2, 2))
    p[..., 0] = 1
    policy = Policy(p, np.array([[False, False], [False, True]]))
    gain = np.array([[1.0, np.nan], [np.nan, np.nan]])
    facts = practice_facts(AgainstPractice(np.ones((2, 2)), gain, np.zeros((2, 2), dtype=bool)), policy)
    assert facts.known_share == pytest.approx(1 / 3) and len(facts.cells) == 1
    nobody = Policy(np.zeros((2, 2, 2)), np.ones((2, 2), dtype=bool))
    assert practice_facts(AgainstPractice(gain, gain * np.nan, gain > 9), nobody).known_share == 0
