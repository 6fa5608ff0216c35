"""Nothing but noisy integers depends on the rows of a night: neighbours publish the same bytes (privacy.md §12.7)."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import flows.jobs.nightly
import flows.jobs.run
from flows.config.home import Work
from flows.jobs.intake import ingest_edition
from pipeline.logs.store import check_delivery, earlier_twin, latest
from pipeline.privacy.continual import NoiseBlocks
from reticent import LogError, Store
from tests.flows.nights import FIRST, Shop, customers
from tests.flows.test_side_outputs import LABEL, RECORDS, REWARD, USER, readable
from tests.jobs import page_of

NIGHTS = (1, 3)


def year(root, monkeypatch, records, draw):
    """Two nights, the second after an empty one; what was published, said, and the noisy rows of each."""
    shop, said, rows = Shop(root, monkeypatch, nights=4), [], []

    def noted(self, size):
        found = draw(self, size, len(rows))
        rows.append(found)
        return found

    with monkeypatch.context() as hooked:
        hooked.setattr(NoiseBlocks, "draw", noted)
        # an operator's key is a secret of the home, whoever its people are
        hooked.setattr(Ed25519PrivateKey, "generate", lambda: Ed25519PrivateKey.from_private_bytes(bytes(32)))
        for night, record in zip(NIGHTS, records, strict=True):
            shop.night(night, [*customers(100 * night, 60), *record], say=said.append)
    runs = shop.home.runs
    pages = {str(p.relative_to(runs)): p.read_bytes() for p in sorted(runs.rglob("*")) if p.is_file()}
    assert Store(shop.home.root).ledger(shop.folder).verify()["ok"]
    told = re.sub(str(root), "ROOT", "\n".join(said))
    ledger = [(e.kind, e.at, dict(e.body)) for e in shop.ledger.entries()]
    return shop, pages, told, ledger


def exact_rows(root, monkeypatch, records):
    """The rows of both nights before noise."""
    shop = Shop(root, monkeypatch, nights=4)
    with monkeypatch.context() as hooked:
        hooked.setattr(NoiseBlocks, "draw", lambda self, n: np.zeros((n, self.length), dtype=np.int64))
        for night, record in zip(NIGHTS, records, strict=True):
            shop.append(night, [*customers(100 * night, 60), *record])
    return [np.load(p) for p in sorted(shop.kept.glob("rows-*"))]


@pytest.mark.parametrize("record", ["all steps", "labels outside the domain"])
def test_every_published_byte_of_two_nights_is_the_same_for_neighbours(tmp_path, monkeypatch, record):
    """The person is there on night 1 only, or on night 3 only: her record moves to another leaf as well."""
    rng = np.random.default_rng(0)
    noise = [rng.integers(-40, 40, (3, 200)) for _ in NIGHTS]
    years = {"a": (RECORDS[record], []), "b": ([], RECORDS["one step"])}
    # the exact rows of both years, so that the noise of the second can make them agree
    exact = {name: exact_rows(tmp_path / f"exact-{name}", monkeypatch, r) for name, r in years.items()}

    def drawn(name):
        return lambda self, n, i: noise[i][:n, : self.length] + exact["a"][i] - exact[name][i]

    a = year(tmp_path / "a", monkeypatch, years["a"], drawn("a"))
    b = year(tmp_path / "b", monkeypatch, years["b"], drawn("b"))
    assert a[1].keys() == b[1].keys() and len(a[1]) == 18
    assert not [name for name in a[1] if a[1][name] != b[1][name]]
    assert a[2:] == b[2:]
    if record == "all steps":
        assert any((x != y).any() for x, y in zip(exact["a"], exact["b"], strict=True))


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


def two_nights(root, monkeypatch, delivered, draw):
    """Two nights by the nightly job, the second with ``delivered``; its shop, and everything that anybody sees."""
    shop, shown, drawn = Shop(root, monkeypatch, nights=4, budget="[tolerance]\nunknown_label = 0.0\n"), [], []
    recipe = shop.folder / "night.toml"
    # a gate draws noise of its own, which the homes here do not share: tests/flows/test_gate.py has it
    text = recipe.read_text().replace("[privacy]\n", "[privacy]\ngate = 0.0\n")
    recipe.write_text(text + "\n[watch]\nstale_days = 1\n[promote]\n")

    def noted(self, size):
        drawn.append(draw(self, size, len(drawn)))
        return drawn[-1]

    def step(name):
        """A task as a server sees it: its name, and whether it failed."""

        def called(work, *args, **kwargs):
            shown.append((name, "failed"))
            done = work(*args, **kwargs)
            shown[-1] = (name, "done")
            return done

        return called

    with monkeypatch.context() as hooked:
        hooked.setattr(NoiseBlocks, "draw", noted)
        # an operator's key is a secret of the home, whoever its people are
        hooked.setattr(Ed25519PrivateKey, "generate", lambda: Ed25519PrivateKey.from_private_bytes(bytes(32)))
        for night, log in ((1, BASE), (2, delivered)):
            if log is None:
                (shop.folder / "log.csv").write_bytes(b"")
            found = shop.job(night, log, work=Work(step))
            # what a server is shown, and all but the exit code and the paths of what the shell prints
            page = page_of(found)
            kept = {k: v for k, v in found.items() if k not in ("exit", "folder", "report")}
            shown.append((page.key, page.title, page.markdown, page.rows, kept))
    runs = shop.home.runs
    pages = {
        str(p.relative_to(runs)): p.read_bytes()
        for p in sorted(runs.rglob("*"))
        if p.is_file() and p.name != ".releasing"
    }
    links = {p.name: p.readlink() for p in runs.iterdir() if p.is_symlink()}
    ledger = [(e.kind, e.at, dict(e.body)) for e in shop.ledger.entries()]
    assert Store(shop.home.root).ledger(shop.folder).verify()["ok"]
    return shop, pages, links, shown, ledger


def no_noise(self, n, _):
    return np.zeros((n, self.length), dtype=np.int64)


def exactly(root, monkeypatch, delivered):
    """The rows of both nights before noise."""
    with monkeypatch.context() as hooked:
        hooked.setattr(flows.jobs.run, "drawn_pages", lambda *_: ("", ""))
        shop = two_nights(root, monkeypatch, delivered, no_noise)[0]
    return [np.load(p) for p in sorted(shop.kept.glob("rows-*"))]


# the others are the same code on other bytes
FAST = ("a cumulative log", "a log beyond its card's tolerance")


@pytest.mark.parametrize("news", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in NEWS])
def test_nobody_outside_the_store_sees_whether_a_night_brought_one_person(tmp_path, monkeypatch, news):
    rng = np.random.default_rng(0)
    noise = [rng.integers(-40, 40, (3, 200)) for _ in NIGHTS]
    exact = {n: exactly(tmp_path / f"exact-{n}", monkeypatch, NEWS[news][i]) for i, n in enumerate("ab")}
    a, b = (
        two_nights(
            tmp_path / n,
            monkeypatch,
            NEWS[news][i],
            lambda self, size, k, n=n: noise[k][:size, : self.length] + exact["a"][k] - exact[n][k],
        )
        for i, n in enumerate("ab")
    )
    assert len(a[1]) == 19 and a[1].keys() == b[1].keys()
    assert not [name for name in a[1] if a[1][name] != b[1][name]]
    assert a[2:] == b[2:]
    moved = [((x - y) ** 2).sum() for x, y in zip(exact["a"], exact["b"], strict=True)]
    mechanisms = next(body for kind, _, body in a[4] if kind == "INTENT")["mechanisms"]
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
    news = NEWS["a log beyond its card's tolerance"]
    a, b = (exactly(tmp_path / n, monkeypatch, log) for n, log in zip("ab", news, strict=True))
    assert sum(((x - y) ** 2).sum() for x, y in zip(a, b, strict=True)) > 1000


def test_a_night_only_where_somebody_is_new_is_caught(tmp_path, monkeypatch):
    real, told = flows.jobs.nightly.run_recipe, []

    def only_news(recipe, home, work, noise, day, edition, **asked):
        newest = latest(home.store, "shop")
        news = day if earlier_twin(home.store, newest) is None else FIRST
        return real(recipe, home, work, noise, news, edition, **asked)

    monkeypatch.setattr(flows.jobs.nightly, "run_recipe", only_news)
    for i, log in enumerate(NEWS["a cumulative log"]):
        told.append(sorted(two_nights(tmp_path / str(i), monkeypatch, log, no_noise)[1]))
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
