"""``runs/current``: moved in one step, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.jobs.promotion import Alias, is_pointer
from reticent import CardError


@pytest.fixture
def pointer(tmp_path):
    for name in ("a-1", "b-2", "c-3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text("{}")
    return Alias(tmp_path)


def test_it_points_to_what_was_promoted_and_back_to_what_was_before(pointer):
    assert pointer.now() is None
    for run in ("a-1", "b-2", "c-3"):
        pointer.promote(run)
        assert pointer.now() == run and (pointer.runs / "current").resolve() == pointer.runs / run
    assert (pointer.roll_back(), pointer.now()) == ("b-2", "b-2")
    assert (pointer.roll_back(), pointer.now()) == ("a-1", "a-1")
    assert pointer.rejected == {"b-2", "c-3"}
    with pytest.raises(CardError, match="no earlier run"):
        pointer.roll_back()
    pointer.promote("c-3")
    assert pointer.rejected == {"b-2"} and pointer.roll_back() == "a-1"


def test_where_links_fail_the_pointer_is_a_file(pointer, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    pointer.promote("a-1")
    pointer.promote("b-2")
    assert not (pointer.runs / "current").is_symlink() and pointer.now() == "b-2"
    assert pointer.roll_back() == "a-1" and pointer.now() == "a-1"


@pytest.mark.parametrize("name", ["../../x", "..", ".", "", "a/b", "A", "a\nb", "x" * 64])
def test_a_pointer_is_called_by_a_plain_name(pointer, name):
    with pytest.raises(CardError, match="names no pointer"):
        Alias(pointer.runs, name)


def test_a_pointer_has_not_the_name_of_a_run(pointer):
    """It could not be put in place, and its pieces stayed among the runs."""
    (pointer.runs / "a-1").mkdir(exist_ok=True)
    before = sorted(pointer.runs.iterdir())
    with pytest.raises(CardError, match="'a-1' is a run's name"):
        Alias(pointer.runs, "a-1").promote("a-1")
    assert sorted(pointer.runs.iterdir()) == before


def test_a_run_that_is_not_there_is_refused_and_the_pointer_stays(pointer):
    pointer.promote("a-1")
    with pytest.raises(CardError, match="no run of that name"):
        pointer.promote("z-9")
    assert pointer.now() == "a-1"


def test_a_promotion_killed_between_its_two_writes_changes_nothing(pointer, dies_at):
    pointer.promote("a-1")
    pointer.promote("b-2")
    for move in (lambda: pointer.promote("c-3"), pointer.roll_back):
        with dies_at("flows.jobs.promotion.Alias._point"):
            move()
        assert pointer.now() == "b-2" and pointer.rejected == frozenset()
    assert pointer.roll_back() == "a-1"


def test_a_link_in_the_place_of_a_run_is_no_pointer_whatever_stands_beside_it(pointer):
    pointer.promote("a-1")
    (pointer.runs / "demo-0123456789").symlink_to("a-1")
    (pointer.runs / ".demo-0123456789.json").write_bytes((pointer.runs / ".current.json").read_bytes())
    assert is_pointer(pointer.runs / "current") and not is_pointer(pointer.runs / "demo-0123456789")
