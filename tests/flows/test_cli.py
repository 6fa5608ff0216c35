"""The command line: exit codes, one line an error, one JSON object, the nearest key; and a team's first week."""

import json

import pytest

import reticent
from reticent import BudgetError, Store
from tests.flows.shop import add, bare_recipe, change, lay_out
from tests.flows.verb import invoke
from tests.flows.verb import reticent as shell
from tests.jobs import home_at, ingest_job, inspect_job, proof_of, register_job, run_job

pytestmark = pytest.mark.usefixtures("unread")


@pytest.mark.parametrize(("place", "form"), [(0, "two"), (1, "one"), (2, "two"), (3, "one")])
def test_the_home_may_stand_anywhere(shop, tmp_path, place, form):
    home = tmp_path / "elsewhere"
    words = ["ingest", str(shop), "--json"]
    words[place:place] = ["--home", str(home)] if form == "two" else [f"--home={home}"]
    done = invoke(*words)
    assert done.exit_code == 0 and json.loads(done.stdout)["folder"].startswith(str(home))


def test_a_home_without_a_folder_is_said_and_so_is_the_version():
    assert invoke("ingest", "x", "--home").exit_code == 2
    assert invoke("--version").stdout.split()[0] == "reticent"


@pytest.mark.parametrize(
    ("load", "file", "was", "written", "meant"),
    [
        (reticent.load_card, "card", "horizon = 3", "horizn = 3", "horizon"),
        (reticent.load_card, "card", "users_public = 400", "user_public = 400", "users_public"),
        (reticent.load_card, "card", 'ends = ["gone"]', 'end = ["gone"]', "ends"),
        (reticent.load_recipe, "private", "rho = 1.0", "roh = 1.0", "rho"),
        (reticent.load_recipe, "private", "[planner]", "[planer]", "planner"),
    ],
)
def test_a_wrong_key_is_answered_with_the_right_one(shop, load, file, was, written, meant):
    change(shop / f"{file}.toml", was, written)
    with pytest.raises(reticent.CardError, match=rf"did you mean '{meant}'\?"):
        load(shop / f"{file}.toml")


def test_a_key_of_an_earlier_version_is_answered_with_what_to_do_instead(shop):
    add(shop / "private.toml", '[evaluate]\nagainst = "first-0123456789"\n')
    with pytest.raises(reticent.CardError, match=r"evaluate\.against: no longer a key; a policy is"):
        reticent.plan(shop / "private.toml")


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("register shop --disjoint-from=other", "separate people, separate ledgers"),
        ("register shop --amend --disjoint-from other", "separate people, separate ledgers"),
        ("simulate --values", "docs/research.md"),
        ("simulate riverswim --values --json", "docs/research.md"),
        ("store export shop --to x", "the files that they came from"),
    ],
)
def test_so_is_a_verb_or_an_option_of_an_earlier_version(tmp_path, typed, instead):
    found = shell(*typed.split(), cwd=tmp_path)
    assert found.returncode == 2 and instead in found.stderr and "is no more" in found.stderr


def test_a_rule_that_is_none_is_answered_too(shop, tmp_path):
    add(shop / "card.toml", "[tolerance]\nunkown_label = 0.1\n")
    with pytest.raises(reticent.CardError, match="Did you mean unknown_label"):
        reticent.Store(tmp_path / "home").ingest(shop)


def test_an_epsilon_has_two_prices(shop, tmp_path):
    store = reticent.Store(tmp_path / "home")
    price = reticent.plan(shop / "pure.toml", quality=False, store=store).price_of_epsilon
    assert price.pure_rho == 0.5 and 15 < price.pure_rho / price.rho < 25
    assert reticent.plan(shop / "private.toml", quality=False, store=store).price_of_epsilon is None
    said = invoke("plan", shop / "pure.toml", "--home", tmp_path / "home", "--no-quality").stdout
    assert "as pure DP ρ = 0.5; with delta = 1e-06 ρ = 0.02" in said and "times less" in said


def test_a_wrong_command_is_exit_two(tmp_path):
    assert shell("dance", cwd=tmp_path).returncode == shell("run", cwd=tmp_path).returncode == 2
    done = shell("plan", 5000 * "x", cwd=tmp_path)
    assert done.returncode == 2 and "File name too long" in done.stderr and "--debug" not in done.stderr


WIDE = """
schema_version = 1
name = "visits"
kind = "real"
unit = { user = "patient", users_public = 300 }
reward = { range = [0.0, 1.0] }
budget = { rho = 2.0, ledger = "ledger.db" }
[domain]
horizon = 2
states = { column = "visit{step}_state", labels = ["mild", "severe"], ends = ["end"] }
actions = { column = "visit{step}_drug", labels = ["none", "low"] }
[source]
layout = "wide"
files = ["visits.csv"]
columns = { user_id = "patient", reward = "visit{step}_outcome" }
"""


@pytest.fixture
def visits(tmp_path):
    folder = tmp_path / "visits"
    folder.mkdir()
    (folder / "card.toml").write_text(WIDE)
    head = "patient,visit1_state,visit1_drug,visit1_outcome,visit2_state,visit2_drug,visit2_outcome"
    lines = [f"p{i},mild,{'low' if i % 3 else 'none'},0,severe,low,{i % 2}" for i in range(300)]
    (folder / "visits.csv").write_text("\n".join([head, *lines]) + "\n")
    bare_recipe(folder, "recipe", "dp-apvi", "[privacy]\nrho = 0.5")
    return folder


