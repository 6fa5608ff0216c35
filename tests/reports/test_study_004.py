"""Paper 004's study from made-up rows: claims follow their rules, and the page says when zero was left."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.studies.paper_004 import EPOCHS, EPSILONS, PRIVATE, claims, full_grid, grid
from pipeline.studies.study_rows import gathered_rows
from reports.studies.page_004 import study_004

WORLDS = ("lq, instance 1", "double_integrator")


def row(agent: str, world: str, mean: float, epsilon: float | None = None, **more: Any) -> dict[str, Any]:
    plain = {
        "agent": agent,
        "variant": more.pop("variant", "control"),
        "trust": "none" if epsilon is None else "joint",
        "world": world,
        "episodes": more.pop("episodes", 10_000),
        "rho": None,
        "epsilon": epsilon,
        "delta": None if epsilon is None else 1e-5,
        "calibration": more.pop("calibration", None if epsilon is None else "tight"),
        "constants": "as declared",
        "metric": "total regret",
        "mean": mean,
        "std": more.pop("std", 0.0),
        "runs": 5,
        "true_rho": epsilon and epsilon**2 / 30,
        "true_epsilon": epsilon and more.pop("true", epsilon),
        "marks": [1, 100, 10_000],
        "curve_mean": [mean / 10_000, mean / 100, mean],
        "curve_std": [0.0, 0.0, 0.0],
    }
    return plain | {
        "messages": 5,
        "bits": 960,
        "facts": {"left_zero_at": more.pop("left", None), "true_epsilon_gdp": epsilon},
    }


def rows(private=lambda epsilon: (100.0, None), **more: Any) -> list[dict[str, Any]]:
    found = []
    for w in WORLDS:
        found += [row("zero", w, 100.0), row("certainty-equivalence", w, 100.0), row("fixed-gain", w, 10.0, std=3.0)]
        found += [row("ofu-rl", w, more.get("plain", 8.0), std=1.0, variant="λ = 1", left=15)]
        for eps in EPSILONS:
            mean, left = private(eps)
            for calibration, options in PRIVATE:
                said = "extra: one release a plan" if options == EPOCHS else "tree over episodes"
                asked = {"calibration": calibration, "variant": said, "left": left, "std": more.get("std", 0.0)}
                found += [row("private-ofu-rl", w, mean, eps, true=eps * more.get("times", 0.6), **asked)]
            found += [row("dp-lqr", w, 1.0, eps, left=1), row("explore-then-commit", w, 60.0, eps, left=2001)]
    return found


def verdicts(found: list[dict[str, Any]]) -> list[bool]:
    return [c["holds"] for c in claims(found)]


def test_a_private_learner_that_never_leaves_zero_is_said_not_to_learn():
    assert verdicts(rows()) == [True, False, False, False, True, True, True]
    learns = claims(rows())[1]
    assert "never leaves the zero gain" in learns["regime"]
    assert [v["variant"] for v in learns["variants"]] == ["paper", "tight", "one release a plan"]


def test_one_that_learns_more_with_less_privacy_is_said_to():
    found = rows(lambda epsilon: (80.0 / epsilon, 500), std=0.5)
    assert verdicts(found)[:3] == [True, True, True]
    assert not verdicts(found)[3]
    assert verdicts(rows(lambda epsilon: (1.0, 500)))[3]


def test_noise_that_is_too_small_and_a_baseline_that_does_not_learn_are_said():
    assert not verdicts(rows(times=1.1))[0]
    assert not verdicts(rows(plain=60.0))[4]


def test_rows_of_another_study_are_refused():
    with pytest.raises(ValueError, match="no row of"):
        claims([row("zero", "lq", 1.0), row("dp-lqr", "lq", 1.0, 0.5)])


def test_the_page_says_when_zero_was_left_also_at_larger_k():
    more = [row("zero", WORLDS[0], 1e6, episodes=10**7)]
    more += [row("private-ofu-rl", WORLDS[0], 4e5, 1.0, episodes=10**7, variant="tree over episodes", left=379_020)]
    study = study_004("004-regret", rows() + more)
    text = study.page.markdown
    assert "379,020 (0.4)" in text
    assert "never (1)" in text
    html = study.page.html
    assert "://" not in html.replace("http://www.w3.org", "")
    assert "Private-OFU-RL" in html


def test_the_grid_has_what_outsiders_rely_on():
    found = grid()
    assert {t.episodes for t in found} == {10_000}
    assert {t.agent for t in found} >= {"zero", "fixed-gain", "certainty-equivalence", "ofu-rl", "private-ofu-rl"}
    assert len({*found}) == len(found)
    assert {t.episodes for t in full_grid()} == {10_000, 10**5, 10**6, 10**7, 10**8}


def test_trials_of_a_bench_gather_into_rows_the_study_reads():
    from dataclasses import replace

    from pipeline.simulation.registry import measure

    quick = [replace(t, episodes=60) for t in grid(WORLD_1, runs=1, private_runs=1)]
    found = gathered_rows(quick, [measure(t) for t in quick])
    assert study_004("004-regret", found).claims


WORLD_1 = (("lq", (("instance", 1),)),)
