"""Pages of a policy or of a linear controller: what they say, whatever things are called and however many there are."""

import os
import subprocess
import sys
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest

from reports.run.policy_sections import runs
from tests.goldens.places import HOME
from tests.jobs import facts_of
from tests.reports.sample import (
    Page,
    abstaining,
    drawn,
    gains_view,
    in_words,
    report_of,
    sample_facts,
    sample_report,
    sample_view,
)

HOSTILE = '<script>alert("1")</script>\'|`[x](http://evil.example)'


def both(facts: dict[str, Any], view: Any = None) -> tuple[str, str]:
    return drawn(report_of(facts), view)


def test_the_page_opens_with_the_guarantee_loads_nothing_and_its_links_lead_somewhere():
    facts = sample_facts()
    html, text = both(facts)
    page = Page(html)
    assert page.guarantee_in == page.sections[0] == "opening"
    assert facts["guarantee"]["sentence"] in unescape(html)
    assert text.index("**Guarantee.**") < text.index("\n## ")
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all(address.startswith("#") and f'id="{address[1:]}"' in html for address in page.addresses)


def test_a_page_says_for_whom_anything_changes():
    view = sample_view()
    view = replace(view, shares=None)
    silent = np.zeros(view.abstains.shape, dtype=bool)
    silent[:, 0] = True
    kept = view.evidence[:, 1:].sum() / view.evidence.sum()
    for page in drawn(sample_report(), abstaining(view, silent)):
        states = len(view.state_labels)
        # one number for one fact
        assert page.count(f"{states - 1} of {states} states") == 1
        assert page.count(f"For {100 * kept:.2g} % of decisions.") == 1
        assert "Elsewhere current practice goes on." in page
    assert "Elsewhere" not in in_words(sample_report(), abstaining(view, np.zeros_like(silent)))


_NOTHING = {
    "rho": None, "epsilon": None, "delta": None, "noise": "none", "trust_model": "none", "sentence": "No privacy.",
}  # fmt: skip
_REAL = {"data_kind": "real", "claim": "differential privacy"}
SAID: list[tuple[dict[str, Any], list[str], list[str]]] = [
    (sample_facts(), ["not a guarantee", "concerns the binned process only"], ["simulation, not private"]),
    (sample_facts(value={"status": "bound"}), ["the interval contains the value was measured"], ["not a guarantee"]),
    (sample_facts(dataset={"markov": "declared"}, value={"assumes": []}), [], ["binned"]),
    *((sample_facts(guarantee={"noise": noise}), ["simulation, not private"], []) for noise in ("seeded", "none")),
    (
        sample_facts(dataset={"kind": "real"}, guarantee=_REAL),
        ["has not been observed"],
        ["v_star", "truth", "true world"],
    ),
    (
        sample_facts(guarantee=_NOTHING) | {"ledger": None, "consistency": None, "mechanisms": []},
        ["No promise", "charged no ledger"],
        [],
    ),
    (sample_facts(value={"upper": None, "gap": None}), ["0.661 or more"], []),
]


@pytest.mark.parametrize(("facts", "has", "lacks"), SAID, ids=lambda told: str(told[:1]) if type(told) is list else "")
def test_status_bins_noise_and_kind_are_said_where_they_are_so_and_only_there(facts, has, lacks):
    for page in both(facts):
        assert all(words in page for words in has) and not any(words in page for words in lacks)


def test_hostile_labels_stay_text():
    facts = sample_facts(dataset={"name": HOSTILE, "live_states": [HOSTILE, "b"], "actions": [HOSTILE, "2"]})
    facts["assumptions"] = facts["verify"] = [HOSTILE]
    facts["model_baselines"]["best constant"]["action"] = HOSTILE
    html, text = both(facts, sample_view(states=[HOSTILE, "b"], actions=[HOSTILE, "2"]))
    page = Page(html)
    assert "script" not in page.tags
    assert all(address.startswith("#") for address in page.addresses)
    assert HOSTILE in "".join(page.text)
    marked_up = [line for line in text.splitlines() if not line.startswith("    ")]
    assert not any("<script>" in line or "[x](" in line for line in marked_up)
    rows = [line for line in marked_up if line.startswith("|") and "script" in line]
    assert {row.replace("\\|", "").count("|") for row in rows} <= {3, 5, 6, 7, 8}


def test_a_policy_too_large_to_print_is_cut_and_says_so():
    view = sample_view(
        60, [f"state {'x' * 90}{i}" for i in range(60)], [f"action {'y' * 90}{i}" for i in range(25)], True
    )
    facts = sample_facts(dataset={"live_states": view.state_labels, "actions": view.action_labels})
    html, text = both(facts, view)
    assert len(html.encode()) < 300_000
    for page in (html, text):
        assert "Shown: the 24 states with most released evidence, of 60." in page
        assert "Shown: of the 24 states with most released evidence, those with a recommendation; " in page
        assert "Only the first 120 rows are printed" in page


