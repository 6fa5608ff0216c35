"""docs/operate.md: rehearsed blocks run in order, unit files start verbs that exist, other blocks at least parse."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from flows.cli import app
from tests.documents import run_script, section

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
# tests/test_tutorials.py follows that part in a folder of its own
BY_HAND = section("operate.md", "## A service, tried by hand")
REHEARSED = re.findall(r"<!-- run -->\n```sh\n(.*?)```", PAGE.replace(BY_HAND, ""), re.DOTALL)


@pytest.mark.slow
def test_the_rehearsed_blocks_run_in_order(tmp_path):
    # one shell: later blocks have variables of earlier ones
    assert len(REHEARSED) == 4
    run_script("\n".join(REHEARSED), tmp_path)


def reticent_lines() -> list[list[str]]:
    blocks = re.findall(r"```(?:sh|ini)\n(.*?)```", PAGE, re.DOTALL)
    lines = [line.removeprefix("ExecStart=") for block in blocks for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if re.match(r"(/\S+/)?reticent ", line)]
    ends = ("|", ">", "2>&1")
    return [w[1 : next((i for i, word in enumerate(w) if word in ends), None)] for w in words]


def test_every_line_names_a_verb_with_options_that_exist():
    group = typer.main.get_command(app)
    found = reticent_lines()
    assert len(found) > 15
    for words in found:
        verb, rest, command = words[0], words[1:], group
        command = group.commands[verb]  # type: ignore[attr-defined]
        while hasattr(command, "commands"):
            command, rest = command.commands[rest[0]], rest[1:]
        command.make_context(verb, list(rest))


def test_every_key_of_the_two_tables_is_explained():
    from flows.config.recipe import Promote, Watched

    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    for key in [*Watched.model_fields, *Promote.model_fields]:
        assert f"`{key}`" in rows, key
