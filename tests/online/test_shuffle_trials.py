"""SDP-PE, simulated: what its report says of elimination, of trust models, and of what is sent."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

GAME = {"name": "random", "states": 2, "actions": 2, "horizon": 3, "successors": 2, "seed": 5}
LARGE = {"name": "random", "states": 5, "actions": 3, "horizon": 5, "successors": 5}
ASKED = {"epsilon": 1, "episodes": 20_000, "certify": 0}


def test_it_says_what_elimination_did_and_what_was_delivered(simulate):
    said = simulate("sdp-pe", GAME, **ASKED)
    facts = said["facts"]
    assert facts["trust"] == "shuffle" and facts["variant"] == "practical, lean, pooled, exact bits"
    assert facts["fewest_fine"] == 669 and 669 < facts["tau_fine"] < 680
    assert facts["first_elimination"] < 20_000 and facts["policies_left"] < 64 and facts["slack"] < 0
    assert facts["optimum_kept"] == facts["stages"] == len(facts["by_stage"])
    assert facts["suboptimality"] == pytest.approx(said["suboptimality"])
    # users who return pay by group privacy
    twice = simulate("sdp-pe", GAME, **ASKED, episodes_per_user=2)["facts"]
    assert twice["true_epsilon"] <= 1 and "2 episodes a user" in twice["variant"]
    assert twice["tau_fine"] > 3 * facts["tau_fine"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trust": "joint"}, {"trust": "joint"}),
        ({"trust": "local"}, {"trust": "local"}),
        pytest.param(
            {"pooled": False}, {"variant": "practical, lean, forget, mixtures, exact bits"}, marks=pytest.mark.slow
        ),
        # a sample of targets is certified by the linear programme
        pytest.param({"certify": 3}, {"certified": 3}, marks=pytest.mark.slow),
    ],
)
def test_a_variant_says_what_it_is(simulate, options, says):
    facts = simulate("sdp-pe", GAME, **(ASKED | options))["facts"]
    assert {name: facts.get(name) for name in says} == says
    assert 0.98 < facts["true_epsilon"] <= 1.0
    assert facts.get("largest_difference", 0.0) < 1e-9


def test_the_paper_says_that_nothing_was_eliminated_and_what_its_bits_deliver(simulate):
    facts = simulate("sdp-pe", GAME, **ASKED, calibration="paper", constants="paper")["facts"]
    assert facts["first_elimination"] is None and facts["says"].startswith("nothing was eliminated in 20000 episodes")
    assert facts["variant"] == "paper, three tables, the paper's bits" and facts["true_epsilon"] < 0.1
    assert facts["policies_left"] == 64 and facts["tau_fine"] > 90_000


def test_a_world_without_enumeration(simulate):
    facts = simulate("sdp-pe", LARGE, **(ASKED | {"episodes": 10**6}))["facts"]
    assert facts["policies_left"] is None and facts["optimum_kept"] == facts["stages"]
    assert facts["fewest_fine"] == 1114


def first_batch(said):
    """Its noise bits and its sums."""
    folder = Path(said["folder"])
    told = json.loads((folder / "release.json").read_text(encoding="utf-8"))["mechanisms"][0]
    rows = pl.read_parquet(folder / "release.parquet").filter(pl.col("table") == "batch_0")
    return told["shuffled"], rows["value"].to_numpy()


def test_messages_that_are_sent_are_counted_as_the_law_says(simulate):
    """Every user walks alone and sends bytes; sums, noise bits and promise are those of the fast path."""
    sent, drawn = (simulate("sdp-pe", GAME, **(ASKED | {"episodes": 600}), protocol=p) for p in (True, False))
    (bits, one), (same, two) = first_batch(sent), first_batch(drawn)
    assert bits == same and sent["true_epsilon"] == drawn["true_epsilon"]
    q = bits["chance"] / 2**64
    sd = math.sqrt(bits["users"] * bits["each"] * q * (1 - q))
    # one draw each of every counter: the difference has twice the noise, and what two walks of the same users differ by
    away = (one - two) / math.sqrt(2 * sd**2 + bits["users"])
    assert np.abs(away).max() < 5 and abs(one.sum() - two.sum()) < 6 * sd * math.sqrt(2 * len(one))
