"""Nothing but the noisy integers may depend on the rows (privacy.md §12.7 and §0.1-16).

Two neighbouring logs of *real* kind go through ``reticent register | ingest | run`` end to end.  Only the drawn noise
is replaced, so that the noisy integers agree; then every byte that is published must agree too.
"""

from __future__ import annotations

import datetime
import re
import sys
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import pipeline.ledger.ledger as ledger_module
from flows import cli
from pipeline.logs.aggregate import aggregate
from pipeline.logs.parts import Split, evaluates, part_key, split_people
from pipeline.logs.store import latest
from pipeline.logs.summing import forget
from pipeline.privacy.noise import OsNoise
from reticent import load_card
from tests.flows.same_key import same_key
from tests.flows.shop import lay_out, rows

# a label, a reward and a user id that stand nowhere else
LABEL, REWARD, USER = "kanarienvogel-4711", "31415.92653", "u-schwalbe-0815"

SECRET, RESERVE = bytes(31) + b"\x03", Fraction(1, 2)

RECORDS = {
    "nobody": [],
    "one step": [(USER, 0, 0, "warm", "call", 2, True)],
    "all steps": [(USER, 0, t, "warm", "mail", 0, False) for t in range(3)],
    "too many steps": [(USER, 0, t, "cold", "none", 1, False) for t in range(9)],
    "labels outside the domain": [(USER, 0, t, LABEL, LABEL, 2, False) for t in range(3)],
    "rewards outside the range, and none": [
        (USER, 0, 0, "cold", "mail", REWARD, False),
        (USER, 0, 1, "warm", "mail", "NaN", False),
    ],
    "a dropped episode": [(USER, 0, 0, "cold", "mail", 0, False), (USER, 0, 0, "cold", "mail", 0, False)],
    "a hole": [(USER, 0, 0, "cold", "mail", 0, False), (USER, 0, 2, "warm", "call", 2, True)],
    "unreadable steps": [(USER, 0, LABEL, "cold", "mail", 0, False)],
    "many episodes": [(USER, e, 0, "cold", "mail", 2, True) for e in range(7)],
    "a line that is no row": [(USER, 0, 0, f'"{LABEL}', "mail", 0, False), (USER, 0, 1, "cold")],
}


