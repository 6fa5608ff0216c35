"""Verdicts follow from rows by their rule, both ways; table, figure and page say what the rows say."""

from __future__ import annotations

import io
import re
from typing import Any

import polars as pl
import pytest

from pipeline.simulation.trial import SIMULATION, Row
from pipeline.studies.paper_003 import claims, pooled, where
from reports.studies.page_003 import study_003
from reports.studies.study_page import figure_files, table_files

K = (10, 100, 1000, 100_000)
CONTROLS = {"uniform": 5.0, "behaviour": 7.0, "always-first": 9.0}


def row(agent: str, variant: str, K: int, mean: float, rho: float | None = None, **other: Any) -> Row:
    world, std = other.pop("world", "one"), other.pop("std", 0.1)
    true = None if rho is None else rho * other.pop("ratio", 1.0)
    return Row(
        agent=agent,
        variant=variant,
        trust="none" if rho is None else "central",
        world=world,
        episodes=K,
        rho=rho,
        epsilon=None,
        delta=None if rho is None else 1e-6,
        calibration=None if rho is None else "paper",
        constants=None if variant == "control" else "C = 0.1",
        metric="suboptimality",
        mean=mean,
        std=std,
        runs=20,
        true_rho=true,
        true_epsilon=true,
        messages=None if rho is None else 20,
        bits=None if rho is None else 3840,
        tie_share=None if variant == "control" else 0.25,
        noise=SIMULATION,
    )


def study_rows(private: dict[float, tuple[float, ...]], **other: Any) -> list[dict[str, Any]]:
    """A study of one variant: VAPVI loses 1, 0.1, 0, 0; PEVI as much, or 9 with the theory's beta."""
    plain, theory = (1.0, 0.1, 0.0, 0.0), other.pop("theory", (9.0,) * 4)
    rows = [row("vapvi", "literal", k, v) for k, v in zip(K, plain, strict=True)]
    rows += [row("pevi", "literal, matched β", k, v) for k, v in zip(K, other.pop("matched", plain), strict=True)]
    rows += [row("pevi", "literal, theory β", k, v) for k, v in zip(K, theory, strict=True)]
    rows += [
        row("dp-vapvi", "literal", k, v, rho, **other) for rho, c in private.items() for k, v in zip(K, c, strict=True)
    ]
    return rows + [row(name, "control", k, v, std=0.0) for name, v in CONTROLS.items() for k in K]


GOOD = {1.0: (1.4, 0.5, 0.3, 0.1), 5.0: (1.2, 0.3, 0.1, 0.0)}
BAD = {1.0: (5.0, 4.0, 3.0, 1.0), 5.0: (5.0, 4.5, 3.5, 2.0)}


def verdicts(rows: list[dict[str, Any]]) -> dict[str, tuple[bool, str]]:
    words = ("asked ρ", "slightly", "converges", "larger ρ", "log", "C √d", "weighting")
    found = claims(rows)
    return {w: next((c["holds"], c["regime"]) for c in found if w in c["claim"]) for w in words}


def test_what_is_close_ordered_and_better_than_pevi_holds():
    said = verdicts(study_rows(GOOD))
    assert said["asked ρ"] == (True, "spends 1 × the asked ρ: 1 for 1, 5 for 5")
    assert said["slightly"] == (True, "up to 1,000: at every K, whatever ρ")
    assert said["converges"] == (True, "from K = 10, whatever ρ")
    assert said["larger ρ"] == (True, "ρ = 5 loses less than ρ = 1 at every K")
    assert said["log"][0] and "8 of 8 cells: at every K" in said["log"][1]
    assert "in 8 of them uniform choice beats that PEVI too" in said["log"][1]
    assert said["C √d"] == (False, "0 of 8 cells")
    assert said["weighting"] == (False, "VAPVI loses less nowhere; the two differ by at most 0")


