"""The slack a sampler adds to delta reaches the mechanism, the file and the sum; without it nothing changes."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.losses import spent_budget
from pipeline.privacy.noise import LARGEST_VARIANCE, TV_BOUND, FastOsNoise, OsNoise
from pipeline.privacy.release import Mechanism, Release, check_slack, total_delta_slack, with_sampler_slack
from pipeline.privacy.release_file import describe, describe_mechanism, mechanism_from, read_release, release_files
from tests.privacy.handles import REAL

GAUSSIAN = Mechanism("n_sa", (2, 3, 4), "user", 4, 4, "2H", variance=40)
LAPLACE = replace(GAUSSIAN, table="n_sas", shape=(2, 3, 4, 5), variance=None, scale=Fraction(8))
WIDE = replace(GAUSSIAN, variance=LARGEST_VARIANCE + 1)


def test_only_draws_of_the_table_add_to_delta():
    exact = with_sampler_slack((GAUSSIAN, LAPLACE, WIDE), OsNoise(), 3.0)
    assert exact == (GAUSSIAN, LAPLACE, WIDE) and total_delta_slack(exact) == 0
    assert with_sampler_slack((GAUSSIAN,), OsNoise(), 2000.0) == (GAUSSIAN,)
    fast = with_sampler_slack((GAUSSIAN, LAPLACE, WIDE), FastOsNoise(), 3.0)
    assert fast[1:] == (LAPLACE, WIDE)
    by_hand = (1 + Fraction(math.exp(3.0))) * 24 * TV_BOUND
    assert by_hand <= total_delta_slack(fast) <= by_hand * (1 + Fraction(1, 10**11))
    with pytest.raises(ValueError, match="finite epsilon"):
        with_sampler_slack((GAUSSIAN,), FastOsNoise(), math.inf)


def test_less_than_twice_the_distance_of_all_draws_is_refused_and_that_is_accepted():
    """At ε = 0 either neighbour's draws may be off: once is half of what delta loses."""
    least = 2 * GAUSSIAN.drawn * TV_BOUND
    check_slack([replace(GAUSSIAN, delta_slack=least)], FastOsNoise())
    check_slack(with_sampler_slack((GAUSSIAN, LAPLACE, WIDE), FastOsNoise(), 0.0), FastOsNoise())
    for short in (Fraction(0), least / 2, least * Fraction(99, 100)):
        with pytest.raises(ValueError, match="share of delta is not counted"):
            check_slack([replace(GAUSSIAN, delta_slack=short)], FastOsNoise())


def test_slacks_of_all_tables_add_and_all_are_taken_from_delta():
    """One sampler's share may hide beside another's: the sum counts, not the largest."""
    both = tuple(replace(GAUSSIAN, delta_slack=Fraction(1, 10**n)) for n in (7, 6))
    assert total_delta_slack(both) == Fraction(11, 10**7)
    left = float(Fraction(1, 10**5) - Fraction(11, 10**7))
    assert spent_budget(both, 1e-5)["epsilon"] == pytest.approx(
        epsilon_from_rho(2 * float(GAUSSIAN.rho), left), rel=1e-9
    )


def test_a_description_without_slack_is_what_it_was_and_with_it_survives_the_file(tmp_path):
    assert "delta_slack" not in describe_mechanism(GAUSSIAN)
    assert list(describe_mechanism(GAUSSIAN)) == [
        *("name", "table", "shape", "cells", "unit", "l2_squared", "l1", "sensitivity", "sensitivity_rule"),
        *("variance", "laplace_scale", "scale", "rho", "rho_exact", "epsilon"),
    ]
    (slack,) = with_sampler_slack((GAUSSIAN,), FastOsNoise(), 1.0)
    assert mechanism_from(describe_mechanism(slack)) == slack and mechanism_from(describe_mechanism(GAUSSIAN)) == (
        GAUSSIAN
    )
    noise = FastOsNoise()
    drawn = noise.gaussian(24, 40, REAL).reshape(2, 3, 4)
    release = Release("d", "real", "per_step", (slack,), {"n_sa": np.asarray(drawn)}, noise.name, noise.sampler)
    for name, content in release_files(release).items():
        (tmp_path / name).write_bytes(content)
    assert read_release(tmp_path).delta_slack == release.delta_slack == slack.delta_slack > 0
    assert "inversion with lazy bits" in describe(release)["sampler"] and describe(release)["noise"] == "os"


def test_a_row_of_the_file_names_the_place_of_its_integer(tmp_path):
    drawn = np.arange(24).reshape(2, 3, 4)
    release = Release("d", "real", "per_step", (GAUSSIAN,), {"n_sa": drawn}, "os", "exact")
    (tmp_path / "release.parquet").write_bytes(release_files(release)["release.parquet"])
    rows = pq.read_table(tmp_path / "release.parquet").to_pylist()
    assert len(rows) == 24 and all(row["value"] == drawn[row["step"], row["state"], row["action"]] for row in rows)