def test_evidence_and_practice_by_step_are_read_at_their_steps():
    view = sample_view(2, ["a"], ["x", "y"])
    evidence = np.array([[[10.0, 1.0]], [[30.0, 1.0]]])
    by_step = replace(
        abstaining(view, view.abstains & False), evidence=evidence, shares=view.practice.repeat(2, axis=0)
    )
    assert "10 to 30" in in_words(sample_report(), by_step)


def test_equal_steps_are_joined_and_abstaining_steps_have_no_action_that_could_differ():
    view = sample_view(4, ["a", "b"], ["x", "y"], scattered=True)
    assert len(list(runs(view))) > 2
    silent = abstaining(sample_view(4, ["a"], ["x", "y"], scattered=True), np.ones((4, 1), dtype=bool))
    assert [(run.first, run.last) for run in runs(silent)] == [(0, 3)]


def test_a_gain_that_is_established_at_some_steps_only_says_at_how_many():
    view = sample_view(5, ["a", "b"], ["x", "y"])
    rows = []
    for established in (0, 2, 5):
        cells = [(h, 0, 0.25, 0.1, h < established) for h in range(5)]
        told = {"known_share": 1.0, "followed_share": 0.5, "apart_share": 0.2, "cells": cells}
        page = in_words(report_of(sample_facts() | {"practice": told}), view)
        rows += [line for line in page.splitlines() if "| 25 % | 0.1 |" in line]
    assert [line.split(" | ")[-1] for line in rows] == ["no |", "at 2 of 5 steps |", "yes |"]


@pytest.mark.slow
def test_two_processes_write_the_same_bytes():
    program = "import sys; from tests.reports.sample import *; sys.stdout.write(''.join(drawn(sample_report())))"
    path = os.pathsep.join(item for item in sys.path if item)
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
        written = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True).stdout
        assert written == "".join(both(sample_facts())).encode()


def test_practice_that_is_known_wherever_something_is_recommended_is_not_said_to_be_known_everywhere():
    view = sample_view(5, ["a", "b"], ["x", "y"])
    told = {"known_share": 1.0, "followed_share": 0.5, "apart_share": 0.2, "cells": [(0, 0, 0.25, 0.1, False)]}
    page = in_words(report_of(sample_facts() | {"practice": told}), view)
    assert "show what practice does for all of the recommendations; there" in page
    assert "these show what practice does for 50 % of states and steps" in page


NASTY = ["<script>alert(1)</script>", "a | b", "place"]


def plant(names, *, kind="real", left_zero=True, actions=None, horizon=3):
    """The report of a committed run of a linear controller, with these coordinates."""
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


def even_gains(names, gain=0.5):
    return gains_view(names, names, np.full((3, len(names), len(names)), gain))


def test_names_are_text_whatever_they_hold():
    html, page = drawn(plant(NASTY), even_gains(NASTY))
    assert "<script>alert" not in html and "&lt;script&gt;" in html and "<script>" not in page
    head = next(line for line in page.splitlines() if line.startswith("| Control"))
    assert head.count("|") - head.count("\\|") == 6


def test_truth_is_shown_for_synthetic_plants_only():
    for kind, shown in (("real", False), ("synthetic", True)):
        assert ("In the true plant" in in_words(plant(["x"], kind=kind), even_gains(["x"]))) is shown


def test_a_controller_that_does_nothing_is_called_so():
    page = in_words(plant(["x"], left_zero=False), even_gains(["x"], 0.0))
    assert "All gains are zero" in page and "does nothing" in page
    assert "does nothing" not in in_words(plant(["x"]), even_gains(["x"]))


def test_directions_in_the_noise_are_told():
    page = in_words(plant(["x"]), even_gains(["x"]))
    assert "1 of 2 directions lie below the noise floor" in page and "both tables come from the same rows" in page


def test_the_figure_shows_the_largest_gains_and_says_what_it_leaves_out():
    names = [f"x{i}" for i in range(4)]
    gains = np.arange(16.0).reshape(1, 4, 4) * np.ones((3, 1, 1))
    note = "largest gains, of"
    assert f"the 6 {note} 16" in in_words(plant(names), gains_view(names, names, gains))
    assert note not in in_words(plant(["x"]), even_gains(["x"]))
    assert "4.4 x3 for x3" in drawn(plant(names), gains_view(names, names, gains))[0]
