"""What a measured cell depends on: the code its modules run, not a word around it and not a line beside it."""

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


@pytest.mark.parametrize(
    ("file", "old", "new", "kept"),
    [
        ("agent.py", "An agent.", "An agent, said better.", True),
        ("agent.py", '    """Play."""\n', "", True),
        ("agent.py", "  # now", "  # then", True),
        ("agent.py", "\n\n\n", "\n\n", True),
        ("beside.py", "1", "2", True),
        ("paper.py", "...", "x = 1", True),
        ("agent.py", "draw(STATES)", "draw(STATES) + 1", False),
        ("noise.py", "n * law", "n + law", False),
        ("law.py", "2", "4", False),
        ("world.py", "3", "5", False),
        ("__init__.py", "", "X = 1\n", False),
    ],
)
def test_words_and_what_is_not_imported_keep_a_cell_and_a_line_of_what_is_used_does_not(root, file, old, new, kept):
    before = closure_digest(["pipeline.agent"], root)
    path = root / "pipeline" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert (closure_digest(["pipeline.agent"], root) == before) == kept


def test_our_own_agents_depend_on_their_mechanisms_and_not_on_those_of_others():
    one, other = (closure_digest([f"pipeline.agents.{name}"]) for name in ("ofu_rl", "adaptive_lqr"))
    assert one != other == closure_digest(["pipeline.agents.adaptive_lqr"])
