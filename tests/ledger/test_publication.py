"""What a PUBLISH entry says of the files and of what made them."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.ledger import publication
from pipeline.ledger.publication import NO_FILE, file_digests, maker


def test_every_file_has_its_digest_in_the_order_of_names(tmp_path):
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("a.txt")
    found = file_digests(tmp_path)
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a.txt", "b.txt")}
    assert found == digests | {"link": NO_FILE} and list(found) == sorted(found)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "tanh"])
def test_a_machine_that_rounds_otherwise_is_another_maker(monkeypatch, name):
    """One digit in one entry of one function is enough; the names of the digests are 16 digits long."""
    here = publication._arithmetic()
    assert here == publication._arithmetic() and maker()["arithmetic"] == here[:16] and len(maker()["source"]) == 16

    def otherwise(x):
        found = getattr(np, name)(x)
        found[3, 5] = np.nextafter(found[3, 5], np.inf)
        return found

    elsewhere = SimpleNamespace(**vars(np) | {name: otherwise})
    monkeypatch.setattr(publication, "np", elsewhere)
    assert publication._arithmetic() != here
