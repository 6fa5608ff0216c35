"""What a measured cell depends on: the code its modules run, not a word around it and not a line beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.declaration.code import closure_digest

FILES = {
    "__init__.py": "",
    "agent.py": '"""An agent."""\nfrom typing import TYPE_CHECKING\n\nfrom pipeline.noise import draw\n\n'
    "if TYPE_CHECKING:\n    from pipeline.paper import Page\n\n\n"
    'def play():\n    """Play."""\n    from pipeline.world import STATES\n\n    return draw(STATES)  # now\n',
    "noise.py": "from pipeline import law\n\n\ndef draw(n):\n    return n * law.SCALE\n",
    "law.py": "SCALE = 2\n",
    "world.py": "STATES = 3\n",
    "paper.py": "class Page: ...\n",
    "beside.py": "UNUSED = 1\n",
}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "pipeline").mkdir()
    for name, text in FILES.items():
        (tmp_path / "pipeline" / name).write_text(text)
    return tmp_path


def digest(root: Path, file: str = "", old: str = "", new: str = "") -> str:
    if file:
        path = root / "pipeline" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
    return closure_digest(["pipeline.agent"], root)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("agent.py", "An agent.", "An agent, said better."),
        ("agent.py", '    """Play."""\n', ""),
        ("agent.py", "  # now", "  # then"),
        ("agent.py", "\n\n\n", "\n\n"),
        ("beside.py", "1", "2"),
        ("paper.py", "...", "x = 1"),
    ],
)
def test_words_and_what_is_not_imported_keep_a_cell(root, file, old, new):
    assert digest(root) == digest(root, file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("agent.py", "draw(STATES)", "draw(STATES) + 1"),
        ("noise.py", "n * law", "n + law"),
        ("law.py", "2", "4"),
        ("world.py", "3", "5"),
        ("__init__.py", "", "X = 1\n"),
    ],
)
def test_a_line_of_what_is_used_however_far_away_does_not(root, file, old, new):
    assert digest(root) != digest(root, file, old, new)


def test_our_own_agents_depend_on_their_mechanisms_and_not_on_those_of_others():
    one, other = (closure_digest([f"pipeline.online.{name}"]) for name in ("tabular", "mixtures"))
    assert one != other == closure_digest(["pipeline.online.mixtures"])
