"""Cards and recipes: what is wrong is said with its key, what was found and what is allowed."""

import os
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.config.home import find_card
from flows.jobs.studies import is_world_recipe, load_study, load_world_recipe
from pipeline.declaration.card import task_of
from pipeline.declaration.toml import read_toml
from pipeline.ledger.account import card_hash
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from reticent import Card, CardError, LqCard, Store, load_card, load_recipe, plan
from tests.conftest import card_dict
from tests.documents import section
from tests.flows.verb import reticent

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
RANGE, ZEROS = "range = [0.0, 1.0]", "[[0, 0], [0, 0], [0, 0]]"


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
        *(
            (RANGE, f"{RANGE}\n{wrong}", says)
            for wrong, says in (
                ("on_entering = { gone = 1.0 }", ["reward.on_entering", "['gone']", "declared: x, y, OTHER, end"]),
                ("on_entering = { end = 2.0 }", ["reward: on_entering", "[0.0, 1.0]"]),
                ("on_entering = { end = nan }", ["reward.on_entering"]),
                ('kind = "estimate"\non_entering = { end = 1.0 }', ["goes with 'on_entering'"]),
                ('kind = "on_entering"', ["goes with 'on_entering'"]),
                (f'kind = "table"\ntable = [{ZEROS}, {ZEROS}]', ["one a step (3); got 2"]),
                ('kind = "table"\ntable = [[0, 0], [0]]', ["3 rows of 2 numbers"]),
            )
        ),
    ],
)
def test_a_wrong_card_says_which_key_what_was_found_and_what_is_allowed(tmp_path, old, new, says):
    with pytest.raises(CardError) as e:
        load_card(write(tmp_path, GOOD.replace(old, new)))
    for part in ["card.toml", *says]:
        assert part in str(e.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = = 3", "not readable as TOML"),
        (None, "no such file"),
        ("x = " + "[" * 5000 + "]" * 5000, "more than 20 deep"),
        ("x = " + "{y = " * 21 + "1" + "}" * 21, "more than 20 deep"),
        (f"rho = {'9' * 5000}", "not readable as TOML"),
    ],
)
def test_a_toml_file_that_is_none_or_that_python_cannot_hold_is_a_card_error(tmp_path, text, says):
    with pytest.raises(CardError, match=says):
        load_card(tmp_path / "none.toml" if text is None else write(tmp_path, text))


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
    ("recipe", "says"),
    [
        (RECIPE + "rho = 1.0\nepsilon = 1.0", "exactly one of 'rho' and 'epsilon'"),
        (RECIPE + "rho = 1.0\ndelta = 1e-6", "'delta' goes with 'epsilon'"),
        (RECIPE + "rho = 0.0", "privacy.rho"),
        (RECIPE + 'rho = 1.0\ncalibration = "loose"', "'tight' or 'paper'"),
        (RECIPE + "rho = 1.0\nseed = 3", "privacy.seed"),
        (RECIPE.removesuffix("[privacy]\n"), "needs a budget"),
        (RECIPE.replace("dp-apvi", "apvi") + "rho = 1.0", "non-private baseline"),
    ],
)
def test_a_wrong_recipe_says_what_is_wrong(tmp_path, recipe, says):
    with pytest.raises(CardError, match=says):
        load_recipe(write(tmp_path, recipe))


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


P, LQ = "[privacy]\n", RECIPE.replace("dp-apvi", "dp-lqr")


def changed(folder, text, old, new):
    assert old in text
    path = write(folder, text.replace(old, new))
    return load_card(path) if text == GOOD else load_recipe(path)