def test_what_is_far_and_reversed_does_not_hold():
    said = verdicts(study_rows(BAD, ratio=22.525))
    assert said["asked ρ"] == (False, "spends 22.6 × the asked ρ: 22.6 for 1, 113 for 5")
    assert said["slightly"] == (False, "up to 1,000: nowhere, whatever ρ")
    assert said["converges"] == (False, "not by 100,000, whatever ρ")
    assert said["larger ρ"][0] is False
    assert said["larger ρ"][1] == "ρ = 5 loses less than ρ = 1 nowhere; the order is reversed from K = 100"


def test_a_claim_may_hold_in_part_and_the_regime_says_where():
    rows = study_rows({1.0: (5.0, 4.0, 1.0, 0.2), 5.0: (4.0, 2.0, 0.2, 0.0)}, theory=(3.0, 3.0, 2.0, 0.0))
    said = verdicts(rows)
    assert said["slightly"] == (False, "up to 1,000: ρ = 1: nowhere; ρ = 5: at K = 1,000 only")
    assert said["converges"] == (True, "ρ = 1: from K = 100,000; ρ = 5: from K = 1,000")
    assert said["log"][0] is False and said["log"][1].startswith("3 of 8 cells: ρ = 1: at K = 1,000 only; ρ = 5: at K")


def test_a_difference_that_chance_would_show_decides_nothing():
    noisy = study_rows({1.0: (5.0,) * 4, 5.0: (4.8,) * 4}, std=0.5)
    assert verdicts(noisy)["larger ρ"] == (False, "ρ = 5 loses less than ρ = 1 nowhere")
    sharp = study_rows({1.0: (5.0,) * 4, 5.0: (4.8,) * 4}, std=0.05)
    assert verdicts(sharp)["larger ρ"][0] is True


def test_weighting_gets_the_credit_where_pevi_is_worse_at_the_same_multiplier():
    said = verdicts(study_rows(GOOD, matched=(2.0, 1.0, 0.5, 0.0)))
    assert said["weighting"] == (True, "VAPVI loses less at K = 10 to 1,000; the two differ by at most 1")
    assert said["C √d"][0] is True


def test_worlds_count_alike_and_their_difference_is_in_the_spread_but_not_in_the_error():
    rows = [row("vapvi", "literal", 10, 1.0, world="a"), row("vapvi", "literal", 10, 3.0, world="b")]
    point = pooled(rows)["vapvi", "literal", None][10]
    assert point.mean == 2.0 and point.ties == 0.25
    assert point.se == pytest.approx((2 * 0.1**2 / 20) ** 0.5 / 2)
    assert point.sd == pytest.approx(((38 * 0.1**2 + 40) / 39) ** 0.5)


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ((), "nowhere"),
        (K, "at every K"),
        ((1000, 100_000), "from K = 1,000"),
        ((10, 100), "at K = 10 to 100"),
        ((10, 1000), "at K = 10, 1,000"),
        ((100,), "at K = 100 only"),
    ],
)
def test_a_regime_is_said_in_words(kept, words):
    assert where(kept, K) == words


@pytest.mark.parametrize("name", ["003-figure-1b"])
def test_page_and_files_say_what_the_rows_say_and_load_nothing(name):
    rows = study_rows(BAD, ratio=22.525)
    study = study_003(name, rows)
    html, md = study.page.html, study.page.markdown
    assert not re.search(r'(?:src|href)\s*=\s*"?\s*(?:https?:)?//', html) and "<script" not in html
    for page in (html, md):
        assert "simulation, not private" in page and "spends 22.6 × the asked ρ" in page
        assert "more than tried" in page and "3.00" in page
        assert "What one user sends" in page and "3,840" in page
    assert html == study_003(name, rows).page.html
    parquet, csv = table_files(rows)
    assert pl.read_parquet(io.BytesIO(parquet)).to_dicts() == rows
    assert pl.read_csv(io.StringIO(csv)).height == len(rows)
    svg, png = figure_files(study.figure)
    assert png.startswith(b"\x89PNG") and "currentColor" not in svg and 'fill="#ffffff"' in svg
    assert "As printed (spends 22.6 × ρ)" in svg
