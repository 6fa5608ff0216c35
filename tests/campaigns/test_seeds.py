"""The campaign over other seeds: it finds out which tests draw, runs those again, and counts what fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.campaigns import rows, seeds
from tests.campaigns.rows import ROOT
from tests.campaigns.seeds import FOUND, LONGEST, SHIFT, due, keep, known

TESTS = '''
import numpy as np
import pytest
from pipeline.privacy.csprng import Words

def test_of_nothing():
    assert 1 + 1 == 2

@pytest.mark.parametrize("seed", [1, 2])
def test_of_seeds(seed):
    """The first holds by the luck of its seed."""
    assert seed == 2 or np.random.default_rng(1).random() == 0.5118216247002567

def test_of_noise():
    assert Words().one() >= 0
'''


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder of tests of its own; pytest with the plug-in runs them in a process of its own."""
    folder = tmp_path / "tests" / "luck"
    folder.mkdir(parents=True)
    (folder / "test_luck.py").write_text(TESTS)
    (tmp_path / "constraints.txt").write_text("")
    for module in (rows, seeds):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    # the real table's place is remembered by its name
    monkeypatch.setattr(seeds, "NAME", "luck")
    monkeypatch.setattr(rows, "code_of", lambda *_, **__: "today's")
    monkeypatch.setattr(rows, "command", lambda: "python -P -m tests.campaigns.seeds")

    def run(shift):
        found = tmp_path / f"found-{shift}"
        words = ["-q", "-p", "no:cacheprovider", "-p", "tests.campaigns.seeds", "--rootdir", str(tmp_path), str(folder)]
        env = os.environ | {FOUND: str(found), SHIFT: str(shift), LONGEST: "10", "PYTHONPATH": str(ROOT)}
        told = subprocess.run([sys.executable, "-P", "-m", "pytest", *words], cwd=tmp_path, env=env, check=False)
        assert told.returncode == 1
        return [json.loads(line) for line in found.read_text().splitlines()]

    return run


def test_the_first_shift_finds_who_draws_and_what_fails_is_counted(checkout):
    told = checkout(1)
    keep(1, told)
    of = {test.rpartition("_")[2]: row for test, row in known().items()}
    assert [of[name]["draws"] for name in ("nothing", "seeds", "noise")] == ["nothing", "seeds", "noise"]
    assert [of[name]["cases"] for name in ("nothing", "seeds", "noise")] == ["1", "2", "1"]
    assert (of["seeds"]["runs"], of["seeds"]["failed"], of["seeds"]["under"]) == ("2", "1", "1[1]")
    assert [due(of[name], 2, 10) for name in ("nothing", "seeds", "noise")] == [False, True, True]
    keep(2, told)
    of = {test.rpartition("_")[2]: row for test, row in known().items()}
    assert (of["seeds"]["runs"], of["seeds"]["failed"], of["seeds"]["under"]) == ("4", "2", "1[1]; 2[1]")
    assert "| luck | 4 | 1 | 3 | 2 | 6 | 2 | 0.33333 |" in seeds.page("luck")


def test_a_test_of_which_time_let_not_all_cases_run_has_no_row_yet_and_one_that_is_gone_has_none(checkout):
    told = checkout(1)
    keep(1, [told[0], *(t for t in told[1:] if "[2]" not in t["case"])])
    assert not any(test.endswith("seeds") for test in known())
    # another file was run
    keep(1, [{"there": ["tests/luck/test_other.py::test_a"], "cases": {}}])
    assert known()
    keep(1, [{"there": ["tests/luck/test_luck.py::test_a"], "cases": {}}])
    assert not known()


def test_each_test_runs_under_its_next_shift_and_a_long_one_when_it_is_asked_for():
    row = {"draws": "seeds", "shifts": "3", "seconds": "7.5"}
    assert due(None, 1, 0) and not due(None, 2, 60)
    assert [due(row, shift, 60) for shift in (1, 3, 4, 5)] == [False, False, True, False]
    assert not due(row, 4, 7)
