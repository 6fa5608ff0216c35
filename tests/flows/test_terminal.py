"""A summary is drawn on a terminal of 80 columns and plain in a pipe; both say the same words."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from flows.terminal.screen import Chart, Grid, Pairs, Place, Title, plain, put
from tests.flows.service import ROOT, clean_environment
from tests.flows.shop import lay_out

# colours and the like; rules, blocks and the spinner
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SHAPES = re.compile("[\u2500-\u259f\u2800-\u28ff]")
NASTY = "[red]call[/red] \x1b[31m"
BLOCKS = [
    Title("shop", "spent ρ = 1 of 3"),
    Chart(["▁▂▃"]),
    Pairs([("guarantee", "ε = 1 at δ = 1e-06"), ("value", "much " * 30)]),
    Grid(("state", "visits"), [(NASTY, "1,200"), *((f"s{i}", "7") for i in range(60))], "Coverage"),
    Place("report", "/somewhere" * 20),
    "One line [bold]as it is[/bold].",
]


def on_terminal(command: list[str], **changes: str) -> str:
    """What a person sees on both outputs on a screen of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    kept = {k: v for k, v in clean_environment().items() if k not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        command, stdout=theirs, stderr=theirs, stdin=theirs, env={**kept, "TERM": "xterm-256color", **changes}, cwd=ROOT
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65536):
            said += chunk
    except OSError:
        # a pseudo-terminal ends in an error, not in an empty read
        pass
    os.close(ours)
    assert process.wait() == 0, said.decode()
    return said.decode().replace("\r\n", "\n")


def piped(command: list[str]) -> tuple[str, str]:
    r = subprocess.run(command, env=clean_environment(), cwd=ROOT, capture_output=True, text=True, check=True)
    return r.stdout, r.stderr


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = lay_out(tmp_path_factory.mktemp("terminal") / "shop")
    piped(reticent(folder, "ingest", str(folder)))
    piped(reticent(folder, "run", str(folder / "private.toml")))
    return folder


def reticent(shop: Path, *args: str) -> list[str]:
    return [sys.executable, "-P", "-m", "flows.cli", "--home", str(shop / "home"), *args]


def verbs(shop: Path) -> dict[str, tuple[list[str], str]]:
    private = str(shop / "private.toml")
    return {
        "plan": (["plan", private], "discrete gaussian"),
        "run": (["run", private], "budget"),
        "ledger": (["ledger", "show"], "committed"),
        "inspect": (["inspect", str(shop)], "OPERATOR ONLY"),
        "audit": (["audit", private, "--draws", "100"], "proved"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "plan", "ledger", "inspect", "audit"])
def test_a_person_sees_a_drawing_and_a_pipe_plain_words(shop, verb):
    args, words = verbs(shop)[verb]
    out, err = piped(reticent(shop, *args))
    assert words in out and not _ESCAPES.search(out + err) and not _SHAPES.search(out + err)
    seen = on_terminal(reticent(shop, *args))
    assert words in seen and _ESCAPES.search(seen)
    lines = _ESCAPES.sub("", seen.replace("\r", "\n")).split("\n")
    assert [line for line in lines if len(line) > 80 and "page.html" not in line and "report.html" not in line] == []


@pytest.mark.slow
def test_work_that_takes_time_shows_itself_to_a_person_only(shop):
    args = reticent(shop, "run", str(shop / "private.toml"))
    assert re.search(r"[\u2800-\u28ff] .*\d:\d\d:\d\d", _ESCAPES.sub("", on_terminal(args)))
    assert not re.search(r"\d:\d\d:\d\d", "".join(piped(args)))


def test_plain_text_says_all_but_what_only_a_screen_shows():
    text = "\n".join(plain(BLOCKS))
    assert "▁" not in text and "\x1b" not in text and "shop: spent ρ = 1 of 3" in text
    assert "… and 21 more; --json has all" in text and "s38" in text and "s39" not in text
    assert "guarantee   ε = 1" in text and "/somewhere" * 20 in text


def test_labels_and_lines_are_text_whatever_they_hold(capsys, monkeypatch):
    from rich.console import Console

    from flows.terminal.screen import draw

    console = Console(width=80, force_terminal=True, highlight=False, markup=False)
    with console.capture() as found:
        draw(BLOCKS, console)
    seen = _ESCAPES.sub("", found.get())
    assert "[red]call[/red] �[31m" in seen and "[bold]as it is[/bold]" in seen and "/somewhere" * 20 in seen
    assert "… and 21 more" in seen
    put(BLOCKS)
    assert capsys.readouterr().out == "\n".join(plain(BLOCKS)) + "\n"