@pytest.fixture
def home(tmp_path, visits):
    """The home in which they are registered and ingested."""
    register_job(str(visits), found := home_at(tmp_path / "home"))
    ingest_job(str(visits), found)
    return found


def test_a_last_step_that_would_count_nowhere_and_labels_that_fit_no_row_are_said_at_ingest(tmp_path, visits):
    ingest = ("--home", tmp_path / "home", "ingest", visits)
    assert "ends = ['end']" not in invoke(*ingest).stderr
    change(visits / "card.toml", ', ends = ["end"]', "")
    assert "ends = ['end']" in invoke(*ingest).stderr
    # labels that fit no row are told before they cost a budget
    change(visits / "card.toml", 'labels = ["mild", "severe"]', "labels = 2")
    problem = ingest_job(str(visits), home_at(tmp_path / "home"))["problem"]
    assert problem is not None and "not one of 300 rows is left (most broke unknown_label" in problem


def test_the_same_rows_under_another_name_are_said_at_ingest(tmp_path, visits):
    ingest = ("--home", tmp_path / "home", "ingest", visits)
    assert "the very same rows" not in invoke(*ingest).stderr
    change(visits / "card.toml", 'name = "visits"', 'name = "calls"')
    done = invoke(*ingest)
    assert "warning: visits holds the very same rows" in done.stderr and done.exit_code == 0
    # synthetic people have no budget to add up
    text = (visits / "card.toml").read_text()
    (visits / "card.toml").write_text(
        text.replace('name = "calls"\nkind = "real"', 'name = "played"\nkind = "synthetic"')
    )
    assert "the very same rows" not in invoke(*ingest).stderr
    (visits / "card.toml").write_text(text)
    add(visits / "visits.csv", "another,mild,low,0,severe,low,1\n")
    assert "the very same rows" not in invoke(*ingest).stderr


def test_a_lost_ledger_is_said_by_every_verb_and_none_is_begun(visits, home):
    facts = inspect_job(str(visits), home)
    assert facts["rows"] == 600 and "hidden_state" in facts, "a wide log can be looked at"
    run_job(str(visits / "recipe.toml"), home)
    (visits / "ledger.db").unlink()
    for job, path in ((run_job, visits / "recipe.toml"), (register_job, visits), (inspect_job, visits)):
        with pytest.raises(BudgetError, match="gone, but this store has seen its entry 7"):
            job(str(path), home)
    assert not (visits / "ledger.db").exists()


def test_another_ledger_than_the_runs_own_does_not_make_the_run_look_damaged(tmp_path, visits, home):
    folder = home.runs / run_job(str(visits / "recipe.toml"), home)["run"]
    shop = lay_out(tmp_path / "shop")
    ingest_job(str(shop), home)
    run_job(str(shop / "private.toml"), home)
    other = Store(home.root).open(folder.name).verify()
    assert other.ok and not other.vouched
    assert [c.found for c in other.checks if c.ok is None] == [
        "no ledger of visits at hand; a real dataset has its own: name its card with --card",
        "no ledger of it is at hand",
    ]
    mine = proof_of(folder, visits)
    assert mine.vouched and all(c.ok for c in mine.checks)


@pytest.mark.parametrize(
    ("break_it", "args", "code", "says"),
    [
        (lambda s: (s / "card.toml").write_text("x = ["), ("ingest", "{s}"), 2, "not readable as TOML"),
        (lambda s: None, ("run", "{s}/private.toml"), 2, "ingest"),
        (lambda s: None, ("run", "no-such"), 2, "no recipe"),
        (lambda s: (s / "log.csv").unlink(), ("ingest", "{s}"), 2, "nothing matches"),
        (lambda s: (s / "log.csv").write_text("a,b\n1,2\n"), ("ingest", "{s}"), 3, "log.csv"),
        (lambda s: (s / "log.csv").write_bytes(b"\xff\xfe\x00"), ("ingest", "{s}"), 3, "log.csv"),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(tmp_path, shop, break_it, args, code, says):
    break_it(shop)
    r = shell(*(a.format(s=shop) for a in args), cwd=tmp_path)
    assert r.returncode == code, r.stderr
    lines = [line for line in r.stderr.splitlines() if line.startswith("reticent: ")]
    assert len(lines) == 1 and says in lines[0]
    assert "Traceback" not in r.stderr


def test_over_budget_is_exit_four_and_json_says_why(tmp_path, shop):
    assert shell("ingest", shop, cwd=tmp_path).returncode == 0
    assert shell("run", shop / "private.toml", cwd=tmp_path).returncode == 0
    r = shell("run", shop / "greedy.toml", "--json", cwd=tmp_path)
    told = json.loads(r.stdout)["error"]
    assert (r.returncode, told["code"]) == (4, 4) and "left" in told["message"]


def test_home_and_shelf_can_be_named_by_environment(tmp_path, shop):
    home = tmp_path / "elsewhere"
    r = shell("ingest", "shop", cwd=tmp_path, RETICENT_HOME=str(home), RETICENT_SHELF=str(tmp_path))
    assert r.returncode == 0, r.stderr
    assert (home / "store" / "shop").is_dir() and not (tmp_path / ".reticent").exists()

    # set to nothing, a variable names nothing
    (place := tmp_path / "somewhere").mkdir()
    r = shell("ingest", shop, cwd=place, RETICENT_HOME="", RETICENT_MEMORY="", RETICENT_SHELF="")
    assert r.returncode == 0, r.stderr
    assert [p.name for p in place.iterdir()] == [".reticent"]
