"""What an operator sees: a drawing on a terminal, plain words in a pipe, progress; and what memory has room for."""

import fcntl
import json
import os
import pty
import re
import resource
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import flows.terminal.screen as pacing
from flows.terminal.screen import Chart, Grid, Pairs, Place, Speed, Title, draw, duration, plain, progress_lines, put
from pipeline.logs import spills
from pipeline.logs.sources import Sources
from reports.page import NOT_DRAWN
from reticent import CardError, Store, run
from tests.flows.service import ROOT, clean_environment
from tests.flows.shop import change, lay_out
from tests.flows.verb import reticent as shell
from tests.logs.conftest import make_card

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


def on_terminal(command: list[str]) -> str:
    """What a person sees on both outputs on a screen of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    kept = {k: v for k, v in clean_environment().items() if k not in ("NO_COLOR", "COLUMNS")}
    env = {**kept, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=env, cwd=ROOT)
    os.close(theirs)
    said = b""
    # a pseudo-terminal ends in an error, not in an empty read
    with suppress(OSError):
        while chunk := os.read(ours, 65536):
            said += chunk
    os.close(ours)
    assert process.wait() == 0, said.decode()
    return said.decode().replace("\r\n", "\n")


def piped(command: list[str]) -> tuple[str, str]:
    r = subprocess.run(command, env=clean_environment(), cwd=ROOT, capture_output=True, text=True, check=True)
    return r.stdout, r.stderr


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = lay_out(tmp_path_factory.mktemp("terminal") / "shop")
    piped(process_of(folder, "ingest", str(folder)))
    piped(process_of(folder, "run", str(folder / "private.toml")))
    return folder


def process_of(shop: Path, *args: str) -> list[str]:
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
    out, err = piped(process_of(shop, *args))
    assert words in out and not _ESCAPES.search(out + err) and not _SHAPES.search(out + err)
    seen = on_terminal(process_of(shop, *args))
    assert words in seen and _ESCAPES.search(seen)
    lines = _ESCAPES.sub("", seen.replace("\r", "\n")).split("\n")
    assert [line for line in lines if len(line) > 80 and "page.html" not in line and "report.html" not in line] == []


@pytest.mark.slow
def test_work_that_takes_time_shows_itself_to_a_person_only(shop):
    args = process_of(shop, "run", str(shop / "private.toml"))
    assert re.search(r"[\u2800-\u28ff] .*\d:\d\d:\d\d", _ESCAPES.sub("", on_terminal(args)))
    assert not re.search(r"\d:\d\d:\d\d", "".join(piped(args)))


def test_plain_text_says_all_but_what_only_a_screen_shows():
    text = "\n".join(plain(BLOCKS))
    assert "▁" not in text and "\x1b" not in text and "shop: spent ρ = 1 of 3" in text
    assert "… and 21 more; --json has all" in text and "s38" in text and "s39" not in text
    assert "guarantee   ε = 1" in text and "/somewhere" * 20 in text


def test_labels_and_lines_are_text_whatever_they_hold(capsys, monkeypatch):
    console = Console(width=80, force_terminal=True, highlight=False, markup=False)
    with console.capture() as found:
        draw(BLOCKS, console)
    seen = _ESCAPES.sub("", found.get())
    assert "[red]call[/red] �[31m" in seen and "[bold]as it is[/bold]" in seen and "/somewhere" * 20 in seen
    assert "… and 21 more" in seen
    put(BLOCKS)
    assert capsys.readouterr().out == "\n".join(plain(BLOCKS)) + "\n"


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each place prints, and the exact numbers; of budgets that the nearest number would make look smaller."""
    place = tmp_path_factory.mktemp("printed")
    shop = lay_out(place / "shop", cap=1.2346)
    change(recipe := shop / "private.toml", "rho = 1.0", "rho = 0.712341")
    for verb in ("register", "ingest"):
        assert shell(verb, shop / "card.toml", cwd=place).returncode == 0
    plan, run = (shell(*verb, recipe, cwd=place) for verb in (("plan", "--no-quality"), ("run",)))
    assert (plan.returncode, run.returncode) == (0, 0), plan.stderr + run.stderr
    [folder] = (place / ".reticent" / "runs").glob("private-*")
    facts = json.loads((folder / "report.json").read_text())
    assert shell("report", folder, cwd=place).returncode == 0
    html = unescape(re.sub("<[^>]+>", " ", (folder / "report.html").read_text()))
    said = {"plan": plan.stdout, "run": run.stdout, "page": html, "markdown": (folder / "report.md").read_text()}
    return said, facts


