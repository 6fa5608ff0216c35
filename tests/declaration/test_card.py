"""Cards and recipes: what is wrong is said with its key, what was found and what is allowed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from flows.config.home import find_card
from flows.jobs.studies import is_world_recipe, load_study, load_world_recipe
from pipeline.declaration.toml import read_toml
from reticent import Card, CardError, Store, load_card, load_recipe, plan
from tests.conftest import card_dict
from tests.documents import section

ROOT = Path(__file__).resolve().parents[2]
GOOD = """
schema_version = 1
name = "log"
kind = "synthetic"
[unit]
user = "who"
users_public = 1000
[domain]
horizon = 3
states = { column = "s", labels = ["x", "y"], ends = ["end"], other = true }
actions = { column = "a", labels = { stop = [0], go = [1, 2] } }
[reward]
range = [0.0, 1.0]
[source]
files = ["*.csv"]
columns = { user_id = "who", episode_id = "e", step = "t", reward = "r" }
[budget]
rho = 1.0
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "card.toml"
    path.write_text(text)
    return path


def test_a_good_card_orders_states_live_then_other_then_ends(tmp_path):
    card = load_card(write(tmp_path, GOOD))
    assert card.domain.state_labels == ["x", "y", "OTHER", "end"]
    assert card.domain.live_states == ["x", "y", "OTHER"]
    assert card.domain.actions.raw_labels() == {"0": 0, "1": 1, "2": 1}
    assert card.kind == "synthetic" and Card.model_fields["kind"].default == "real"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("horizon = 3", 'horizon = "three"', ["domain.horizon", "'three'"]),
        ("horizon = 3", "horizon = 0", ["domain.horizon", "greater than or equal to 1", "0"]),
        ("horizon = 3", "horizons = 3", ["domain.horizons", "unknown key"]),
        ("users_public = 1000", "", ["unit.users_public", "required"]),
        ('kind = "synthetic"', 'kind = "fake"', ["kind", "'real' or 'synthetic'", "'fake'"]),
        ("range = [0.0, 1.0]", "range = [1.0, 0.0]", ["reward", "low < high"]),
        ('files = ["*.csv"]', 'files = ["../secret.csv"]', ["source.files", "below the card's folder"]),
        ('files = ["*.csv"]', 'files = ["/etc/passwd"]', ["source.files", "below the card's folder"]),
        ('labels = ["x", "y"]', 'labels = ["x", "x"]', ["domain.states", "distinct"]),
        ('labels = ["x", "y"]', 'labels = ["x", "end"]', ["reserved"]),
        ("schema_version = 1", "schema_version = 3", ["schema_version"]),
        ("rho = 1.0", "rho = -1.0", ["budget.rho", "greater than 0", "-1.0"]),
        ('user = "who"', 'user = "whom"', ["unit.user", "must agree"]),
    ],
)
def test_a_wrong_card_says_which_key_what_was_found_and_what_is_allowed(tmp_path, old, new, says):
    with pytest.raises(CardError) as e:
        load_card(write(tmp_path, GOOD.replace(old, new)))
    for part in says:
        assert part in str(e.value)


def test_a_broken_toml_file_is_a_card_error(tmp_path):
    with pytest.raises(CardError, match="not readable as TOML"):
        load_card(write(tmp_path, "name = = 3"))
    with pytest.raises(CardError, match="no such file"):
        load_card(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = " + "[" * 5000 + "]" * 5000, "more than 20 deep"),
        (f"[{'.'.join(['a'] * 3000)}]", "more than 20 deep"),
        ("x = " + "{y = " * 21 + "1" + "}" * 21, "more than 20 deep"),
        (f"rho = {'9' * 5000}", "not readable as TOML"),
    ],
)
def test_a_toml_file_that_python_cannot_hold_is_a_card_error(tmp_path, text, says):
    (tmp_path / "card.toml").write_text(text)
    with pytest.raises(CardError, match=says):
        load_card(tmp_path / "card.toml")


def test_a_real_card_names_its_ledger_and_a_delta_that_means_something():
    with pytest.raises(ValueError, match="names its own ledger"):
        Card.model_validate(card_dict(kind="real"))
    with pytest.raises(ValueError, match="too large for 100 people"):
        Card.model_validate(card_dict(kind="real", budget={"rho": 1.0, "delta": 0.01, "ledger": "l.db"}))


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    outside = tmp_path / "outside.csv"
    outside.write_text("x")
    inside = tmp_path / "cards"
    inside.mkdir()
    (inside / "log.csv").symlink_to(outside)
    with pytest.raises(CardError, match="leads outside"):
        load_card(write(inside, GOOD)).source_files()