class Clock(datetime.datetime):
    """The ledger's entries carry the time; here it stands still."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 1, tzinfo=tz)


class Agreeing:
    """Noise of the second run: what makes its noisy integers those of the first."""

    def __init__(self, noisy):
        self.noisy, self.exact, self.turn = noisy, None, 0

    def draw(self, size):
        name = list(self.noisy)[self.turn]
        self.turn += 1
        return self.noisy[name] - self.exact[name].reshape(size)


def reticent(root, *args):
    """One verb, in this process, by its command line."""
    old = sys.argv
    sys.argv = ["reticent", "--home", str(root / "home"), *map(str, args)]
    try:
        with pytest.raises(SystemExit) as done:
            cli.main()
    finally:
        sys.argv = old
    return done.value.code or 0


def prepare(root, record, *, other):
    log = [*rows(120)[: len(rows(60))], *record, *rows(120)[len(rows(60)) :]]
    shop = lay_out(root / "shop", kind="real", ledger="ledger.db", log=log)
    card = shop / "card.toml"
    # with the reserve of a ledger of real people
    text = card.read_text().replace("reserve = 0\n", "")
    if other:
        text = text.replace('ends = ["gone"]', 'ends = ["gone"], other = true')
        text = text.replace('"call"] }', '"call"], other = true }')
    card.write_text(text)
    same_key(root / "home" / "store")
    # the same people are reserved in both worlds, and the one who differs teaches
    secret = shop / "ledger.db.people-key"
    secret.write_text(SECRET.hex())
    secret.chmod(0o600)
    assert not any(evaluates([USER], RESERVE, part_key(SECRET, "")))
    assert reticent(root, "register", shop) == 0
    assert reticent(root, "ingest", shop) == 0
    loaded = load_card(card)
    whole = latest(root / "home" / "store", "shop")
    counts = aggregate(split_people(whole, Split(Fraction(0), part_key(SECRET, ""), RESERVE))[0], loaded)
    forget(whole)
    return shop, {name: table.copy() for name, table in counts.tables.items()}


def published(root):
    """Everything outside the store and the source, as bytes."""
    runs = root / "home" / "runs"
    return {str(p.relative_to(runs)): p.read_bytes() for p in sorted(runs.rglob("*")) if p.is_file()}


@pytest.fixture
def still(monkeypatch):
    monkeypatch.setattr(ledger_module, "datetime", Clock)


def run_world(root, monkeypatch, capfd, record, recipe, *, other, noisy=None):
    """A run; what it published and printed, its noisy integers, which are ``noisy`` where given, and the exact ones."""
    shop, exact = prepare(root, record, other=other)
    capfd.readouterr()
    with monkeypatch.context() as hooked:
        if noisy is not None:
            agreeing = Agreeing(noisy)
            agreeing.exact = exact
            hooked.setattr(OsNoise, "gaussian", lambda self, size, variance, kind: agreeing.draw(size))
            hooked.setattr(OsNoise, "laplace", lambda self, size, scale, kind: agreeing.draw(size))
        assert reticent(root, "run", shop / recipe) == 0
    said = capfd.readouterr()
    [folder] = (root / "home" / "runs").iterdir()
    table = pq.read_table(folder / "release.parquet")
    names, values = table["table"].to_numpy(zero_copy_only=False), table["value"].to_numpy()
    drawn = {n: values[names == n] for n in dict.fromkeys(names)}
    return (published(root), re.sub(str(root), "ROOT", said.out + said.err)), drawn, exact


def run_pair(tmp_path, monkeypatch, capfd, first, second, recipe, *, other):
    """Both runs; what each published and printed."""
    a, noisy, exact = run_world(tmp_path / "a", monkeypatch, capfd, first, recipe, other=other)
    assert any((noisy[n] != exact[n].reshape(-1)).any() for n in noisy)
    b, _, beside = run_world(tmp_path / "b", monkeypatch, capfd, second, recipe, other=other, noisy=noisy)
    return (a, b), any((exact[n] != beside[n]).any() for n in noisy)


# what is published where the person is not there, by whether the card knows other labels
ALONE = {}


# the others are the same code on other rows
FAST = ("one step", "labels outside the domain", "a dropped episode", "many episodes", "a line that is no row")


@pytest.mark.parametrize(
    "record", [pytest.param(r, marks=() if r in FAST else pytest.mark.slow) for r in RECORDS if r != "nobody"]
)
def test_every_published_byte_is_the_same_for_neighbours(tmp_path, monkeypatch, capfd, still, record):
    other = record in ("labels outside the domain", "many episodes")
    if other not in ALONE:
        ALONE[other] = run_world(tmp_path / "a", monkeypatch, capfd, [], "private.toml", other=other)
    a, noisy, _ = ALONE[other]
    b, *_ = run_world(tmp_path / "b", monkeypatch, capfd, RECORDS[record], "private.toml", other=other, noisy=noisy)
    assert a[0].keys() == b[0].keys() and len(a[0]) == 9
    assert not [name for name in a[0] if a[0][name] != b[0][name]]
    assert a[1] == b[1]


@pytest.mark.parametrize("recipe", ["both.toml", pytest.param("pure.toml", marks=pytest.mark.slow)])
def test_and_with_two_tables_and_with_laplace_noise(tmp_path, monkeypatch, capfd, still, recipe):
    pair, differ = run_pair(
        tmp_path, monkeypatch, capfd, RECORDS["one step"], RECORDS["all steps"], recipe, other=False
    )
    assert differ and pair[0] == pair[1]


def test_a_page_that_tells_the_number_of_rows_is_caught(tmp_path, monkeypatch, capfd, still):
    import flows.jobs.run as publishing

    original, publish = publishing.declared, publishing.publish_run

    def leaky(run, home, *others):
        count = latest(home.store, run.card.name).rows
        publishing.declared = lambda c, s: original(c, s).model_copy(update={"users_public": count})
        try:
            return publish(run, home, *others)
        finally:
            publishing.declared = original

    # set by hand: run_pair undoes what monkeypatch set
    publishing.publish_run = leaky
    try:
        (a, b), _ = run_pair(tmp_path, monkeypatch, capfd, [], RECORDS["one step"], "private.toml", other=False)
    finally:
        publishing.publish_run = publish
    assert [name for name in a[0] if a[0][name] != b[0][name]]


def readable(path: Path) -> bytes:
    """A file's bytes; of a Parquet file its cells as well, which are compressed."""
    raw = path.read_bytes()
    return raw + str(pq.read_table(path).to_pydict()).encode() if path.suffix == ".parquet" else raw


@pytest.mark.parametrize("other", [pytest.param(False, marks=pytest.mark.slow), True])
def test_canaries_of_the_log_stand_nowhere_outside_the_store(tmp_path, capfd, other):
    record = [row for name, rs in RECORDS.items() if name != "nobody" for row in rs]
    shop, _ = prepare(tmp_path, record, other=other)
    for verb in (
        ["plan", shop / "private.toml"],
        ["run", shop / "private.toml"],
        ["run", shop / "both.toml", "--json"],
        ["ledger", "show", "--card", shop],
        ["ledger", "verify", "--card", shop],
        ["ledger", "export", tmp_path / "home" / "entries.json", "--card", shop],
    ):
        assert reticent(tmp_path, *verb) == 0, verb
    for run in sorted((tmp_path / "home" / "runs").iterdir()):
        assert reticent(tmp_path, "report", run.name) == 0
        assert reticent(tmp_path, "policy", "show", run.name) == 0
    said = capfd.readouterr()
    assert_nowhere_but_in_the_store(tmp_path, said.out + said.err, (LABEL, USER), REWARD)


def assert_nowhere_but_in_the_store(folder: Path, said: str, stored, *more) -> None:
    """Canaries of a log that was read; ``more``: of those that the store does not hold as text."""
    files = [p for p in folder.rglob("*") if p.is_file() and "store" not in p.parts and p.name != "log.csv"]
    texts = {str(p): readable(p) for p in files} | {"stdout and stderr": said.encode()}
    assert len(files) >= 10
    for where, text in texts.items():
        for canary in (*stored, *more):
            assert canary.encode() not in text, (canary, where)
    kept = b"".join(readable(p) for p in (folder / "home" / "store").rglob("*.parquet"))
    assert all(canary.encode() in kept for canary in stored)
