"""Files and folders are written whole or not at all, and private ones are for their owner alone."""

import stat

import pytest

from pipeline.files import DISK, put_in_place, remove_tree, whole_folder, write_folder


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_folder_and_all_that_it_needs_are_for_the_owner_alone(tmp_path):
    with whole_folder(tmp_path / "a" / "b" / "c", private=True) as partial:
        (partial / "inner").mkdir(mode=0o755)
        (partial / "inner" / "rows").write_text("x")
        (partial / "inner" / "rows").chmod(0o644)
    made = tmp_path / "a"
    assert [mode(p) for p in (made, made / "b", made / "b" / "c", made / "b" / "c" / "inner")] == [0o700] * 4
    assert mode(made / "b" / "c" / "inner" / "rows") == 0o600


def test_a_folder_that_was_there_keeps_its_rights(tmp_path):
    tmp_path.chmod(0o755)
    with whole_folder(tmp_path / "here", private=True):
        pass
    assert mode(tmp_path) == 0o755 and mode(tmp_path / "here") == 0o700


def test_what_fails_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "half") as partial:
        (partial / "some").write_text("x")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


class Killed(BaseException):
    """The process is gone: nothing after this runs."""


def operations(monkeypatch, at):
    """Die before operation number ``at`` of the disk, and after every second one; returns what was done."""
    done = []

    def armed(name, work):
        def operation(*args, **more):
            if len(done) == at:
                raise Killed
            result = work(*args, **more)
            done.append(name)
            return result

        return operation

    for name in ("sync", "move", "swap", "remove", "remove_tree"):
        monkeypatch.setattr(DISK, name, armed(name, getattr(DISK, name)))
    return done


def texts(folder):
    return {p.name: p.read_text() for p in folder.iterdir()}


@pytest.mark.parametrize("swaps", [True, False])
def test_a_folder_that_is_replaced_is_there_at_any_moment(tmp_path, swaps, monkeypatch):
    """Between two renames there once was none of that name: whoever was killed there had no run in use."""
    at, fresh = 0, dict.fromkeys(("report", "numbers", "fresh"), "new")
    while True:
        home = tmp_path / str(at)
        write_folder(home / "run", {"report": "old", "numbers": "old", "gone": "old"})
        with monkeypatch.context() as patched:
            if not swaps:
                patched.setattr(DISK, "swap", lambda *_: False)
            partial = home / "partial"
            partial.mkdir()
            for name in fresh:
                (partial / name).write_text("new")
            done = operations(patched, at)
            try:
                put_in_place(partial, home / "run", over=True)
            except Killed:
                at += 1
            else:
                break
        there = texts(home / "run")
        assert set(there.values()) <= {"old", "new"} and {"report", "numbers"} <= set(there)
        if swaps:
            assert there in ({"report": "old", "numbers": "old", "gone": "old"}, dict.fromkeys(there, "new"))
        write_folder(home / "run", fresh)
        assert texts(home / "run") == fresh
    assert len(done) == at > 5 and texts(home / "run") == fresh


def test_a_link_to_a_folder_is_removed_and_the_folder_stays(tmp_path):
    (tmp_path / "people").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "people")
    remove_tree(tmp_path / "link")
    assert [p.name for p in tmp_path.iterdir()] == ["people"]
