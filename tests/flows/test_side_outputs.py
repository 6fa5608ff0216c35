"""Nothing but the noisy integers may depend on the rows (privacy.md §12.7 and §0.1-16).

Two neighbouring logs of *real* kind go through ``reticent register | ingest | run`` end to end.  Only the drawn noise
is replaced, so that the noisy integers agree; then every byte that is published must agree too.
"""

import datetime
import re
import shutil
import sys
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import flows.jobs.nightly
import flows.jobs.run
from flows import cli
from flows.config.home import Work
from flows.jobs.intake import ingest_edition
from pipeline.logs.aggregate import aggregate
from pipeline.logs.parts import Split, evaluates, forget, part_key, split_people
from pipeline.logs.store import check_delivery, earlier_twin, latest
from pipeline.privacy.continual import exact_rows
from pipeline.privacy.noise import OsNoise
from pipeline.statistics import private_sum
from reticent import LogError, Store, load_card
from tests.flows.nights import FIRST, Shop, customers
from tests.flows.shop import add, change, lay_out, rows, same_key
from tests.jobs import page_of

# a label, a reward and a user id that stand nowhere else
LABEL, REWARD, USER = "kanarienvogel-4711", "31415.92653", "u-schwalbe-0815"

SECRET, RESERVE = bytes(31) + b"\x03", Fraction(1, 2)

