"""Pages of linear controllers: whatever coordinates are called, and however many there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.goldens.places import HOME
from tests.jobs import facts_of
from tests.reports.sample import drawn, gains_view, in_words, report_of

NASTY = ["<script>alert(1)</script>", "a | b", "place"]


def report(
    names: list[str], *, kind: str = "real", left_zero: bool = True, actions: list[str] | None = None, horizon: int = 3
) -> Any:
    """That of a committed run, with these coordinates."""
    told, eye = facts_of(HOME / "runs" / "control-0fe3879882").model_dump(), np.eye(len(names)).tolist()
    vector = {"names": names, "scale": [1.0] * len(names), "radius": 1.0}
    controls = {"kind": kind, "horizon": horizon, "observation": vector, "action": vector | {"names": actions or names}}
    told["dataset"] |= controls | {"cost": {"Q": eye, "R": eye}, "noise_covariance": eye}
    told["guarantee"]["data_kind"] = kind
    told["constants"] |= {"directions": [3.0, -1.0], "floor": 2.0}
    told["policy"]["left_zero"] = left_zero
    of = ("v_star", "v_policy", "v_policy_model", "v_zero", "v_certainty", "v_fixed_gain", "v_behavior", "v_uniform")
    truth = dict.fromkeys(of, -1.0) | {"suboptimality": 0.0}
    return report_of(told | {"model": {"A": eye, "B": eye}, "truth": truth})


def view(names: list[str], gain: float = 0.5) -> Any:
    return gains_view(names, names, np.full((3, len(names), len(names)), gain))


def test_names_are_text_whatever_they_hold():
    html, page = drawn(report(NASTY), view(NASTY))
    assert "<script>alert" not in html and "&lt;script&gt;" in html and "<script>" not in page
    head = next(line for line in page.splitlines() if line.startswith("| Control"))
    assert head.count("|") - head.count("\\|") == 6


def test_truth_is_shown_for_synthetic_plants_only():
    for kind, shown in (("real", False), ("synthetic", True)):
        assert ("In the true plant" in in_words(report(["x"], kind=kind), view(["x"]))) is shown


def test_a_controller_that_does_nothing_is_called_so():
    page = in_words(report(["x"], left_zero=False), view(["x"], 0.0))
    assert "All gains are zero" in page and "does nothing" in page
    assert "does nothing" not in in_words(report(["x"]), view(["x"]))


def test_directions_in_the_noise_are_told():
    page = in_words(report(["x"]), view(["x"]))
    assert "1 of 2 directions lie below the noise floor" in page and "both tables come from the same rows" in page


def test_the_figure_shows_the_largest_gains_and_says_what_it_leaves_out():
    names = [f"x{i}" for i in range(4)]
    gains = np.arange(16.0).reshape(1, 4, 4) * np.ones((3, 1, 1))
    note = "largest gains, of"
    assert f"the 6 {note} 16" in in_words(report(names), gains_view(names, names, gains))
    assert note not in in_words(report(["x"]), view(["x"]))
    assert "4.4 x3 for x3" in drawn(report(names), gains_view(names, names, gains))[0]
    with pytest.raises(ValueError, match=r"gains must be \(H, 1, 1\)"):
        gains_view(["x"], ["u"], np.zeros((3, 2, 1)))
