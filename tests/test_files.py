"""Files and folders are written whole or not at all, and private ones are for their owner alone."""

from __future__ import annotations

import stat

import pytest

from pipeline.files import whole_folder


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