def near(text: str, sign: str, exact: float) -> list[float]:
    """The numbers behind a sign that stand for one exact number: within a hundredth of it."""
    found = [float(x.replace(",", "").rstrip(".")) for x in re.findall(rf"{sign} ?=? ?([\d,]*\d\.\d+)", text)]
    return [x for x in found if abs(x / exact - 1) < 0.01]


@pytest.mark.parametrize("place", ["plan", "run", "page", "markdown"])
def test_no_loss_is_printed_smaller_than_it_is_and_no_rest_larger(printed, place):
    said, facts = printed
    promise, ledger = facts["guarantee"], facts["ledger"]
    for sign, exact in (("ε", promise["epsilon"]), ("ρ", promise["rho"])):
        found = near(said[place], sign, exact)
        assert found and min(found) >= exact, (place, sign, exact, found)
    left = near(said[place], "(?:left|left after it|[Ll]eft for the life of shop: ρ =)", ledger["remaining_rho"])
    assert left and max(left) <= ledger["remaining_rho"], (place, ledger["remaining_rho"], left)


def test_to_the_nearest_each_of_these_would_have_been_wrong(printed):
    """The budget is chosen so that it shows: at 2 to 4 digits the nearest number lies on the other side."""
    promise, ledger = printed[1]["guarantee"], printed[1]["ledger"]
    assert float(f"{promise['epsilon']:.4g}") < promise["epsilon"] and float(f"{promise['rho']:.4g}") < promise["rho"]
    assert float(f"{ledger['remaining_rho']:.4g}") > ledger["remaining_rho"]


def resources(**asked: str) -> tuple[int, str | None]:
    """Bytes and scheduler of a store."""
    found = Store(**asked).home.resources
    return found.memory, getattr(found.elsewhere, "address", None)


def test_sizes_are_read_and_durations_said_as_they_are_written() -> None:
    sizes = (("1073741824", 1 << 30), ("1.5 GiB", 3 << 29), ("800MB", 800_000_000), ("2gib", 2 << 30))
    assert [resources(memory=text)[0] for text, _ in sizes] == [size for _, size in sizes]
    for text in ("much", "1 parsec", "-1GiB", "500MiB", "nanGB"):
        with pytest.raises(CardError, match="--memory"):
            resources(memory=text)
    times = ((0, "0 s"), (89, "89 s"), (600, "10 min"), (7500, "2 h 05 min"), (86_400, "24 h 00 min"))
    assert [duration(seconds) for seconds, _ in times] == [text for _, text in times]


def test_options_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resources() == (2 << 30, None)
    monkeypatch.setenv("RETICENT_MEMORY", "3GiB")
    monkeypatch.setenv("RETICENT_DASK", "tcp://a:1")
    assert resources() == (3 << 30, "tcp://a:1")
    assert resources(memory="2GiB", dask="tls://b:2") == (2 << 30, "tls://b:2")
    with pytest.raises(CardError, match="address of a scheduler"):
        resources(dask="somewhere")


def test_the_command_line_takes_both(tmp_path: Path) -> None:
    shop = lay_out(tmp_path / "shop")
    lots = shell("--memory", "lots", "ingest", shop, cwd=tmp_path)
    assert lots.returncode == 2 and "--memory 'lots': give a size such as 512MB or 1.5GiB" in lots.stderr
    assert shell("--memory", "2GiB", "--dask", "nowhere", "ingest", shop, cwd=tmp_path).returncode == 2
    assert shell("--memory", "2GiB", "ingest", shop, cwd=tmp_path).returncode == 0


