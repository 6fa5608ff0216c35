"""Nothing but noisy integers depends on the rows of a night: neighbours publish the same bytes (privacy.md §12.7)."""

from __future__ import annotations

import re
import shutil

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import flows.jobs.nightly
import flows.jobs.run
from flows.config.home import Work
from flows.jobs.intake import ingest_edition
from pipeline.logs.store import check_delivery, earlier_twin, latest
from pipeline.privacy.continual import exact_rows
from pipeline.statistics import private_sum
from reticent import LogError, Store
from tests.flows.nights import FIRST, Shop, customers
from tests.flows.test_side_outputs import LABEL, RECORDS, REWARD, USER, readable
from tests.jobs import page_of

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


def published(shop):
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
    return rows, (*published(shop), re.sub(str(root), "ROOT", "\n".join(said)))


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
    "a log beyond its card's tolerance": (
        [*MORE, *RECORDS["labels outside the domain"]],
        [*MORE, *RECORDS["one step"]],
    ),
}


def two_nights(root, monkeypatch, delivered, wanted=()):
    """Two nights by the nightly job, the second with ``delivered``; their rows, and everything that anybody sees."""
    shop, shown = Shop(root, monkeypatch, nights=4, budget="[tolerance]\nunknown_label = 0.0\n"), []
    recipe = shop.folder / "night.toml"
    # a gate draws noise of its own, which the homes here do not share: tests/flows/test_gate.py has it
    text = recipe.read_text().replace("[privacy]\n", "[privacy]\ngate = 0.0\n")
    recipe.write_text(text + "\n[watch]\nstale_days = 1\n[promote]\n")

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
    return rows, (*published(shop), shown)


# the others are the same code on other bytes
FAST = ("a cumulative log", "a log beyond its card's tolerance")


@pytest.mark.parametrize("news", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in NEWS])
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
        newest = latest(home.store, "shop")
        news = day if earlier_twin(home.store, newest) is None else FIRST
        return real(recipe, home, work, noise, news, edition, **asked)

    monkeypatch.setattr(flows.jobs.nightly, "run_recipe", only_news)
    monkeypatch.setattr(flows.jobs.run, "drawn_pages", lambda *_: ("", ""))
    for i, log in enumerate(NEWS["a cumulative log"]):
        (_, drawn), seen = two_nights(tmp_path / str(i), monkeypatch, log, drawn)
        told.append(sorted(seen[0]))
    assert told[0] != told[1]


def test_canaries_of_a_night_stand_nowhere_outside_the_store(tmp_path, monkeypatch):
    record = [row for name, rows in RECORDS.items() if name != "nobody" for row in rows]
    shop = Shop(tmp_path, monkeypatch)
    shop.night(1, [*customers(0, 60), *record])
    shop.night(2, [*customers(60, 60), *record])
    files = [p for p in tmp_path.rglob("*") if p.is_file() and "store" not in p.parts and p.name != "log.csv"]
    assert len(files) >= 20
    for path in files:
        for canary in (LABEL, REWARD, USER):
            assert canary.encode() not in readable(path), path
    # hashes under a random key: not even the store's memory of who was counted names anybody
    kept = b"".join(p.read_bytes() for p in shop.kept.iterdir())
    assert USER.encode() not in kept
