"""A policy that other people evaluate: one charge, one release, its numbers, its verifier, and what is refused."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from flows.config.recipe import Setting
from pipeline.evaluation.intervals import deviations, level_of
from pipeline.learners import held_out
from pipeline.learners.held_out import EVALUATED_POLICY
from pipeline.learners.policy_files import PolicyFiles
from pipeline.learners.tabular_evaluation import CLIP
from pipeline.privacy.release_file import read_release
from pipeline.transaction.transaction import Transaction
from reticent import load_card, load_recipe
from tests.conftest import slow
from tests.flows.shop import HELD, card_text, rows, write_log, write_recipe
from tests.flows.verb import answer, invoke, refusal, told
from tests.jobs import entries_of, home_at, ledger_of, run_job
from tests.learners.linear_shop import FEATURES

pytestmark = pytest.mark.usefixtures("unread")

PEOPLE = 3000
SHOP = card_text(cap=40.0, people=PEOPLE)


def write(folder, name="held", agent="dp-apvi", privacy="[privacy]\nrho = 1.0", more=HELD):
    return write_recipe(folder, name, agent, privacy, more)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return ingested(tmp_path_factory.mktemp("shop"), SHOP + FEATURES)


def ingested(folder, card, *verbs, offer=None):
    """A shop of many people whose log is ingested; ``offer``: the only one that anybody gets."""
    (folder / "card.toml").write_text(card)
    write_log(folder, ((*r[:4], offer or r[4], *r[5:]) for r in rows(PEOPLE)))
    for verb in (*verbs, "ingest"):
        call(folder, verb, folder / "card.toml")
    return folder


def replays(home, recipe):
    """Whether a run of a recipe would ask nothing that was not asked."""
    return answer(home, "plan", "--no-quality", recipe)["replays"]


def call(folder, *words):
    return answer(folder / "home", *words)


OFFERS, MANY, ONE = '["none", "mail", "call"]', [f"offer {i}" for i in range(100)], {"horizon = 3": "horizon = 1"}


def planned(folder, agent, declared=None, more=HELD):
    """Plan of a recipe for 20,000 people and a card with ``declared`` instead of what stands there."""
    text = card_text(cap=40.0, people=20_000)
    for old, new in (declared or {}).items():
        assert old in text
        text = text.replace(old, new)
    (folder / "card.toml").write_text(text + FEATURES * (agent == "dp-vapvi"))
    return call(folder, "plan", "--no-quality", write(folder, agent=agent, more=more))


@pytest.mark.parametrize(
    ("agent", "declared", "key", "says"),
    [
        ("dp-apvi", {"horizon = 3": 'horizon = 3\nmarkov = "aggregated"'}, "outside", "bins that hide part"),
        ("dp-vapvi", {"horizon = 3": 'horizon = 3\ndynamics = "stationary"'}, "outside", "where steps are apart"),
        # the card says per_step
        ("dp-vapvi", ONE, "outside", "several steps, and the card has one. Those of dp-one-"),
        ("dp-apvi", ONE | {OFFERS: "10"}, "outside", "up to 5 actions, and the card has 10. Those of dp-one-step were"),
        ("dp-apvi", ONE | {OFFERS: "5"}, "outside", None),
        ("dp-apvi", {OFFERS: json.dumps(MANY)}, "rare", "of 100 taken alike 40% of a policy's steps"),
        ("dp-one-step", {OFFERS: json.dumps(MANY)}, "rare", "each of 100 taken alike has 1 %"),
        ("dp-apvi", {OFFERS: json.dumps(MANY[:61])}, "rare", None),
        ("dp-one-step", {OFFERS: json.dumps(MANY[:10])}, "rare", None),
    ],
)
def test_a_plan_foresees_what_keeps_a_verdict_from_people(tmp_path, agent, declared, key, says):
    """Runs of such cards of real people are withheld, whatever comes in; of many actions, where practice tries all."""
    told = planned(tmp_path, agent, {'vetoes = [["cold", "call"]]\n': ""} | declared)["people"]
    assert told.get(key) is None if says is None else says in told[key]


def test_what_a_plan_says_of_visits_is_of_those_who_teach(tmp_path):
    """Three in ten are held out: it takes ten people for what seven do where all teach."""
    all_teach = planned(tmp_path, "dp-apvi", more="")
    held = planned(tmp_path, "dp-apvi")
    assert held["visits_per_cell_if_even"] == pytest.approx(0.7 * all_teach["visits_per_cell_if_even"])
    assert [r["ratio"] for r in held["what_if"]] == pytest.approx([0.7 * r["ratio"] for r in all_teach["what_if"]])
    assert held["people_needed"]["10"] == pytest.approx(all_teach["people_needed"]["10"] / 0.7, abs=1)


def test_a_plan_says_of_which_steps_nothing_is_learnt(tmp_path):
    """Three steps apart, of which two teach by default: with 20,000 people the third was "not enough evidence"."""
    assert planned(tmp_path, "dp-one-step")["steps_that_teach"] == 2
    assert "steps_that_teach" not in planned(tmp_path, "dp-one-step", more=HELD + "[one_step]\nrows = 3\n")
    page = invoke("--home", tmp_path / "home", "plan", "--no-quality", write(tmp_path, agent="dp-one-step")).output
    page = " ".join(page.split())
    assert "of a person the first 2 rows teach" in page and "verdict: none of real people" in page


@pytest.fixture(scope="module")
def published(shop):
    return call(shop, "run", write(shop))["run"]


# noise in a thin cell may look like another action: exact counts, or one action alone
NO_NOISE = {"agent": "apvi", "privacy": ""}


@pytest.mark.parametrize(("declared", "asked"), [(OFFERS, NO_NOISE), slow('["mail"]', {})])
def test_where_nothing_else_was_tried_nothing_changes_and_no_people_would_help(tmp_path, declared, asked):
    card = SHOP.replace('vetoes = [["cold", "call"]]\n', "")
    ingested(tmp_path, card.replace(OFFERS, declared), offer="mail")
    verdict = told(tmp_path, call(tmp_path, "run", write(tmp_path, **asked))["run"])["verdict"]
    assert (verdict["answer"], verdict["needed"]) == ("nothing_changes", None)
    assert "practice already does what the policy recommends" in verdict["why"]


def ledger(shop):
    return ledger_of(home_at(shop / "home"))


def assert_practice(found, width):
    """Fresh noise: an interval misses once in forty runs, twice as wide a one once in 100,000."""
    sales, low, high = sum(r[5] for r in rows(PEOPLE)) / PEOPLE, found["practice"]["lower"], found["practice"]["upper"]
    assert abs(sales - (low + high) / 2) < high - low < width


def assert_pays_for_both(intent):
    """The dearer part, or what leaving both costs."""
    parts = [intent.body["joint"][part] for part in ("learn", "evaluate")]
    whole = *(Fraction(p["rho_exact"]) for p in parts), sum(Fraction(p["rho_add_remove"]) for p in parts)
    assert Fraction(intent.body["rho"]) == Fraction(intent.body["joint"]["rho_exact"]) == max(whole)
    return parts


def assert_verified_and_free_again(folder, recipe, run):
    assert call(folder, "ledger", "verify", run)["ok"]
    again = call(folder, "run", recipe)
    assert again["replayed"] and again["run"] == run


def test_the_page_says_what_other_people_say(shop, published):
    found = told(shop, published)["evaluation"]
    assert abs(found["people"] - 900) < 150
    assert (found["look"], found["level"], found["share"]) == (1, pytest.approx(0.975), 0.3)
    assert_practice(found, 0.3)
    assert found["improvement"]["lower"] > 0, "a call sells to the warm"
    assert abs(found["placebo"]) < 4


def test_one_entry_pays_for_both_parts_a_replay_costs_nothing_and_the_verifier_makes_all_of_it_again(shop, published):
    (intent,) = [e for e in ledger(shop).entries() if e.kind == "INTENT"]
    parts = assert_pays_for_both(intent)
    assert Fraction(intent.body["rho"]) <= 1
    assert all(Fraction(98, 100) < Fraction(p["rho_exact"]) for p in parts), "both parts have the whole budget"
    assert {m["table"] for m in intent.body["mechanisms"]} >= {"n_sas", "b_sum", "b_square", "b_people"}
    assert told(shop, published, "certificate.json")["joint"]["rho_exact"] == intent.body["rho"]
    assert_verified_and_free_again(shop, shop / "held.toml", published)
    snapshot = shop / "home" / "store" / "shop" / "snapshot-0001"
    assert not [p for p in snapshot.iterdir() if "parts" in p.name]


def test_an_answer_about_one_policy_is_none_about_another(shop, published, monkeypatch):
    """A version that learns another policy of a release must not show what people said of the first."""
    release = read_release(shop / "home" / "runs" / published)
    plan = Setting(load_recipe(shop / "held.toml"), load_card(shop / "card.toml"), home_at(shop / "home")).plan
    assert plan.learn(release).evaluated.people > 0
    asked = release.derived[EVALUATED_POLICY]
    assert (asked == held_out._policy_digest(plan.plan.learn(held_out._part(release, evaluates=False)))).all()
    other = replace(release, derived={**release.derived, EVALUATED_POLICY: asked ^ 1})
    with pytest.raises(ValueError, match="about another policy"):
        plan.learn(other)
    digest = PolicyFiles.digest
    monkeypatch.setattr(PolicyFiles, "digest", property(lambda self: digest.fget(self)[::-1]))
    with pytest.raises(ValueError, match="about another policy"):
        plan.learn(release)


@pytest.mark.parametrize("part", ["learn", "evaluate"])
def test_a_certificate_that_charges_only_one_part_is_caught(shop, published, part, tmp_path):
    folder = shop / "home" / "runs" / published
    kept = {file: (folder / file).read_text() for file in ("certificate.json", "release.json")}
    try:
        for file, text in kept.items():
            facts = json.loads(text)
            facts["joint"][part]["sums"][0]["tables"].pop()
            (folder / file).write_text(json.dumps(facts))
        assert not answer(shop / "home", "ledger", "verify", published, code=4)["ok"]
    finally:
        for file, text in kept.items():
            (folder / file).write_text(text)


def test_each_evaluation_of_the_lineage_is_a_look_of_its_own(shop, published):
    second = call(shop, "run", write(shop, "second", more=HELD.replace("0.3", "0.5")))["run"]
    found = told(shop, second)["evaluation"]
    assert (found["look"], found["level"]) == (2, pytest.approx(1 - 0.05 / 6))
    assert "evaluation" not in told(shop, call(shop, "run", write(shop, "plain", more=""))["run"])
    assert [e.body.get("look") for e in ledger(shop).entries() if e.kind == "INTENT"] == [1, 2, None]
    assert call(shop, "ledger", "verify", second)["ok"]


FOLLOW = "rows that follow", "moments of features"


@pytest.mark.parametrize(
    ("agent", "rho", "stages"),
    [
        ("dp-apvi", 0.5, ["release", "values of people"]),
        slow("dp-vapvi", 2.0, ["release", "counts of people", "values of people"]),
        slow("dp-one-step", 5.0, ["value of practice", "gain of actions", *FOLLOW, "values of people"]),
    ],
)
def test_both_parts_are_drawn_in_declared_stages(shop, monkeypatch, agent, rho, stages):
    seen, stage = [], Transaction.stage

    def watched(self, name, draw):
        seen.append(name)
        return stage(self, name, draw)

    monkeypatch.setattr(Transaction, "stage", watched)
    run_job(str(write(shop, "staged", agent, f"[privacy]\nrho = {rho}")), home_at(shop / "home"))
    assert seen == stages


@pytest.mark.parametrize("agent", ["apvi", "vapvi", "one-step"])
def test_without_noise_the_evaluation_is_the_exact_one(shop, agent):
    found = told(shop, call(shop, "run", write(shop, f"bare_{agent[:3]}", agent, ""))["run"])["evaluation"]
    assert found["noise_variance"] == 0 and found["people"] == int(found["people"])
    assert found["improvement"]["lower"] > 0, "a call sells to the warm"


@pytest.mark.parametrize(
    ("agent", "privacy", "more", "word"),
    [
        ("dp-apvi", "[privacy]\nrho = 1.0", "[evaluate]\npeople = 0.1\n", "fewer than 500"),
        ("dp-apvi", "[privacy]\nepsilon = 1.0", HELD, "Gaussian"),
        ("dp-apvi", "[privacy]\nrho = 1.0", "[evaluate]\npeople = 1.0\n", "people"),
        ("dp-apvi", "[privacy]\nrho = 1.0", HELD + "[nightly]\nfirst = 2026-01-01\n", "[schedule]"),
        ("dp-apvi", "[privacy]\nrho = 1.0", HELD + "dates = 'monthly'\n", "[schedule]"),
        ("dp-one-step", "[privacy]\nrho = 1.0", "[nightly]\nfirst = 2026-01-01\n", "[schedule]"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(shop, agent, privacy, more, word):
    assert word in refusal(shop / "home", "plan", write(shop, "wrong", agent, privacy, more))


@pytest.mark.slow
def test_the_audit_attacks_the_other_people_and_whoever_crosses(shop):
    found = call(shop, "audit", write(shop, "attacked"), "--draws", "2000")
    attacked = [a["mechanism"] for a in found["attacks"]]
    assert any(a.startswith("scores of people") for a in attacked)
    assert any(a.startswith("people across the parts") for a in attacked)
    assert not found["violates"]


@pytest.mark.slow
def test_real_people_are_evaluated_behind_their_gate_and_the_run_verifies(tmp_path):
    card = card_text(kind="real", cap=12.0, people=PEOPLE) + "[tolerance]\nunknown_label = 0.01\n"
    ingested(tmp_path, card, "register")
    run = call(tmp_path, "run", write(tmp_path))["run"]
    found = told(tmp_path, run)
    assert found["gate"] and found["evaluation"]["look"] == 1
    assert found["guarantee"]["rho"] <= 1
    intent = [e["body"] for e in entries_of(home_at(tmp_path / "home"), tmp_path) if e["kind"] == "INTENT"][-1]
    alone = max(Fraction(intent["joint"][part]["rho_add_remove"]) for part in ("learn", "evaluate"))
    assert Fraction(intent["rho_add_remove"]) == alone
    assert call(tmp_path, "ledger", "verify", run, "--card", tmp_path / "card.toml")["ok"]


@pytest.mark.parametrize(("agent", "rho"), [("dp-apvi", 0.5), ("dp-one-step", 4.0)])
def test_a_plan_tells_how_wide_verdicts_are_at_the_last_date_of_a_calendar(shop, published, agent, rho):
    dates = [f"2090-{month:02}-01" for month in range(1, 13)]
    more = f"{HELD}[schedule]\nrelease = {json.dumps(dates)}\n"
    recipe = write(shop, "dated", agent, f"[privacy]\nrho = {rho}", more)
    calendar = call(shop, "plan", "--no-quality", recipe)["calendar"]
    found, paid = calendar["verdicts"], calendar["paid"]
    left = 40 - ledger(shop).account("shop").spent
    assert paid == min(12, int(left / Fraction(calendar["rho_each"]))) and (paid < 12) == (rho > 1)
    first = 1 + len({e.body["run_key"] for e in ledger(shop).entries() if "look" in e.body})
    assert (found["look"], found["last_look"]) == (first, first + paid - 1)
    wide = [deviations(level_of(k)) for k in (first, first + paid - 1)]
    assert found["last_half_width"] / found["half_width"] == pytest.approx(wide[1] / wide[0])
    assert deviations(level_of(12)) / deviations(level_of(1)) == pytest.approx(1.6, abs=0.01)
    if agent == "dp-apvi":
        clip = int(read_release(shop / "home" / "runs" / published).derived[CLIP][0])
        of_run = told(shop, published)["evaluation"]["noise_variance"] ** 0.5
        # half of its rho, scores cut at one range, and as many people as are declared
        assert found["half_width"] / wide[0] == pytest.approx(of_run / clip * 2**0.5, rel=0.15)
