"""What each verb imports: a person who waits for `plan` must not wait for libraries that only a new run uses."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.shop import lay_out

HEAVY = {
    "cvxpy", "distributed", "dp_accounting", "jinja2", "numpy", "opendp", "polars", "prefect", "scipy",
    "scipy.optimize", "scipy.stats", "sqlalchemy", "vl_convert",
    # of the house: what simulates a run, and what makes one again
    "flows.jobs.made_again", "pipeline.learners.forecast", "pipeline.worlds.surrogate",
}  # fmt: skip
_CODE = """
import sys
for words in {verbs}:
    sys.argv = ["reticent", *words]
    try:
        import runpy
        runpy.run_module("flows.cli", run_name="__main__")
    except SystemExit as done:
        assert not done.code, words
print(*sys.modules, file=open({told}, "w"))
"""
# numbers, rows and the ledger: what a verb that looks at a home cannot do without
_PLAIN = {"numpy", "polars", "sqlalchemy"}


_ROOMS = ("pipeline", "flows", "reports")
# what one module more, with all that it brings, would pass
_MOST = {"--help": 16, "ledger": 60, "register": 70, "ingest": 74, "plan": 121, "run": 132}


def loaded(folder: Path, *verbs: tuple[object, ...]) -> set[str]:
    """The modules that verbs have loaded in one process when the last one ends."""
    told, root = folder / "modules", Path(__file__).resolve().parents[2]
    words = [["--home", str(folder / "home"), *map(str, verb)] for verb in verbs]
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CODE.format(verbs=words, told=repr(str(told)))],
        env={"PYTHONPATH": str(root), "PATH": "", "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(told.read_text().split())


def of_the_house(found: set[str]) -> list[str]:
    return sorted(name for name in found if name.split(".")[0] in _ROOMS)


@pytest.fixture(scope="module")
def day(tmp_path_factory) -> tuple[Path, dict[str, tuple[object, ...]]]:
    """A folder, and the verbs of a home's first day there."""
    folder = lay_out(tmp_path_factory.mktemp("shop"))
    recipe = folder / "private.toml"
    return folder, {
        "--help": ("--help",),
        "register": ("register", folder),
        "ingest": ("ingest", folder),
        "plan without quality": ("plan", "--no-quality", recipe),
        "plan": ("plan", recipe),
        "run": ("run", recipe),
        "replay": ("run", recipe),
        "ledger": ("ledger", "show"),
    }


# the verbs of a process each: what they may load together, each may
_PROCESSES = (("register", "ingest", "plan without quality"), ("plan",), ("run",), ("replay", "ledger"))


@pytest.fixture(scope="module")
def first(day) -> set[str]:
    """What the first process has loaded when it ends."""
    folder, verbs = day
    return loaded(folder, *map(verbs.get, _PROCESSES[0]))


@pytest.fixture(scope="module")
def seen(day, first) -> dict[tuple[str, ...], set[str]]:
    """What each process has loaded when it ends."""
    folder, verbs = day
    return {_PROCESSES[0]: first} | {names: loaded(folder, *map(verbs.get, names)) for names in _PROCESSES[1:]}


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["--help", "register", "ingest", "ledger"])
def test_a_verb_loads_the_modules_that_it_runs(day, verb):
    folder, verbs = day
    found = of_the_house(loaded(folder, verbs[verb]))
    assert len(found) <= _MOST[verb], found
    rooms = ("pipeline.learners", "pipeline.audits", "pipeline.online", "reports.run")
    assert not [name for name in found if name.startswith(rooms)]


def test_help_loads_nothing_heavy(tmp_path):
    assert not HEAVY & loaded(tmp_path, *((verb, "--help") for verb in ("run", "plan", "audit")))


@pytest.mark.slow
def test_a_first_day_until_plan_loads_no_solver_no_sampler_and_no_page(first):
    assert HEAVY & first <= _PLAIN


@pytest.mark.slow
def test_a_replay_loads_no_solver_no_sampler_and_no_page(seen):
    assert HEAVY & seen[_PROCESSES[-1]] <= _PLAIN
    # a new release is certified and drawn: what is asserted above can be seen to fail
    assert {"cvxpy", "vl_convert"} <= seen["run",]


@pytest.mark.slow
def test_a_plan_and_a_run_load_the_learner_of_their_agent_alone(seen):
    others = {f"pipeline.learners.{name}" for name in ("held_out", "linear", "lq", "tabular_evaluation")}
    drawing, asking = {"flows.jobs.run", "flows.jobs.promotion"}, {"flows.jobs.plan", "flows.jobs.intake"}
    for verb, apart in (("plan", drawing), ("run", asking)):
        found = of_the_house(seen[verb,])
        assert len(found) <= _MOST[verb], found
        assert not [name for name in found if name.startswith(("pipeline.audits", "pipeline.online"))]
        assert not (others | apart) & set(found)