RECORDS = {
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


ALL = [row for record in RECORDS.values() for row in record]


class Clock(datetime.datetime):
    """The ledger's entries carry the time; here it stands still."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 1, tzinfo=tz)


def agreeing(noisy, exact):
    """Noise of the second run: what makes its noisy integers those of the first."""
    names = iter(noisy)

    def draw(self, size, *_):
        name = next(names)
        return noisy[name] - exact[name].reshape(size)

    return draw


def reticent(root, *args):
    """One verb, in this process, by its command line."""
    words = ["reticent", "--home", str(root / "home"), *map(str, args)]
    with patch.object(sys, "argv", words), pytest.raises(SystemExit) as done:
        cli.main()
    return done.value.code or 0


def prepare(root, record, *, other):
    log = [*rows(120)[: len(rows(60))], *record, *rows(120)[len(rows(60)) :]]
    shop = lay_out(root / "shop", kind="real", log=log)
    card = shop / "card.toml"
    # with the reserve of a ledger of real people
    change(card, "reserve = 0\n", "")
    if other:
        change(card, 'ends = ["gone"]', 'ends = ["gone"], other = true')
        change(card, '"call"] }', '"call"], other = true }')
    same_key(root / "home" / "store")
    # the same people are reserved in both worlds, and the one who differs teaches
    secret = shop / "ledger.db.people-key"
    secret.write_text(SECRET.hex())
    secret.chmod(0o600)
    assert not any(evaluates([USER], RESERVE, part_key(SECRET, "")))
    assert reticent(root, "register", shop) == reticent(root, "ingest", shop) == 0
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
def still(constants):
    constants(clock=Clock)


def run_world(root, monkeypatch, capfd, record, recipe, *, other, noisy=None):
    """A run; what it published and printed, its noisy integers, which are ``noisy`` where given, and the exact ones."""
    shop, exact = prepare(root, record, other=other)
    capfd.readouterr()
    with monkeypatch.context() as hooked:
        if noisy is not None:
            hooked.setattr(OsNoise, "gaussian", draw := agreeing(noisy, exact))
            hooked.setattr(OsNoise, "laplace", draw)
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


@pytest.mark.parametrize("record", [pytest.param(r, marks=() if r in FAST else pytest.mark.slow) for r in RECORDS])
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
    two = RECORDS["one step"], RECORDS["all steps"]
    pair, differ = run_pair(tmp_path, monkeypatch, capfd, *two, recipe, other=False)
    assert differ and pair[0] == pair[1]


def test_a_page_that_tells_the_number_of_rows_is_caught(tmp_path, monkeypatch, capfd, still):
    publishing = flows.jobs.run
    original, publish = publishing.declared, publishing.publish_run

    def leaky(run, home, *others):
        count = latest(home.store, run.card.name).rows
        declared = lambda c, s: original(c, s).model_copy(update={"users_public": count})  # noqa: E731
        with patch.object(publishing, "declared", declared):
            return publish(run, home, *others)

    with patch.object(publishing, "publish_run", leaky):
        (a, b), _ = run_pair(tmp_path, monkeypatch, capfd, [], RECORDS["one step"], "private.toml", other=False)
    assert [name for name in a[0] if a[0][name] != b[0][name]]


def readable(path: Path) -> bytes:
    """A file's bytes; of a Parquet file its cells as well, which are compressed."""
    raw = path.read_bytes()
    return raw + str(pq.read_table(path).to_pydict()).encode() if path.suffix == ".parquet" else raw


@pytest.mark.parametrize("other", [pytest.param(False, marks=pytest.mark.slow), True])
def test_canaries_of_the_log_stand_nowhere_outside_the_store(tmp_path, capfd, other):
    shop, _ = prepare(tmp_path, ALL, other=other)
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


NIGHTS = (1, 3)


def watched(patch, wanted=()):
    """Each night's rows before noise, and as they are drawn: as those of ``wanted``, as if the noise had fallen so."""
    exact, drawn = [], []

    def draw_rows(rows, leaf, blocks):
        exact.append(exact_rows(rows, leaf, blocks.length))
        fresh = exact[-1] + blocks.draw(len(rows))
        drawn.append(wanted[len(drawn)] if len(drawn) < len(wanted) else fresh)
        return drawn[-1]

    patch.setattr(private_sum, "draw_rows", draw_rows)
    # an operator's key is a secret of the home, whoever its people are
    patch.setattr(Ed25519PrivateKey, "generate", lambda: Ed25519PrivateKey.from_private_bytes(bytes(32)))
    return exact, drawn


def published_by(shop):
    """Every file of the runs but the lock, where the pointers lead, and the ledger."""
    runs = shop.home.runs
    files = (p for p in sorted(runs.rglob("*")) if p.is_file() and p.name != ".releasing")
    pages = {str(p.relative_to(runs)): p.read_bytes() for p in files}
    assert Store(shop.home.root).ledger(shop.folder).verify()["ok"]
    links = {p.name: p.readlink() for p in runs.iterdir() if p.is_symlink()}
    return pages, links, [(e.kind, e.at, dict(e.body)) for e in shop.ledger.entries()]


def assert_same(a, b, files):
    assert a[0].keys() == b[0].keys() and len(a[0]) == files
    assert not [name for name in a[0] if a[0][name] != b[0][name]]
    assert a[1:] == b[1:]


def year(root, monkeypatch, records, wanted=()):
    """Two nights, the second after an empty one; their rows, what was published, and what was said."""
    shop, said = Shop(root, monkeypatch, nights=4), []
    with monkeypatch.context() as hooked:
        rows = watched(hooked, wanted)
        for night, record in zip(NIGHTS, records, strict=True):
            shop.night(night, [*customers(100 * night, 60), *record], say=said.append)
    return rows, (*published_by(shop), re.sub(str(root), "ROOT", "\n".join(said)))


def test_every_published_byte_of_two_nights_is_the_same_for_neighbours(tmp_path, monkeypatch):
    """The person is there on night 1 only, or on night 3 only: her record moves to another leaf as well."""
    (exact, drawn), a = year(tmp_path / "a", monkeypatch, (RECORDS["all steps"], []))
    (beside, _), b = year(tmp_path / "b", monkeypatch, ([], RECORDS["one step"]), drawn)
    assert_same(a, b, 18)
    assert any((x != y).any() for x, y in zip(exact, beside, strict=True))


BASE, MORE = customers(0, 60), customers(60, 60)
# what two neighbours deliver on night 2: one person is the only news, the only rows, the only cause of a refusal
NEWS = {
    "a cumulative log": (BASE, [*BASE, *RECORDS["all steps"]]),
    "tonight's rows only": ([], RECORDS["one step"]),
    "no bytes": (None, RECORDS["all steps"]),
    "a log beyond its card's tolerance": tuple(
        [*MORE, *RECORDS[record]] for record in ("labels outside the domain", "one step")
    ),
}


def two_nights(root, monkeypatch, delivered, wanted=()):
    """Two nights by the nightly job, the second with ``delivered``; their rows, and everything that anybody sees."""
    shop, shown = Shop(root, monkeypatch, nights=4, budget="[tolerance]\nunknown_label = 0.0\n"), []
    recipe = shop.folder / "night.toml"
    # a gate draws noise of its own, which the homes here do not share: tests/flows/test_gate.py has it
    change(recipe, "[privacy]\n", "[privacy]\ngate = 0.0\n")
    add(recipe, "\n[watch]\nstale_days = 1\n[promote]\n")

    def step(name):
        """A task as a server sees it: its name, and whether it failed."""

        def called(work, *args, **kwargs):
            shown.append((name, "failed"))
            done = work(*args, **kwargs)
            shown[-1] = (name, "done")
            return done

        return called

    with monkeypatch.context() as hooked:
        rows = watched(hooked, wanted)
        for night, log in ((1, BASE), (2, delivered)):
            if log is None:
                (shop.folder / "log.csv").write_bytes(b"")
            found = shop.job(night, log, work=Work(step))
            # what a server is shown, and all but the exit code and the paths of what the shell prints
            page = page_of(found)
            kept = {k: v for k, v in found.items() if k not in ("exit", "folder", "report")}
            shown.append((page.key, page.title, page.markdown, page.rows, kept))
    return rows, (*published_by(shop), shown)


# the others are the same code on other bytes
QUICK_NEWS = ("a cumulative log", "a log beyond its card's tolerance")


@pytest.mark.parametrize("news", [n if n in QUICK_NEWS else pytest.param(n, marks=pytest.mark.slow) for n in NEWS])
def test_nobody_outside_the_store_sees_whether_a_night_brought_one_person(tmp_path, monkeypatch, news):
    (exact, drawn), a = two_nights(tmp_path / "a", monkeypatch, NEWS[news][0])
    (beside, _), b = two_nights(tmp_path / "b", monkeypatch, NEWS[news][1], drawn)
    assert_same(a, b, 19)
    moved = [((x - y) ** 2).sum() for x, y in zip(exact, beside, strict=True)]
    mechanisms = next(body for kind, _, body in a[2] if kind == "INTENT")["mechanisms"]
    # one person moves the rows by no more than is charged, whatever becomes of the log of all the others
    assert 0 < sum(moved) <= sum(m["l2_squared"] * m["running"]["cost"] for m in mechanisms)


def test_a_log_that_is_refused_for_one_person_moves_all_the_others_and_is_caught(tmp_path, monkeypatch):
    def strict(card, home, work, *night):
        made = ingest_edition(card, home, work, *night)
        try:
            check_delivery(card, made)
        except LogError:
            # tomorrow's edition has the rows
            shutil.rmtree(made.folder)
        return latest(home.store, "shop")

    monkeypatch.setattr(flows.jobs.nightly, "ingest_edition", strict)
    monkeypatch.setattr(flows.jobs.run, "drawn_pages", lambda *_: ("", ""))
    news = NEWS["a log beyond its card's tolerance"]
    a, b = (two_nights(tmp_path / n, monkeypatch, log)[0][0] for n, log in zip("ab", news, strict=True))
    assert sum(((x - y) ** 2).sum() for x, y in zip(a, b, strict=True)) > 1000


def test_a_night_only_where_somebody_is_new_is_caught(tmp_path, monkeypatch):
    real, told, drawn = flows.jobs.nightly.run_recipe, [], []

    def only_news(recipe, home, work, noise, day, edition, **asked):
        news = day if earlier_twin(home.store, latest(home.store, "shop")) is None else FIRST
        return real(recipe, home, work, noise, news, edition, **asked)

    monkeypatch.setattr(flows.jobs.nightly, "run_recipe", only_news)
    monkeypatch.setattr(flows.jobs.run, "drawn_pages", lambda *_: ("", ""))
    for i, log in enumerate(NEWS["a cumulative log"]):
        (_, drawn), seen = two_nights(tmp_path / str(i), monkeypatch, log, drawn)
        told.append(sorted(seen[0]))
    assert told[0] != told[1]


def test_canaries_of_a_night_stand_nowhere_outside_the_store(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    for night in (1, 2):
        shop.night(night, [*customers(60 * night, 60), *ALL])
    assert_nowhere_but_in_the_store(tmp_path, "", (), LABEL, REWARD, USER)
    # hashes under a random key: not even the store's memory of who was counted names anybody
    kept = b"".join(p.read_bytes() for p in shop.kept.iterdir())
    assert USER.encode() not in kept
