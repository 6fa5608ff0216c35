"""The clinic's notebook is a part of docs/ten_minutes.md: ``python -P -m tests.house.notebook`` writes it."""

import re
from pathlib import Path

import jupytext
import nbformat

from tests.documents import section

NOTEBOOK = Path(__file__).parents[2] / "docs" / "assets" / "clinic.ipynb"
# what the page says of the notebook is no cell of it; links lead to the pages beside
ASIDE = re.compile(r"This part is also \[a notebook\].*?\n\n", re.DOTALL)


def text() -> str:
    """What the page makes; cells have no random names, so that the same page makes the same bytes."""
    part = ASIDE.sub("", section("ten_minutes.md", "## The same from a data frame"))
    page = re.sub(r"\]\((?=\w+\.md)", "](../", part.replace("\n### ", "\n## "))
    made = jupytext.reads(f"# A clinic, from a data frame\n{page}", fmt="md")
    made.nbformat_minor = 4
    made.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for cell in made.cells:
        cell.pop("id", None)
    return nbformat.writes(made) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(text(), encoding="utf-8")
