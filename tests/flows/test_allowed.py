"""What a deployed run may name: shipped things, and what the operator wrote into ``allowed.toml``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.config.home import HOME, SERVED
from flows.server.deployments import FILE, Allowed, read_allowed
from pipeline.declaration.code import PERMITTED, refuse_unlisted
from reticent import CardError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "home"
    found.mkdir()
    monkeypatch.setenv(HOME, str(found))
    monkeypatch.delenv(SERVED, raising=False)
    return found


def listed(home: Path, text: str) -> Allowed:
    (home / FILE).write_text(text)
    return read_allowed()


def test_without_a_list_only_what_is_shipped_and_served_is_allowed(home, tmp_path, monkeypatch):
    monkeypatch.setenv(SERVED, str(tmp_path / "mine.toml"))
    found = read_allowed()
    assert found.recipe("demo").name == "demo.toml" and found.recipe("demo").parent.name == "recipes"
    assert found.recipe(str(tmp_path / "mine.toml")) == tmp_path / "mine.toml"
    assert found.home_of(None) == found.home_of(str(home)) == home
    for wrong in (f"{tmp_path}/other.toml", f"{tmp_path}/mine.toml/../other.toml", "no-such-recipe"):
        with pytest.raises(CardError, match=r"not a recipe|no recipe"):
            found.recipe(wrong)
    with pytest.raises(CardError, match="not a home"):
        found.home_of(str(tmp_path))
    with found.enforced(), pytest.raises(CardError, match="only what its operator lists"):
        refuse_unlisted("clinic.worlds:ward")


def test_a_file_of_a_shipped_name_in_the_working_folder_is_not_taken_for_it(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text("")
    assert read_allowed().recipe("demo").name == "demo.toml"


def test_what_is_listed_is_allowed_and_a_link_leads_nowhere_else(home, tmp_path):
    for name in ("recipes", "other", "evil"):
        (tmp_path / name).mkdir()
    text = f'plugins = ["clinic.worlds:ward"]\nrecipes = ["{tmp_path}/recipes", "{tmp_path}/one.toml"]\n'
    found = listed(home, text + f'homes = ["{tmp_path}/other"]\n')
    for right in ("recipes/a.toml", "recipes/deep/b.toml", "one.toml"):
        assert found.recipe(f"{tmp_path}/{right}") == tmp_path / right
    (tmp_path / "recipes" / "link.toml").symlink_to(tmp_path / "evil" / "x.toml")
    for wrong in ("recipes/link.toml", "recipes/../evil/x.toml", "recipes2/a.toml"):
        with pytest.raises(CardError, match="not a recipe"):
            found.recipe(f"{tmp_path}/{wrong}")
    assert found.home_of(f"{tmp_path}/other") == tmp_path / "other"
    with found.enforced():
        refuse_unlisted("clinic.worlds:ward")
        with pytest.raises(CardError):
            refuse_unlisted("clinic.worlds:other")
    assert PERMITTED not in os.environ


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_list_that_others_may_write_is_refused(home, mode):
    (home / FILE).write_text("")
    (home / FILE).chmod(mode)
    with pytest.raises(CardError, match="others may write"):
        read_allowed()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another account")
def test_a_list_of_another_account_is_refused(home):
    (home / FILE).write_text("")
    os.chown(home / FILE, 65534, 65534)
    with pytest.raises(CardError, match="belongs to another account"):
        read_allowed()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('plugins = ["os"]', "not of the form module:object"),
        ('recipes = ["here.toml"]', "not an absolute path"),
        ('homes = ["here"]', "not an absolute path"),
        ("worlds = []", "unknown key"),
    ],
)
def test_a_wrong_list_is_said(home, text, says):
    with pytest.raises(CardError, match=says):
        listed(home, text)


@pytest.mark.parametrize("named", ["", ".reticent"])
def test_a_deployed_run_needs_the_home_of_its_service(monkeypatch, named):
    monkeypatch.setenv(HOME, named)
    with pytest.raises(CardError, match="absolute home"):
        read_allowed()
