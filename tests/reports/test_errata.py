"""What docs/errata.md names exists: tests, commands, folders and pages."""

import ast
import re
from pathlib import Path

from flows.config.home import paper_studies

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")


def test_every_test_command_and_page_that_errata_name_exists():
    for path, name in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", PAGE):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert not name or name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}, (path, name)
    for name in re.findall(r"reticent reproduce ([\w-]+)", PAGE):
        assert name in (*paper_studies("all"), "all"), name
    for folder in re.findall(r"`((?:pipeline|flows|reports|tests)/[\w/.]+)`", PAGE):
        assert (ROOT / folder).exists(), folder
    for page in re.findall(r"\]\(([\w/.-]+\.md)", PAGE):
        assert (ROOT / "docs" / page).is_file(), page
