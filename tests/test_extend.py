"""Plug-ins by name, and docs/extend.md carried out."""

from __future__ import annotations

import pytest

from pipeline.declaration.code import closure_digest
from pipeline.declaration.plugins import is_plugin
from pipeline.declaration.toml import CardError
from pipeline.environments.worlds import load_world
from pipeline.simulation.registry import find, modules_of
from pipeline.simulation.trial import Trial
from tests.documents import rehearse


@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path):
    values, simulated, audited, offline, ingested, tests = rehearse("extend.md", tmp_path)
    assert "corridor:corridor" in values and "truth" in values
    assert "look_once:look_once" in simulated and "joint" in simulated
    assert "No attack found look_once to lose more than it claims" in audited and "one release of a batch" in audited
    assert "imitate:imitation" in offline and "replayed: nothing was drawn" in offline
    assert "No attack found imitate to lose more than it claims" in offline
    assert "6 rows, 3 users" in ingested
    assert "passed" in tests and "failed" not in tests


@pytest.mark.parametrize("name", ["gymnasium:FrozenLake-v1", "riverswim", "a b:c", "a:", ":b", "a:b:c"])
def test_other_names_are_no_plugins(name):
    assert not is_plugin(name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module:world", "finds no module 'no_such_module'"),
        ("no_such.module:world", "finds no module 'no_such'"),
        ("math:no_such", "has no function 'no_such'"),
        ("math:pi", "has no function 'pi'"),
    ],
)
def test_what_cannot_be_found_is_said(name, says, tmp_path):
    with pytest.raises(CardError, match=says):
        load_world(name, tmp_path)
    with pytest.raises(CardError, match=says):
        find(name)


def test_a_missing_import_inside_a_plugin_is_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "half.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        find("half:agent")


def test_what_is_no_world_is_said(tmp_path):
    with pytest.raises(CardError, match="returns a dict, not a World"):
        load_world("builtins:dict", tmp_path)


def test_an_agent_without_the_attribute_claims_nothing(tmp_path, monkeypatch):
    (tmp_path / "mute.py").write_text("def agent(trial):\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find("mute:agent").trust == "none"


def test_an_edited_plugin_is_measured_anew(tmp_path, monkeypatch):
    path = tmp_path / "edited.py"
    path.write_text("def agent(trial):\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    trial = Trial("edited:agent", "riverswim", (), 10)
    before = closure_digest(modules_of(trial))
    path.write_text('def agent(trial):\n    """Words."""\n    return None\n')
    assert before == closure_digest(modules_of(trial))
    path.write_text("def agent(trial):\n    return 1\n")
    assert before != closure_digest(modules_of(trial))
