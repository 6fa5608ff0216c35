"""Edits of every field and file of a published run are caught, in a sample of them."""

from __future__ import annotations

import pytest

from tests.campaigns import mutations

# edits that only an insider can make so that nothing tells; docs/ledger.md says why
INSIDE = ("recipe.toml",)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return list(mutations.publish_runs(tmp_path_factory.mktemp("mutated")))


def test_an_honest_run_of_each_kind_is_made_again_whole(runs):
    for run in runs:
        proof = mutations.verify_run_job(run.folder, lambda run=run: run.entries, run.card)
        assert proof.ok and proof.vouched and all(c.ok for c in proof.checks), (run.name, proof)


def test_a_sample_of_edits_is_caught_from_outside_and_inside(runs):
    rows = mutations.campaign(runs, lambda i: i % 173 == 7)
    assert len(rows) >= 40
    assert not [r for r in rows if r["outside"] == "-"]
    assert not [r for r in rows if r["inside"] == "-" and not r["edit"].startswith(INSIDE)]
