"""Small things at the shell: options behind the verb, the version, the nearest key, both prices, a refused plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import reticent
from tests.flows import verb
from tests.flows.shop import lay_out
from tests.flows.verb import invoke

pytestmark = pytest.mark.usefixtures("unread")


@pytest.fixture
def shop(tmp_path) -> Path:
    return lay_out(tmp_path / "shop")


@pytest.mark.parametrize(("place", "form"), [(0, "two"), (1, "one"), (2, "two"), (3, "one")])
def test_the_home_may_stand_anywhere(shop, tmp_path, place, form):
    home = tmp_path / "elsewhere"
    words = ["ingest", str(shop), "--json"]
    words[place:place] = ["--home", str(home)] if form == "two" else [f"--home={home}"]
    done = invoke(*words)
    assert done.exit_code == 0 and json.loads(done.stdout)["folder"].startswith(str(home))


def test_a_home_without_a_folder_is_said():
    assert invoke("ingest", "x", "--home").exit_code == 2


def test_the_version():
    assert invoke("--version").stdout.split()[0] == "reticent"


@pytest.mark.parametrize(
    ("was", "written", "meant"),
    [
        ("horizon = 3", "horizn = 3", "horizon"),
        ("users_public = 400", "user_public = 400", "users_public"),
        ('terminated = "left"', 'terminate = "left"', "terminated"),
        ('ends = ["gone"]', 'end = ["gone"]', "ends"),
    ],
)
def test_a_wrong_key_of_a_card_is_answered_with_the_right_one(shop, was, written, meant):
    text = (shop / "card.toml").read_text()
    (shop / "card.toml").write_text(text.replace(was, written))
    assert text != (shop / "card.toml").read_text()
    with pytest.raises(reticent.CardError, match=rf"unknown key; did you mean '{meant}'\?"):
        reticent.load_card(shop / "card.toml")


@pytest.mark.parametrize(
    ("more", "instead"),
    [('[evaluate]\nagainst = "first-0123456789"\n', "evaluate.against: no longer a key; a policy is")],
)
def test_a_key_of_an_earlier_version_is_answered_with_what_to_do_instead(shop, more, instead):
    path = shop / "private.toml"
    path.write_text(f"{path.read_text()}\n{more}")
    with pytest.raises(reticent.CardError, match=instead):
        reticent.plan(path)


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("register shop --disjoint-from=other", "separate people, separate ledgers"),
        ("simulate --values", "docs/research.md"),
        ("simulate riverswim --values --json", "docs/research.md"),
        ("store export shop --to x", "the files that they came from"),
    ],
)
def test_so_is_a_verb_or_an_option_of_an_earlier_version(tmp_path, typed, instead):
    found = verb.reticent(*typed.split(), cwd=tmp_path)
    assert found.returncode == 2 and instead in found.stderr and "is no more" in found.stderr


@pytest.mark.parametrize(
    ("was", "written", "meant"), [("rho = 1.0", "roh = 1.0", "rho"), ("[planner]", "[planer]", "planner")]
)
def test_so_is_one_of_a_recipe(shop, was, written, meant):
    path = shop / "private.toml"
    path.write_text(path.read_text().replace(was, written))
    with pytest.raises(reticent.CardError, match=rf"did you mean '{meant}'\?"):
        reticent.load_recipe(path)


def test_a_rule_that_is_none_is_answered_too(shop, tmp_path):
    with (shop / "card.toml").open("a") as file:
        file.write("[tolerance]\nunkown_label = 0.1\n")
    with pytest.raises(reticent.CardError, match="Did you mean unknown_label"):
        reticent.Store(tmp_path / "home").ingest(shop)


def test_an_epsilon_has_two_prices(shop, tmp_path):
    store = reticent.Store(tmp_path / "home")
    price = reticent.plan(shop / "pure.toml", quality=False, store=store).price_of_epsilon
    assert price.pure_rho == 0.5 and 15 < price.pure_rho / price.rho < 25
    assert reticent.plan(shop / "private.toml", quality=False, store=store).price_of_epsilon is None
    said = invoke("plan", shop / "pure.toml", "--home", tmp_path / "home", "--no-quality").stdout
    assert "as pure DP ρ = 0.5; with delta = 1e-06 ρ = 0.02" in said and "times less" in said


def test_a_word_too_long_for_a_name_of_a_file_is_a_wrong_command(tmp_path):
    done = verb.reticent("plan", 5000 * "x", cwd=tmp_path)
    assert done.returncode == 2 and "File name too long" in done.stderr and "--debug" not in done.stderr