def test_no_published_file_knows_of_either(tmp_path: Path) -> None:
    folders = list[Path]()
    for memory in ("1GiB", "3GiB"):
        shop, store = lay_out(tmp_path / memory / "shop"), Store(tmp_path / memory / "home", memory=memory)
        store.ingest(shop)
        folders.append(run(shop / "exact.toml", store=store).folder)
    names = [sorted(p.name for p in folder.iterdir()) for folder in folders]
    assert names[0] == names[1]
    for name in names[0]:
        if name not in ("certificate.json", "report.html", "report.md"):
            assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of a pace, by hand."""
    now = [100.0]
    monkeypatch.setattr(pacing, "Speed", lambda: Speed(clock=lambda: now[0]))
    return now


def test_what_is_quick_says_nothing(clock: list[float], capfd: pytest.CaptureFixture[str]) -> None:
    tell = progress_lines("ingest")
    for done in range(20):
        clock[0] += 0.09
        tell(done, 20)
    assert capfd.readouterr() == ("", "")


def test_a_pipe_gets_plain_lines_with_speed_and_time_left(clock, capfd) -> None:
    tell = progress_lines("counting")
    for done in range(0, 3_100_000, 100_000):
        tell(done, 3_000_000)
        clock[0] += 1.0
    said = capfd.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "counting: 200,000 of 3,000,000 rows, 100,000 rows/s, 28 s left"
    assert len(lines) == 3 and "\r" not in said.err and "\x1b" not in said.err


def test_what_was_done_before_is_no_speed_and_a_second_pass_begins_anew() -> None:
    now = [0.0]
    pace = Speed(clock=lambda: now[0])
    assert pace.update(5_000_000, 6_000_000) and pace.rate is None
    now[0] = 10.0
    assert not pace.update(5_500_000, 6_000_000) and pace.rate == 50_000
    assert pace.line("counting", "rows").endswith("50,000 rows/s, 10 s left")
    assert pace.update(0, 6_000_000) and pace.rate is None


def likely(rows: int, memory: int) -> int:
    return spills.likely_partitions(make_card(Path(), ["log.csv"]), Sources((), {}, {}, None, rows), memory)


def test_less_memory_makes_more_partitions_and_too_little_is_refused(constants: Callable[..., None]) -> None:
    constants(open=lambda: 2048)
    assert [likely(10_000_000, m << 20) for m in (640, 1024, 1 << 20)] == [39, 11, 11]
    assert likely(20_000_000_000, 8 << 30) == 2048
    with pytest.raises(CardError, match=r"need about 5\.2 GiB; give --memory more"):
        likely(20_000_000_000, 1 << 30)


def test_as_many_partitions_as_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[Any] = [(256, 512)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    assert spills.most_partitions() == 384
    spills.allow_files(100)
    assert limits == [(256, 512)]
    spills.allow_files(384)
    assert limits[-1] == (512, 512)


@pytest.mark.slow
def test_ingest_cuts_as_memory_asks(tmp_path: Path, constants: Callable[..., None]) -> None:
    constants(partition=50)
    shop = lay_out(tmp_path / "shop")
    made = Store(tmp_path / "home").ingest(shop)
    assert made["partitions"] > 5
    parts = sorted((tmp_path / "home" / "store" / "shop" / "snapshot-0001").glob("part-*.parquet"))
    assert sum(len(pl.read_parquet(p)) for p in parts) == made["rows"]


# enough for a run, too little for the renderer
LIMIT = 6 << 30


def limited(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A verb as a process of its own, under a limit."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))  # noqa: E731
    how = {"env": clean_environment(), "text": True, "capture_output": True, "check": False, "preexec_fn": limit}
    return subprocess.run([sys.executable, "-P", "-m", "flows.cli", *map(str, words)], cwd=cwd, **how)


@pytest.mark.slow
def test_a_run_whose_pictures_cannot_be_drawn_is_published_without_them_and_verified(tmp_path):
    shop = lay_out(tmp_path / "shop")
    assert shell("ingest", shop, cwd=tmp_path).returncode == 0
    done = limited("run", shop / "private.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    [run] = (tmp_path / ".reticent" / "runs").glob("private-*")
    page = (run / "report.html").read_text()
    assert NOT_DRAWN in page and "new policy" in page
    here = shell("ledger", "verify", run, "--card", shop / "card.toml", cwd=tmp_path)
    assert here.returncode == 0 and "pictures were drawn on one machine only" in here.stdout, here.stdout + here.stderr
    # a run again, where they can be drawn, publishes them
    assert shell("run", shop / "private.toml", cwd=tmp_path).returncode == 0
    assert NOT_DRAWN not in (run / "report.html").read_text()
