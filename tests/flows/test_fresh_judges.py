"""Who judges was reserved from the first registration on: what plan, page and ledger say of it, through the verbs."""

import pytest

from tests.flows.shop import add, card_text, change, rows, write_log, write_recipe
from tests.flows.test_held_out_run import PEOPLE, call
from tests.flows.verb import answer, invoke, refusal, told
from tests.jobs import ledger_in

pytestmark = pytest.mark.usefixtures("unread")


def write(folder, name, share=None, rho=1.0, planner=""):
    held = "" if share is None else f"[evaluate]\npeople = {share}\n"
    return write_recipe(folder, name, privacy=f"[privacy]\nrho = {rho}\ngate = 0.0", more=planner + held)


def lay_out(folder, kind="real", more=""):
    folder.mkdir(exist_ok=True)
    (folder / "card.toml").write_text(card_text(kind=kind, cap=40.0, people=PEOPLE) + more)
    write_log(folder, rows(PEOPLE))
    return folder


def ran(folder, recipe):
    """The report of a run, and its name."""
    run = call(folder, "run", recipe)["run"]
    return told(folder, run), run


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = lay_out(tmp_path_factory.mktemp("shop"))
    call(folder, "register", folder / "card.toml", "--recipe", write(folder, "known", 0.4, planner="failure = 0.2\n"))
    call(folder, "ingest", folder / "card.toml")
    return folder


@pytest.fixture(scope="module")
def first(shop):
    """A release without judges, then one of the same recipe that has some."""
    return ran(shop, write(shop, "plain"))[0], ran(shop, write(shop, "held", 0.3, rho=2.0))[0]


def test_plan_says_how_many_teach_and_judge_and_refuses_more(shop):
    found = call(shop, "plan", write(shop, "held", 0.3, rho=2.0), "--no-quality")
    assert found["people"] == {"teach": 1500, "judge": 900}
    found = call(shop, "plan", write(shop, "plain"), "--no-quality")
    assert found["people"] == {"teach": 1500, "judge": 0}
    # 1,500 people of 3 steps in 2 states, 3 actions and 3 tables
    assert found["visits_per_cell_if_even"] == 250
    page = invoke("--home", shop / "home", "plan", shop / "plain.toml", "--no-quality").output
    assert "people: about 1,500 teach and 0 judge, by a keyed hash of their id" in page
    # more judges than are reserved
    why = "[evaluate] people = 0.6: the ledger of shop reserves 0.5 of its people for judging"
    assert why in refusal(shop / "home", "plan", write(shop, "many", 0.6), "--no-quality")


def test_half_of_the_people_teach_and_report_and_certificate_say_so(shop, first):
    held, said = first[1], "0.5 of the people, by a keyed hash of their id, teach in no release of this ledger"
    assert all(any(line.startswith(said) for line in r["assumptions"]) for r in first)
    assert all(told(shop, r["run"], "certificate.json")["assumptions"] == r["assumptions"] for r in first)
    assert abs(held["evaluation"]["people"] - 900) < 150
    # the same recipe judged by reserved people is fresh
    assert "judged_before" not in held["evaluation"] and held["evaluation"]["look"] == 1


def test_another_recipe_is_told_that_its_judges_were_read(shop, first):
    # before anything is charged
    recipe = write(shop, "other", 0.4, planner="failure = 0.3\n")
    planned = call(shop, "plan", recipe, "--no-quality")["people"]["outside"]
    assert "by another recipe: what it told may have shaped" in planned and "[evaluate] since" in planned
    assert "outside" not in call(shop, "plan", shop / "known.toml", "--no-quality")["people"]
    other, run = ran(shop, recipe)
    found = other["evaluation"]
    assert "read people who judge here, by another recipe" in found["judged_before"] and found["look"] == 2
    assert other["verdict"]["improvement"]["status"] == "modelled"
    assert "by another recipe: what it told may have shaped this policy" in other["verdict"]["why"]
    assert other["value"]["status"] == "modelled"
    assert any("by another recipe" in line for line in other["value"]["assumes"])
    call(shop, "ledger", "verify", run, "--card", shop / "card.toml")
    # replayed, it says the same
    assert ran(shop, shop / "other.toml")[0] == other


def test_a_recipe_that_the_ledger_knew_before_is_fresh_all_the_same(shop, first):
    assert "judged_before" not in ran(shop, shop / "known.toml")[0]["evaluation"]


def test_a_veto_makes_another_recipe(shop, first):
    change(shop / "card.toml", '[["cold", "call"]]', '[["cold", "call"], ["warm", "mail"]]')
    try:
        found = ran(shop, write(shop, "veto", 0.2))[0]["evaluation"]
    finally:
        change(shop / "card.toml", ', ["warm", "mail"]]', "]")
    assert "by another recipe" in found["judged_before"]


