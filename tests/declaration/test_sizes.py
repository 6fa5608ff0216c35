"""What no memory, float, terminal or file system can hold is refused by the card, in a line, before it is expanded."""

import tomllib
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import reticent
from pipeline.logs.target_sums import TargetSums
from pipeline.statistics.ask import Ask
from pipeline.statistics.target_plan import STEPS, TargetPlan, TargetQuestion
from tests.declaration.test_card import GOOD, write
from tests.flows.shop import lay_out
from tests.flows.verb import reticent as run
from tests.statistics.test_sensitivity import SCHEMA, tiny

MOODS = 'labels = ["cold", "warm"]'
OFFERS = 'labels = ["none", "mail", "call"]'
WIDE = "labels = 1" + 18 * "0"
RANGE = "range = [0.0, 2.0]"
FILES = 'files = ["log.csv"]'
VETO = 'vetoes = [["cold", "call"]]'


def card_of(folder: Path, *changes: tuple[str, str]) -> Path:
    path = lay_out(folder) / "card.toml"
    text = path.read_text()
    for was, written in (*changes, (VETO, "")):
        assert was in text, was
        text = text.replace(was, written)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("was", "written", "key", "says"),
    [
        (RANGE, "range = [0, 1e308]", "reward", "range: sums of rewards in"),
        (RANGE, "range = [-1e308, 1e308]", "reward", "range: sums of rewards in"),
        (RANGE, "range = [0, 5e-324]", "reward", "range: sums of rewards in"),
        (RANGE, f"{RANGE}\ntotal = inf", "reward", "total must be at most 1e+30; got inf"),
        (MOODS, WIDE, "domain.states", f"1{18 * '0'} are more than 100,000"),
        (OFFERS, WIDE, "domain.actions", f"1{18 * '0'} are more than 100,000"),
        (MOODS, "labels = 100001", "domain.states", "100001 are more than 100,000"),
        (FILES, 'files = ["***"]', "source.files", "'***': '**' stands for all folders below"),
        (FILES, 'files = ["a/b**/c.csv"]', "source.files", "'**' stands for all folders below"),
        (FILES, 'files = ["."]', "source.files", "must stay below the card's folder"),
        (MOODS, r'labels = ["cold", "wa\u0000rm"]', "domain.states", r"the label 'wa\x00rm' holds a control character"),
        (MOODS, r'labels = ["cold", "\u001b[2Jwarm"]', "domain.states", r"'\x1b[2Jwarm' holds a control character"),
        (OFFERS, r'labels = ["none", "call\u0007"]', "domain.actions", r'labels = { name = ["call\u0007"], … }'),
    ],
)
def test_the_card_is_refused_with_its_key(tmp_path, was, written, key, says):
    card = card_of(tmp_path / "shop", (was, written))
    for verb in ("register", "ingest"):
        done = run(verb, card, cwd=tmp_path)
        assert done.returncode == 2 and f"{key}: " in done.stderr and says in done.stderr, done.stderr
    assert not (tmp_path / ".reticent" / "ledger.db").exists()


def test_pairs_of_labels_are_counted_before_a_table_of_them_is_made(tmp_path):
    card = card_of(tmp_path / "shop", (MOODS, "labels = 100000"), (OFFERS, "labels = 1000"))
    done = run("register", card, cwd=tmp_path)
    assert done.returncode == 2 and "100,000,000 pairs of labels are more than 10,000,000" in done.stderr


def test_a_pattern_that_no_file_system_can_look_up_is_the_cards_fault(tmp_path):
    done = run("ingest", card_of(tmp_path / "shop", (FILES, f'files = ["{5000 * "x"}"]')), cwd=tmp_path)
    assert done.returncode == 2 and "source.files" in done.stderr and "File name too long" in done.stderr


@pytest.mark.parametrize(
    "text",
    ["a" + 5000 * ".a" + " = 1", "[a" + 5000 * ". a" + "]", "x = { 'b'" + 5000 * ' . "c.d" ' + "= 1 }"],
    ids=["key", "table", "inline"],
)
def test_a_key_of_many_parts_takes_no_memory(tmp_path, text):
    """The parser keeps every beginning of it: 100 MB for these, 10 GB for 50 000 parts."""
    path = tmp_path / "card.toml"
    path.write_text(f"{text}\n")
    tracemalloc.start()
    with pytest.raises(reticent.CardError, match="stand more than 20 deep"):
        reticent.load_card(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20 << 20


def test_a_file_that_is_no_card_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "log.csv"
    with path.open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(reticent.CardError, match="larger than 4 MiB"):
        reticent.load_card(path)


DOTS = 30 * "a."


@pytest.mark.parametrize(
    ("written", "label"),
    [
        (f'"{DOTS}"', DOTS),
        (f"'{DOTS}'", DOTS),
        (f'"""\n{DOTS}\\""""""', f'{DOTS}"""'),
        (f"'''{DOTS}''''", f"{DOTS}'"),
        (f"'x' # {DOTS}\n", "x"),
        ("'x' # a.b.c'\"\n" + DOTS.replace("a.", "# a.b.c'\"\r\n"), "x"),
        ('"\\"a.b"', '"a.b'),
    ],
)
def test_dots_in_texts_and_comments_are_no_parts_of_a_key(tmp_path, written, label):
    card = write(tmp_path, GOOD.replace('"x", "y"', f'"y", {written}'))
    assert reticent.load_card(card).domain.live_states[1] == label
    # a key of ten parts is unknown and not too deep
    with pytest.raises(reticent.CardError, match="a: unknown key"):
        reticent.load_card(write(tmp_path, ".".join("abcdefghij") + f" = 1\n{card.read_text()}"))


def test_a_drafted_label_is_one_that_a_terminal_shows(tmp_path):
    rows = [(f"p{i}", i % 3, ["low", "hi\agh", "hi\bgh"][i % 3], ["a", "b\x1b"][i % 2], 0.5) for i in range(600)]
    frame = pl.DataFrame(rows, schema=["patient", "visit", "severity", "treatment", "outcome"], orient="row")
    path = reticent.draft(frame, reward="outcome").save(tmp_path)
    domain = tomllib.loads(path.read_text(encoding="utf-8"))["domain"]
    assert domain["states"]["same_as"] == {"hi\agh": "hi�gh", "hi\bgh": "hi�gh"}
    assert (domain["actions"]["labels"], domain["actions"]["same_as"]) == (["a", "b�"], {"b\x1b": "b�"})
    assert reticent.load_card(path).domain.state_labels == ["hi�gh", "low", "end"]


@pytest.mark.parametrize("asked", [None, TargetQuestion(np.zeros((2, 2), dtype=np.int64), 1)])
def test_whatever_a_float_becomes_a_sum_moves_by_no_more_than_its_bound(asked):
    """A card that was not checked, as of before there was a check: its targets were -2^63 each."""
    card = tiny(horizon=2)
    card = card.model_copy(update={"reward": card.reward.model_copy(update={"range": (0.0, 1.7e308)})})
    plan = TargetPlan(card, Ask(), 9, 9, 4, 1)
    stage: Any = "v" if asked is None else "q"
    rows = [(u, 0, h, h % 2, u % 2, r, 1, False) for u in range(4) for h, r in enumerate((1.7e308, 1.7e308))]
    work = TargetSums(plan, asked)
    sums = work.zero()
    with np.errstate(all="ignore"):
        work.add_rows(sums, pl.DataFrame(rows, schema=SCHEMA, orient="row"))
    most = STEPS[stage] * sums["count"]
    assert most.sum() > 0 and np.all((-most <= sums["sum"]) & (sums["sum"] <= most))