@pytest.mark.parametrize(
    ("text", "old", "new", "says"),
    [
        *((RECIPE, P, P + x, "a valid number") for x in ('rho = "1"', "rho = true", "rho = 1.0\nsplit.n_sas = true")),
        (GOOD, "rho = 1.0", 'rho = "1"', "a valid number"),
        (GOOD, "users_public = 1000", "users_public = 10.5", "a valid integer"),
        (LQ, P, P + 'rho = 1.0\n[lq]\ncut = [0.5, "0.7"]', "a valid number"),
        (GOOD, "users_public = 1000", f"users_public = 1{400 * '0'}", "less than or equal to 1000000000000"),
        *(
            (RECIPE, P, f"[evaluate]\npeople = {x}\n{P}", "a share of the people from 0.000001 to below 1")
            for x in ("-1", "1e-320", "1.0", "true", '"half"', "nan")
        ),
        # no scale can be made of these budgets
        *((RECIPE, P, P + x, "less than") for x in ("rho = 1e308", "epsilon = 1e21", "rho = nan")),
        (RECIPE, P, P + "rho = 1e-320", "its noise has no scale"),
    ],
)
def test_text_booleans_and_numbers_without_a_scale_are_refused(tmp_path, text, old, new, says):
    with pytest.raises(CardError, match=says):
        changed(tmp_path, text, old, new)


def test_what_toml_has_other_ways_to_write_is_still_changed(tmp_path):
    assert changed(tmp_path, RECIPE, P, P + "rho = 1").privacy.rho == 1.0
    assert changed(tmp_path, GOOD, "users_public = 1000", "users_public = 1e5").unit.users_public == 100_000
    assert changed(tmp_path, LQ, P, P + "rho = 1.0\n[lq]\ncut = [1, 0.5]").lq.cut == (1.0, 0.5)
    night = RECIPE + 'rho = 1.0\n[nightly]\nfirst = "2026-01-01"\n'
    assert changed(tmp_path, night, P, P).nightly.first.year == 2026


SHELVES = (ROOT / "datasets", ROOT / "tests" / "goldens" / "home" / "shelf")
# the clinicians' log pays on survival, the two-step games at their second choice; cartpole's and riverswim's rows say
# what each step pays, and so do those of the uniform log, whatever is known of it
AT_THE_END = {"icu_sepsis_doses", "icu_sepsis_ten_thousand", "two_step_adults", "two_step_chance", "two_step_game"}


@pytest.mark.parametrize("schema", [1, 2])
def test_recorded_practice_is_declared_in_both_schemas_and_moves_no_key(schema):
    plain, recorded = (
        Card.model_validate(card_dict(schema_version=schema, domain={**card_dict()["domain"], **more}))
        for more in ({}, {"practice": "recorded"})
    )
    assert (plain.domain.practice, recorded.domain.practice) == (None, "recorded")
    # it enters no sum; what was registered and looked at is another card all the same
    assert plain.domain_hash() == recorded.domain_hash() and card_hash(plain) != card_hash(recorded)
    assert "practice" not in plain.model_dump()["domain"]


def test_it_is_refused_where_the_states_hide_something(tmp_path):
    both = 'horizon = 3\npractice = "recorded"\nmarkov = "aggregated"'
    with pytest.raises(CardError, match=r"practice = 'recorded'.* markov = 'aggregated'") as refused:
        load_card(write(tmp_path, GOOD.replace("horizon = 3", both)))
    assert refused.value.exit_code == 2 and "domain" in str(refused.value)
    with pytest.raises(CardError, match=r"domain\.practice"):
        load_card(write(tmp_path, GOOD.replace("horizon = 3", 'horizon = 3\npractice = "logged"')))


@pytest.mark.parametrize("path", [p for shelf in SHELVES for p in sorted(shelf.glob("*/card.toml"))], ids=str)
def test_when_shipped_cards_pay(path):
    card = load_card(path)
    assert isinstance(card, LqCard) or card.pays_at_the_end == (card.name in AT_THE_END)


