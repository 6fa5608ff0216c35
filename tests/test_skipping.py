"""The guard of skips, seen to fail and seen to let a listed one pass."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SUITE = """
import pytest
from tests.skipping import guard

def pytest_configure(config):
    guard(config)
"""


@pytest.mark.parametrize(
    ("rule", "name", "code", "workers"),
    [
        ("none", "a", 1, []),
        pytest.param("none", "b", 0, [], marks=pytest.mark.slow),
        pytest.param("", "a", 0, [], marks=pytest.mark.slow),
        pytest.param("listed", "a", 1, [], marks=pytest.mark.slow),
        pytest.param("listed", "a", 1, ["-p", "xdist", "-n", "1"], marks=pytest.mark.slow),
    ],
)
def test_a_skip_that_is_not_listed_fails_the_run(tmp_path: Path, rule: str, name: str, code: int, workers: list[str]):
    (tmp_path / "conftest.py").write_text(SUITE)
    skip = "import pytest\npytest.skip('no server', allow_module_level=True)\n" if name == "a" else ""
    (tmp_path / "test_it.py").write_text(f"{skip}def test_it():\n    pass\n")
    (tmp_path / "test_more.py").write_text("def test_more():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(tmp_path), *workers, str(tmp_path)]
    # what is installed beside pytest takes longer to load than the run
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "RETICENT_SKIPS": rule, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=os.environ | alone, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("SKIPPED BUT NOT ON THE LIST test_it.py" in done.stdout) == (code == 1)
