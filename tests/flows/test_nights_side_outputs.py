"""Nothing but noisy integers depends on the rows of a night: neighbours publish the same bytes (privacy.md §12.7)."""

from __future__ import annotations

import re

import numpy as np
import pytest

from flows.ledger_checks import verify_job
from pipeline.privacy.counters import Lanes
from tests.flows.nights import Shop, customers
from tests.flows.test_side_outputs import LABEL, RECORDS, REWARD, USER, readable

NIGHTS = (1, 3)


def year(root, monkeypatch, records, draw):
    """Two nights, the second after an empty one; what was published, said, and the noisy rows of each."""
    shop, said, rows = Shop(root, monkeypatch, nights=4), [], []

    def noted(self, size):
        found = draw(self, size, len(rows))
        rows.append(found)
        return found

    with monkeypatch.context() as hooked:
        hooked.setattr(Lanes, "draw", noted)
        for night, record in zip(NIGHTS, records, strict=True):
            shop.night(night, [*customers(100 * night, 60), *record], say=said.append)
    runs = shop.home.runs
    pages = {str(p.relative_to(runs)): p.read_bytes() for p in sorted(runs.rglob("*")) if p.is_file()}
    assert verify_job(shop.ledger, shop.home, [])["ok"]
    told = re.sub(str(root), "ROOT", "\n".join(said))
    ledger = [(e.kind, e.at, dict(e.body)) for e in shop.ledger.entries()]
    return shop, pages, told, ledger


def exact_rows(root, monkeypatch, records):
    """The rows of both nights before noise."""
    shop = Shop(root, monkeypatch, nights=4)
    with monkeypatch.context() as hooked:
        hooked.setattr(Lanes, "draw", lambda self, n: np.zeros((n, self.length), dtype=np.int64))
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
