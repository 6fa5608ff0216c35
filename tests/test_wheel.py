"""The wheel in an empty environment, from an empty folder: what a stranger with pip gets."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return next(out.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_code_types_recipes_and_shelf_but_no_package_called_datasets(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {n.split("/")[0] for n in names if not n.startswith("reticent-")}
    assert tops == {"pipeline", "flows", "reports", "reticent.py"}
    assert "pipeline/py.typed" in names and "flows/recipes/demo.toml" in names
    assert "reports/templates/report.html.j2" in names
    shelf = [n.split("/share/reticent/datasets/")[1] for n in names if "/share/reticent/datasets/" in n]
    assert {"icu_sepsis/card.toml", "icu_sepsis/states.parquet", "icu_sepsis_uniform/card.toml"} <= set(shelf)
    assert "two_step_game/card.toml" in shelf
    assert not [n for n in shelf if n.endswith(".py") or "/data/" in n or "/ledger/" in n]


@pytest.mark.slow
def test_demo_runs_from_the_wheel_in_an_empty_folder(wheel, tmp_path):
    # the pip that is here fills it: one of its own takes seconds to install
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    # what is imported is compiled on the way; of all that is installed that is little
    options = ["--quiet", "--no-compile", "-c", str(ROOT / "constraints.txt")]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    subprocess.run([*pip, *options, str(wheel)], check=True, timeout=900)
    empty = tmp_path / "empty"
    empty.mkdir()
    command = [str(tmp_path / "venv" / "bin" / "reticent"), "demo", "--json"]
    done = subprocess.run(command, cwd=empty, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert Path(facts["report"]).is_file() and Path(facts["report"]).is_relative_to(empty.resolve())
    # fresh noise: .0375 better, give or take .0031 (campaigns/results/one_step_budgets.csv); uniform choice is worse
    assert facts["truth"]["v_policy"] > facts["truth"]["v_behavior"] + 0.015
    # an interval misses once in forty runs, twice as wide a one once in 100,000
    value, truth = facts["value"], facts["truth"]["v_policy"]
    assert abs(truth - value["estimate"]) < value["upper"] - value["lower"] < 0.06
    again = json.loads(
        subprocess.run(command, cwd=empty, capture_output=True, text=True, timeout=600, check=True).stdout
    )
    assert again["replayed"] and again["ledger"] == facts["ledger"]