ENTERING, TABLED = ({"range": [0.0, 1.0], "kind": kind} for kind in ("on_entering", "table"))
FLAT, UNEVEN = [[0.5, 0.5], [0.5, 0.5]], [[0.0, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("horizon", "reward", "at_the_end"),
    [
        (2, {**ENTERING, "on_entering": {"end": 1.0}}, True),
        (2, {**ENTERING, "on_entering": {"x": 0.5}}, False),
        (2, {**ENTERING, "on_entering": {"end": 1.0, "x": 0.5, "y": 0.2}}, False),
        # one for every day that somebody lives tells nothing before the end
        (2, {**ENTERING, "on_entering": {"x": 0.5, "y": 0.5}}, True),
        (2, {**TABLED, "table": FLAT}, True),
        (2, {**TABLED, "table": UNEVEN}, False),
        (2, {**TABLED, "table": [FLAT, UNEVEN]}, True),
        (2, {**TABLED, "table": [UNEVEN, FLAT]}, False),
        (2, {"range": [0.0, 1.0]}, False),
        # of one step there is none before the last
        (1, {**ENTERING, "on_entering": {"end": 1.0}}, False),
    ],
)
def test_when_a_card_pays(horizon, reward, at_the_end):
    domain = {**card_dict()["domain"], "horizon": horizon}
    assert Card.model_validate(card_dict(domain=domain, reward=reward)).pays_at_the_end == at_the_end


def rewarded(**reward: object) -> Card:
    return Card.model_validate(card_dict(reward={"range": [0.0, 1.0], **reward}))


def test_a_reward_on_entering_is_neither_read_nor_released():
    card = rewarded(on_entering={"end": 1.0, "y": 0.25})
    assert card.reward.kind == "on_entering" and "reward" not in card.log.roles
    assert [t.table for t in count_sum(card, Ask(rho=1.0)).mechanisms] == ["n_sas"]
    task = task_of(card)
    assert task.entering is not None and task.entering.tolist() == [0.0, 0.25, 1.0]
    P = np.array([[[[0.5, 0.25, 0.25]] * 2] * 2])
    expected = task.expected(P)
    assert expected is not None and np.unique(expected).tolist() == [0.0625 + 0.25]


def test_a_table_may_stand_for_every_step_or_for_one():
    once, each = [[0.0, 0.5], [1.0, 0.0]], [[[0.0, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.0, 0.0]]]
    assert np.array_equal(task_of(rewarded(kind="table", table=once)).rewards, once)
    assert np.array_equal(task_of(rewarded(kind="table", table=each)).rewards, each)


def test_a_total_bounds_every_value_to_go_and_how_far_two_may_lie_apart():
    free, bounded = task_of(rewarded(steps=4)), task_of(rewarded(steps=4, total=0.75))
    assert [free.value_range(h) for h in range(2)] == [(0.0, 2.0), (0.0, 1.0)] and free.reach == 2.0
    assert [bounded.value_range(h) for h in range(2)] == [(0.0, 0.75), (0.0, 0.75)] and bounded.reach == 0.75
    assert task_of(rewarded(total=5.0)).value_range(0) == (0.0, 2.0)


STATES = 'states = { column = "s", labels = ["x", "y"], ends = ["end"], other = true }'
NAMED = STATES.replace(" }", ', features = "states.parquet" }')
# of GOOD, before there were features: a card without them is registered in the same words
HASH_WITHOUT = "408c7859b5706f128c226fcacad2e175c21361867df5ada3c914f47d19ce3061"
TABLE = {"state": ["y", "OTHER", "x"], "age": [1.5, 0.0, 2.0], "ward": [3, 1, 2]}


def card_with(folder: Path, table: dict[str, list], states: str = NAMED) -> Card:
    pq.write_table(pa.table(table), folder / "states.parquet")
    card = load_card(write(folder, GOOD.replace(STATES, states)))
    assert isinstance(card, Card)
    return card


def test_numbers_come_in_the_order_of_the_live_states_and_cannot_be_written(tmp_path):
    found = card_with(tmp_path, TABLE).domain.state_features
    assert found is not None and found.dtype == np.float64
    assert found.tolist() == [[2.0, 2.0], [1.5, 3.0], [0.0, 1.0]]
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 9
    assert load_card(write(tmp_path, GOOD)).domain.state_features is None


def test_a_csv_says_the_same(tmp_path):
    wanted = card_with(tmp_path, TABLE)
    (tmp_path / "states.csv").write_text("state,age,ward\ny,1.5,3\nOTHER,0,1\nx,2,2\n")
    found = load_card(write(tmp_path, GOOD.replace(STATES, NAMED.replace("parquet", "csv"))))
    assert found.domain_hash() == wanted.domain_hash()
    np.testing.assert_array_equal(found.domain.state_features, wanted.domain.state_features)


def test_labels_may_be_those_of_the_table(tmp_path):
    states = 'states = { column = "s", ends = ["end"], features = "states.parquet" }'
    card = card_with(tmp_path, {"state": [7, 5, 6], "z": [0.5, 1.0, 1.5]}, states)
    assert card.domain.state_labels == ["7", "5", "6", "end"]
    assert card.domain.states.raw_labels() == {"7": 0, "5": 1, "6": 2}


def test_a_number_that_changes_is_another_domain_and_other_bytes_are_not(tmp_path):
    first = card_with(tmp_path, TABLE)
    pq.write_table(pa.table(TABLE), tmp_path / "states.parquet", compression="none")
    again = load_card(tmp_path / "card.toml")
    assert again == first and again.domain_hash() == first.domain_hash()
    changed = card_with(tmp_path, TABLE | {"age": [1.5, 0.0, 2.0000001]})
    assert changed.domain_hash() != first.domain_hash() and card_hash(changed) != card_hash(first)
    assert load_card(write(tmp_path, GOOD)).domain_hash() == HASH_WITHOUT


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"state": ["x", "y"], "z": [1.0, 2.0]}, ["states.parquet", "no row for the states ['OTHER']"]),
        (TABLE | {"age": [1.0, float("nan"), 2.0]}, ["states.parquet: row 2", "'age'", "no finite number"]),
        (TABLE | {"age": [1.0, 2.0, None]}, ["states.parquet: row 3", "no finite number"]),
        (TABLE | {"age": ["1", "2", "3"]}, ["column 'age'", "features are numbers"]),
        (TABLE | {"state": ["x", "y", "x"]}, ["states.parquet: row 3", "twice"]),
        (TABLE | {"state": ["x", "zz", "OTHER"]}, ["row 2", "'zz' is no declared live state"]),
        ({"state": ["x", "y", "OTHER"]}, ["a numeric one"]),
        ({"z": [1.0]}, ["needs a column 'state'"]),
    ],
)
def test_a_table_that_is_not_whole_is_refused_with_file_and_row(tmp_path, table, says):
    with pytest.raises(CardError) as e:
        card_with(tmp_path, table)
    for part in ["card.toml: domain.states: ", *says]:
        assert part in str(e.value)


def test_a_file_that_is_missing_damaged_or_elsewhere_is_refused(tmp_path):
    with pytest.raises(CardError, match=r"states\.parquet: no such file"):
        load_card(write(tmp_path, GOOD.replace(STATES, NAMED)))
    (tmp_path / "states.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(CardError, match="not readable"):
        load_card(tmp_path / "card.toml")
    with pytest.raises(CardError, match="below the card's folder"):
        load_card(write(tmp_path, GOOD.replace(STATES, NAMED.replace("states.parquet", "../states.parquet"))))


def test_a_table_that_changed_after_registration_is_exit_2(tmp_path):
    card_with(tmp_path, TABLE)
    assert reticent("register", "card.toml", cwd=tmp_path).returncode == 0
    card_with(tmp_path, TABLE | {"ward": [3, 1, 1]})
    said = reticent("register", "card.toml", cwd=tmp_path)
    assert said.returncode == 2 and "differs from its registration" in said.stderr and "Traceback" not in said.stderr
