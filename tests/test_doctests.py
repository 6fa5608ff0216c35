"""Examples in docs/python.md and in docstrings are run."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for top in ("pipeline", "flows", "reports")
    for path in sorted((ROOT / top).rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


@pytest.fixture(autouse=True)
def home_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("RETICENT_HOME", str(tmp_path / "home"))


def test_the_front_door():
    found = doctest.testmod(import_module("reticent"))
    assert found.attempted and not found.failed


def test_the_page(monkeypatch):
    monkeypatch.chdir(ROOT)
    found = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False)
    assert found.attempted > 30 and not found.failed


@pytest.mark.parametrize("module", MODULES)
def test_docstrings(module):
    found = doctest.testmod(import_module(module))
    assert found.attempted and not found.failed
