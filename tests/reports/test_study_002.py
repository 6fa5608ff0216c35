"""Table I: verdicts follow from rows by their rule, both ways; the page says what the rows say."""

from __future__ import annotations

import pytest

from pipeline.studies import paper_002
from pipeline.studies.paper_002 import claims, exponent, power
from reports.studies.page_002 import study_002
from reports.studies.study_page import figure_files

K = (10**4, 10**6, 10**7, 10**8)
WORLD = "small"


def row(agent, trust, episodes, mean, epsilon=None, variant="per step", ratio=1.0):
    return {
        "agent": agent, "variant": variant, "trust": trust, "world": WORLD, "episodes": episodes, "epsilon": epsilon,
        "delta": None if epsilon is None else 1e-5, "constants": "c = 1", "mean": mean, "std": 0.01 * mean, "runs": 10,
        "true_epsilon": None if epsilon is None else ratio * epsilon, "totals": [mean] * 10,
        "messages": None if epsilon is None else 7, "bits": None if epsilon is None else 1344,
        "facts": {"shape": [2, 2, 3]},
    }  # fmt: skip


def rows(joint=lambda K, e: 100 / e, shuffle=lambda K, e: 150 / e, local=lambda K, e: K**0.5 / e, ratio=1.0):
    found = []
    cost = {("dp-ucbvi-jdp", "joint"): joint, ("counts-shuffle", "shuffle"): shuffle, ("dp-ucbvi-ldp", "local"): local,
            ("sdp-pe", "shuffle"): lambda K, e: 300 / e}  # fmt: skip
    for k in K:
        found += [
            row("ucbvi", "none", k, 10.0),
            row("sdp-pe", "none", k, 50.0),
            row("uniform", "none", k, k, None, "control"),
        ]
        for (agent, trust), f in cost.items():
            base = 50.0 if agent == "sdp-pe" else 10.0
            found += [
                row(agent, trust, k, base + f(k, e), e, ratio=ratio)
                for e in ((1.0,) if k != 10**7 else (0.1, 1.0, 10.0))
            ]
    return found


def verdicts(found):
    return {c["claim"]: c["holds"] for c in claims(found)}


def test_what_the_table_says_holds_where_it_is_so():
    got = verdicts(rows())
    assert not got.pop("policy elimination is worth it under shuffle privacy")
    assert not got.pop("without privacy regret grows like √K")
    # 1e4 / 10 beyond 150: at the smallest K local noise costs less
    assert not got.pop("shuffle is far better than local")
    assert not got.pop("SDP-PE is far better than local")
    assert all(got.values()), got


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        ({"joint": lambda K, e: K**0.5 / e}, "joint privacy costs a sum that does not grow with K"),
        ({"joint": lambda K, e: 100 / e**2}, "joint privacy costs 1/ε"),
        ({"local": lambda K, e: 100 / e}, "local privacy costs √K"),
        ({"shuffle": lambda K, e: 500 / e}, "shuffle is comparable to joint"),
        ({"ratio": 1.1}, "the noise gives the ε that was asked"),
    ],
)
def test_and_does_not_where_it_is_not(change, claim):
    assert verdicts(rows())[claim]
    assert not verdicts(rows(**change))[claim]


def test_the_page_holds_the_figure_the_bounds_and_every_model():
    study = study_002("002-table-1", rows())
    page = study.page.markdown
    for word in ("UCBVI", "DP-UCBVI, local", "counts-shuffle", "SDP-PE", "√(XAH³K) + X²AH³/ε", "10⁷", "simulation"):
        assert word in page
    assert "://" not in study.page.html.replace("http://www.w3.org", "")
    assert figure_files(study.figure)[1].startswith(b"\x89PNG")


def test_the_grid_has_what_is_asked_of_it_and_no_cell_twice():
    cells = paper_002.grid()
    assert len(set(cells)) == len(cells)
    for agent in ("ucbvi", *paper_002.PRIVATE):
        mine = [c for c in cells if c.agent == agent and c.episodes == 10**7 and c.epsilon in (1.0, None)]
        assert len(mine) >= 10 * len(paper_002.WORLDS)
    assert {c.delta for c in cells if c.epsilon is not None} == {1e-5}


def test_exponents_and_powers():
    assert exponent([1, 10, 100], [3, 30, 300]) == pytest.approx(1)
    assert [power(10**4), power(10**9), power(12_000)] == ["10⁴", "10⁹", "12,000"]
