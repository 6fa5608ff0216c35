"""Plug-ins by name, and docs/extend.md carried out."""

import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pipeline.declaration.code import closure_digest, is_plugin
from pipeline.logs.sources import readers_of
from pipeline.online.registry import find, modules_of
from pipeline.online.trial import OnlineAgent, Trial
from reticent import CardError, Store, load_card, plan, simulate
from tests.conftest import toml
from tests.documents import blocks, rehearse


def play(folder: Path, agent: str = "uniform", world: str = "riverswim") -> dict[str, Any]:
    recipe = folder / "played.toml"
    told = {"recipe": {"name": "own", "agent": agent}, "world": {"name": world}, "runs": {"episodes": 10}}
    recipe.write_text(toml(told))
    return simulate(recipe, store=Store(folder / "home"))


def learn(folder: Path, agent: str) -> None:
    recipe = folder / "learnt.toml"
    recipe.write_text(toml({"recipe": {"name": "own", "card": "riverswim", "agent": agent}}))
    plan(recipe, quality=False, store=Store(folder / "home"))


@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path):
    values, simulated, audited, offline, ingested, tests = rehearse("extend.md", tmp_path)
    assert "corridor_" in values and "optimal 0.5000" in values
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
        ("math:no_such", "module math has no 'no_such'"),
        ("math:pi", "is a float, not of type"),
    ],
)
def test_what_cannot_be_found_is_said(name, says, tmp_path):
    for asked in ({"world": name}, {"agent": name}):
        with pytest.raises(CardError, match=says):
            play(tmp_path, **asked)


def test_a_missing_import_inside_a_plugin_is_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "half.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        play(tmp_path, agent="half:agent")


@pytest.fixture
def marked(tmp_path, monkeypatch):
    """A module that leaves a file when it is imported, and another when its function is called."""
    text = """
    from pathlib import Path
    from pipeline.worlds.world import WorldFunction
    from pipeline.online.trial import OnlineAgent
    Path(__file__).with_name("imported").touch()
    def act(*args, **params):
        Path(__file__).with_name("called").touch()
    world, agent = WorldFunction(act), OnlineAgent(act)
    """
    (tmp_path / "marked.py").write_text(dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("marked", None)


@pytest.mark.parametrize(
    "ask",
    [
        lambda folder: play(folder, agent="marked:act"),
        lambda folder: play(folder, world="marked:act"),
        lambda folder: learn(folder, "marked:act"),
    ],
)
def test_what_does_not_say_that_it_is_a_plugin_is_not_called(marked, ask):
    with pytest.raises(CardError, match="is a function, not of type"):
        ask(marked)
    assert (marked / "imported").exists() and not (marked / "called").exists()


def test_what_is_no_world_is_said(marked):
    with pytest.raises(CardError, match="returns a NoneType, not a World"):
        play(marked, world="marked:world")


@pytest.mark.parametrize(
    "ask",
    [
        lambda folder: readers_of(load_card(folder / "card.toml")),
        lambda folder: play(folder, agent="marked:agent"),
        lambda folder: play(folder, world="marked:world"),
        lambda folder: learn(folder, "marked:agent"),
    ],
)
def test_what_is_not_listed_is_not_even_imported(marked, monkeypatch, ask):
    (marked / "card.toml").write_text(dict(blocks("extend.md"))["diary.toml"].replace("diary:diary", "marked:reader"))
    monkeypatch.setenv("RETICENT_PLUGINS", "marked:other other:world")
    with pytest.raises(CardError, match="runs only what its operator lists"):
        ask(marked)
    assert not (marked / "imported").exists()


def test_what_is_listed_runs(marked, monkeypatch):
    monkeypatch.setenv("RETICENT_PLUGINS", "marked:other marked:agent")
    assert isinstance(find("marked:agent"), OnlineAgent)


@pytest.mark.parametrize(
    "name", ["gymnasium:marked:Env-v0", "gymnasium:", "gymnasium:a b", "../riverswim", "icu_sepsis/"]
)
def test_a_name_of_no_world_is_refused_before_anything_is_imported(marked, name):
    with pytest.raises(CardError, match="no world"):
        play(marked, world=name)
    assert not (marked / "imported").exists()


HEAD = "from pipeline.online.trial import OnlineAgent\n@OnlineAgent\ndef agent(trial):\n"


def test_an_edited_plugin_is_measured_anew(tmp_path, monkeypatch):
    path = tmp_path / "edited.py"
    path.write_text(HEAD + "    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    trial = Trial("edited:agent", "riverswim", (), 10)
    before = closure_digest(modules_of(trial))
    path.write_text(HEAD + '    """Words."""\n    return None\n')
    assert before == closure_digest(modules_of(trial))
    path.write_text(HEAD + "    return 1\n")
    assert before != closure_digest(modules_of(trial))
