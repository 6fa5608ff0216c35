"""(d) Run keys and counter keys, literally; and those that the golden home's ledger holds."""

import json

from tests.goldens.adapter import reticent
from tests.goldens.keys import all_keys
from tests.goldens.places import copied, expected


def test_every_key_is_what_it_was(tmp_path):
    assert all_keys(tmp_path) == expected("keys")


def test_the_home_was_charged_under_these_keys(tmp_path):
    home, keys = copied(tmp_path / "home"), expected("keys")
    assert reticent("ledger", "export", tmp_path / "all.json", home=home).code == 0
    entries = json.loads((tmp_path / "all.json").read_text())["entries"]
    found = [e["body"]["run_key"] for e in entries if e["kind"] == "INTENT"]
    runs = [keys["golden"][name] for name in ("shop/count", "shop/linear", "plant/control")]
    tree, toeplitz = (keys["counters"][f"{kind}/{kind}"] for kind in ("tree", "toeplitz"))
    assert found == [*runs, *tree["nights"][:3], *(toeplitz["nights"][night - 1] for night in (1, 2, 4))]
    told = {e["body"]["counter"]["key"] for e in entries if "counter" in e["body"]}
    assert told == {tree["key"], toeplitz["key"]}