def test_another_lineage_of_the_ledger_has_the_same_judges_and_counts_the_same_looks(shop, first):
    twin = shop / "twin"
    lay_out(twin)
    card = twin / "card.toml"
    card.write_text(card.read_text().replace('name = "shop"', 'name = "twin"').replace("ledger.db", "../ledger.db"))
    home = shop / "home"
    answer(home, "register", card)
    answer(home, "ingest", card)
    found = told(shop, answer(home, "run", write(twin, "same", 0.3))["run"])["evaluation"]
    looks = [e.body["look"] for e in ledger_in(shop).entries() if "look" in e.body]
    assert found["look"] == max(looks) == len(looks)
    # the same options on the same domain: the first recipe under another name
    assert "judged_before" not in found


def test_simulated_people_are_reserved_where_their_card_says_so(tmp_path):
    folder = lay_out(tmp_path / "toy", "synthetic", "reserve = 0.2\n")
    call(folder, "ingest", folder / "card.toml")
    plain, _ = ran(folder, write(folder, "plain"))
    assert any(line.startswith("0.2 of the people") for line in plain["assumptions"])
    assert "reserves 0.2 of its people" in refusal(folder / "home", "run", write(folder, "held", 0.3))
    held, _ = ran(folder, write(folder, "few", 0.2, planner="failure = 0.3\n"))
    assert "judged_before" not in held["evaluation"], "another recipe taught, and other people"


def log_of(folder, first, last):
    write_log(folder, (r for r in rows(last) if int(r[0][1:]) >= first))
    call(folder, "ingest", folder / "card.toml")


def test_people_who_came_in_after_all_that_was_read_are_fresh(tmp_path):
    """Everybody of the first edition taught another recipe; who came in since judges."""
    folder = lay_out(tmp_path / "toy", "synthetic")
    log_of(folder, 0, 1600)
    ran(folder, write(folder, "plain", planner="failure = 0.3\n"))
    held = write(folder, "held", 0.5)
    since = held.read_text() + "since = 1\nusers_since = 1400\n"
    held.write_text(since)
    assert "edition 1 is released, so nobody came in after" in refusal(folder / "home", "run", held)
    log_of(folder, 0, PEOPLE)
    found, run = ran(folder, held)
    of = found["evaluation"]
    # half of the 1,400 who are new, of 3,000
    assert abs(of["people"] - 700) < 150 and of["share"] == pytest.approx(0.5 * 1400 / 3000)
    assert "judged_before" not in of
    assert call(folder, "plan", held, "--no-quality")["people"] == {"teach": 1500, "judge": 700}
    assert call(folder, "ledger", "verify", run)["ok"]
    log_of(folder, 0, PEOPLE + 100)
    why = "a release has read edition 2, and who came in by then may have been read"
    assert why in refusal(folder / "home", "run", held)
    # without it, the same people judge who taught
    held.write_text(since.replace("since = 1\nusers_since = 1400\n", ""))
    assert "by another recipe" in ran(folder, held)[0]["evaluation"]["judged_before"]


def test_a_plan_counts_one_date_of_a_calendar_whose_judges_came_in_since_an_edition(tmp_path):
    """Each date reads who came in by then: the next one is refused until the recipe names it."""
    folder = lay_out(tmp_path / "toy", "synthetic")
    log_of(folder, 0, 1600)
    ran(folder, write(folder, "plain", planner="failure = 0.3\n"))
    log_of(folder, 0, PEOPLE)
    add(held := write(folder, "held", 0.5), 'since = 1\nusers_since = 1400\n[schedule]\nrelease = "weekly"\n')
    found = call(folder, "plan", held, "--no-quality")["calendar"]
    assert (found["paid"], found["limit"]) == (1, "since")
    assert found["verdicts"]["last_look"] == found["verdicts"]["look"]
    ran(folder, held)
    assert call(folder, "plan", held, "--no-quality")["calendar"]["paid"] == 0


def test_since_needs_how_many_people_there_were(tmp_path):
    folder = lay_out(tmp_path / "toy", "synthetic")
    held = write(folder, "held", 0.5)
    base = held.read_text()
    for more, says in (
        ("since = 1\n", "'since' goes with 'users_since'"),
        ("since = 1\nusers_since = 4000\n", "are more than all 3,000 declared people"),
        ("since = 1\nusers_since = 900\n", r"of 900 declared people are 450, and fewer than 500"),
    ):
        held.write_text(base + more)
        assert says in refusal(folder / "home", "run", held)


def test_an_edition_that_was_purged_tells_nobody_who_is_new(tmp_path):
    folder = lay_out(tmp_path / "toy", "synthetic")
    for _ in range(3):
        call(folder, "ingest", folder / "card.toml")
    call(folder, "store", "purge", folder / "card.toml", "--keep", 2, "--yes")
    add(held := write(folder, "held", 0.5), "since = 2\nusers_since = 2000\n")
    assert "edition 1 was purged, so nobody knows who came in later" in refusal(folder / "home", "run", held)
    assert not [e for e in ledger_in(folder / "home").entries() if e.kind == "INTENT"]
