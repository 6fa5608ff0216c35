"""The rows of the mutation gate are of today's code, and a sample of them is noticed."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.mutants.run import ROOT, SHARE, Mutant, mutants

SAMPLE, SEED = 3, 24


def gone(mutant: Mutant) -> Iterator[str]:
    """Tests of a row that are nowhere."""
    for test in mutant.tests:
        path, _, name = test.partition("::")
        file = ROOT / path
        if not file.exists() or (name and not re.search(rf"^def {name}\(", file.read_text(encoding="utf-8"), re.M)):
            yield test


def test_the_rows_are_of_todays_code_and_name_tests_that_are_there():
    rows = mutants()
    assert 150 <= len(rows) <= 190 and len({(m.file, m.old, m.new) for m in rows}) == len(rows)
    dead = [f"{m.file}: {m.breaks}" for m in rows if m.edited() is None]
    assert len(dead) <= (1 - SHARE) * len(rows), "their code has moved; update or drop them: " + "; ".join(dead)
    assert all(m.tests for m in rows)
    assert not [f"{m.file}: {m.breaks}: {test}" for m in rows for test in gone(m)]


def test_few_are_accepted_and_each_says_why():
    accepted = [m for m in mutants() if m.why]
    assert len(accepted) <= (1 - SHARE) * len(mutants())
    assert all(m.why.endswith(".") and len(m.why.split()) > 5 for m in accepted)


@pytest.mark.slow
def test_a_sample_is_noticed():
    """None of the sample is an accepted survivor, and none may pass; the table of evidence ``mutants`` tries all."""
    command = [sys.executable, "-P", "-m", "tests.mutants.run", str(SAMPLE), str(SEED)]
    run = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=1800, check=False)
    outcomes = [
        line for line in run.stdout.splitlines() if re.match(r"(killed|survived|broken test|out of date) ", line)
    ]
    assert len(outcomes) == SAMPLE, run.stderr
    assert all(line.startswith("killed") for line in outcomes), run.stdout


@pytest.mark.slow
def test_an_edit_is_what_runs_and_its_absence_is_noticed():
    """The runner itself: an edit that breaks the lattice is killed, one of a space survives.

    A row that names a test of digests alone has no test: that one fails at any edit, right or wrong.
    """
    lattice = "tests/privacy/test_lattice.py"
    digests = "tests/evaluation/test_coverage.py::test_the_committed_tables_are_of_todays_code"
    row = 'Mutant("pipeline/statistics/count_layout.py", {old!r}, {new!r}, "", ({test!r},))'
    word, times = "self.high - self.low) / ", "self.high - self.low) * "
    edits = [(word, times, lattice), (word, f"{word} ", lattice), ("no such text", "", lattice), (word, times, digests)]
    rows = ", ".join(row.format(old=old, new=new, test=test) for old, new, test in edits)
    code = f"from tests.mutants.run import Mutant, tried\ntried([{rows}])"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, timeout=300, check=False
    )
    told = [line.split("  ")[0].strip() for line in run.stdout.splitlines()]
    assert told == ["killed", "survived", "out of date", "broken test"], run.stdout + run.stderr
