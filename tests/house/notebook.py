"""The clinic's notebook is its page, cell by cell: ``python -P -m tests.house.notebook`` writes it."""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat

PAGE = Path(__file__).parents[2] / "docs" / "clinic.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")


def text() -> str:
    """What the page makes; cells have no random names, so that the same page makes the same bytes."""
    made = jupytext.read(PAGE)
    made.nbformat_minor = 4
    made.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for cell in made.cells:
        cell.pop("id", None)
    return nbformat.writes(made) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(text(), encoding="utf-8")