@pytest.mark.parametrize("kind", ["pipe", "broken link", "socket", "name"])
def test_what_cannot_be_read_is_not_left_out_without_a_word(tmp_path, kind):
    """Beside a good file each was once ignored, or ended in a traceback."""
    (tmp_path / "log.csv").write_text("x")
    (tmp_path / "folder.csv").mkdir()
    card = load_card(write(tmp_path, GOOD))
    assert [p.name for p in card.source_files()] == ["log.csv"]
    match kind:
        case "pipe":
            os.mkfifo(tmp_path / "more.csv")
        case "broken link":
            (tmp_path / "more.csv").symlink_to("nowhere.csv")
        case "socket":
            os.mknod(tmp_path / "more.csv", stat.S_IFSOCK | 0o600)
        case _:
            Path(os.fsdecode(bytes(tmp_path / "more") + b"\xff.csv")).write_text("x")
    says = r"the name 'more.*udcff.csv' is not UTF-8" if kind == "name" else "more.csv is a pipe, a device or a link"
    with pytest.raises(CardError, match=says):
        card.source_files()


def test_a_named_root_is_read_and_an_unknown_one_refused(tmp_path, monkeypatch):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "log.csv").write_text("x")
    card = load_card(write(tmp_path, GOOD.replace("*.csv", "lake:log.csv")))
    with pytest.raises(CardError, match="RETICENT_ROOTS"):
        card.source_files()
    monkeypatch.setenv("RETICENT_ROOTS", f"lake={tmp_path / 'far'}")
    assert [p.name for p in card.source_files()] == ["log.csv"]


# the uniform log keeps the lineage of version 0.1, the clinicians' has one of its own
LINEAGES = {"icu_sepsis": "icu_sepsis_doses", "icu_sepsis_uniform": "icu_sepsis"}


def test_every_card_and_recipe_on_the_shelf_is_good():
    names = {path: load_card(path).name for path in sorted((ROOT / "datasets").glob("*/card.toml"))}
    for path, name in names.items():
        assert name == LINEAGES.get(path.parent.name, path.parent.name)
    for path in sorted((ROOT / "flows" / "recipes").glob("*.toml")):
        if "study" in read_toml(path):
            assert load_study(path).listed()
            continue
        if is_world_recipe(read_toml(path)):
            assert load_world_recipe(path).trials()
            continue
        recipe = load_recipe(path)
        assert names[find_card(recipe.recipe.card).resolve()] == LINEAGES.get(recipe.recipe.card, recipe.recipe.card)


RECIPE = '[recipe]\nname = "r"\ncard = "icu_sepsis"\nagent = "dp-apvi"\n[privacy]\n'


@pytest.mark.parametrize(
    ("privacy", "says"),
    [
        ("rho = 1.0\nepsilon = 1.0", "exactly one of 'rho' and 'epsilon'"),
        ("rho = 1.0\ndelta = 1e-6", "'delta' goes with 'epsilon'"),
        ("rho = 0.0", "privacy.rho"),
        ('rho = 1.0\ncalibration = "loose"', "'tight' or 'paper'"),
        ('rho = 1.0\ncalibration = "paper"', "two_tables"),
        ("rho = 1.0\nseed = 3", "privacy.seed"),
    ],
)
def test_a_wrong_recipe_says_what_is_wrong(tmp_path, privacy, says):
    path = tmp_path / "r.toml"
    path.write_text(RECIPE + privacy)
    with pytest.raises(CardError, match=says):
        load_recipe(path)


def test_apvi_takes_no_budget_and_dp_apvi_needs_one(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text('[recipe]\nname = "r"\ncard = "icu_sepsis"\nagent = "dp-apvi"\n')
    with pytest.raises(CardError, match="needs a budget"):
        load_recipe(path)
    path.write_text(RECIPE.replace("dp-apvi", "apvi") + "rho = 1.0")
    with pytest.raises(CardError, match="non-private baseline"):
        load_recipe(path)


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(CardError, match="icu_sepsis"):
        Store(tmp_path).ingest("no-such-dataset")
    with pytest.raises(CardError, match="demo"):
        plan("no-such-recipe")


def test_the_wide_card_of_the_documentation_is_a_card_and_reads_its_log(tmp_path):
    text = section("card.md", "## A wide source")
    card = load_card(write(tmp_path, text.partition("```toml\n")[2].partition("```")[0]))
    (tmp_path / "game.csv").write_text("userID,choice,planet,points\nu,1,2,9\n")
    made = Store(tmp_path / "home").ingest(card)
    assert (card.source.layout, made["rows"], made["quarantined"]) == ("wide", 2, {})


@pytest.mark.parametrize(("version", "said", "balanced"), [(1, None, False), (2, None, True), (2, False, False)])
def test_features_are_balanced_by_default_from_version_2_on(version, said, balanced):
    features = {"kind": "one_hot"} if said is None else {"kind": "one_hot", "balanced": said}
    card = Card.model_validate(card_dict() | {"schema_version": version, "features": features})
    assert card.features is not None and card.features.balanced is balanced


def test_a_card_of_version_2_without_a_kind_is_of_real_people_and_has_their_gate(tmp_path):
    text = GOOD.replace("schema_version = 1", "schema_version = 2").replace('kind = "synthetic"\n', "")
    card = load_card(write(tmp_path, text + 'ledger = "ledger.db"\n'))
    assert card.kind == "real" and set(card.tolerance) == {"unknown_label"}
