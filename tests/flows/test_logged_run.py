"""People weighed by what their rows tell of practice: the check beside, its price, what is withheld or refused."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import polars as pl
import pytest

from flows.terminal.screen import fail
from pipeline.privacy.release_file import read_release
from pipeline.statistics.held_out import held_out_loss
from pipeline.statistics.moment_layout import half
from reticent import CardError
from tests.flows.shop import rows, write_log
from tests.flows.test_held_out_run import HELD, SHOP, call, told, write
from tests.flows.verb import invoke
from tests.jobs import home_at, ledger_of, run_job
from tests.learners.linear_shop import FEATURES

PEOPLE = 3000
LOGGED = f'{HELD}probabilities = "logged"\n'
# rows of different customers: empty cells tell nothing, the others are no chances
ODD = {0: "0", 10: "1.5", 20: "", 30: "-0.2", 40: "many", 50: "nan"}


def log_of(folder, chance, odd):
    told = ODD if odd else {}
    write_log(folder, ((*row, told.get(i, chance)) for i, row in enumerate(rows(PEOPLE))), ",chance")


def make(folder, chance=1 / 3, *, odd=False, mapped=True):
    card = SHOP.replace("users_public = 400", f"users_public = {PEOPLE}")
    if mapped:
        card = card.replace('terminated = "left"', 'terminated = "left", behavior_prob = "chance"')
    (folder / "card.toml").write_text(card + FEATURES)
    log_of(folder, chance, odd)
    call(folder, "ingest", folder / "card.toml")
    return folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return make(tmp_path_factory.mktemp("shop"), odd=True)


@pytest.fixture(scope="module", params=["dp-apvi", "dp-vapvi"])
def published(shop, request):
    recipe = write(shop, request.param, agent=request.param, privacy="[privacy]\nrho = 4.0", more=LOGGED)
    return call(shop, "run", recipe)["run"]


def test_the_page_and_the_certificate_say_that_rows_told_practice(shop, published):
    found = told(shop, published)["evaluation"]
    assert re.fullmatch("(tabular|linear)-dr-logged", found["estimator"])
    assert abs(found["ratios"]) < 4 and found["improvement"]["lower"] > 0, "a call sells to the warm"
    certificate = told(shop, published, "certificate.json")
    assert certificate["joint"]["estimator"] == found["estimator"]
    (scores,) = [s for s in certificate["joint"]["evaluate"]["sums"] if "b_sum" in s["tables"]]
    told_of = scores["joint"]["scores"], scores["joint"]["halved"]
    assert told_of == (6, 2), "the check has a sum of its own, in the price of all"
    page = (shop / "home" / "runs" / published / "report.md").read_text()
    assert re.search(r"Logged probabilities \| z = [-−]?\d.* \| in the same release", page)
    done = invoke("--home", shop / "home", "ledger", "verify", published)
    assert done.exit_code == 0, done.output
    assert call(shop, "run", shop / f"{published.rsplit('-', 1)[0]}.toml")["replayed"]


def test_all_six_sums_have_one_price(shop, published):
    release = read_release(shop / "home" / "runs" / published)
    sums = next(m for m in release.mechanisms if m.table == "b_sum")
    assert sums.shape == (6,) and sums.l2_squared == 4 * (4 * 2**32 + 2 * half(2**16) ** 2)
    if "regressions" not in release.joint["learn"]:
        assert held_out_loss(release.mechanisms, release.joint) == release.joint_rho
    entries = ledger_of(home_at(shop / "home")).entries()
    asked = [e.body for e in entries if e.kind == "INTENT" and e.body["joint"]["estimator"].endswith("-logged")]
    assert asked and all(Fraction(38, 10) < Fraction(body["rho"]) <= 4 for body in asked)


def test_plan_says_it_before_anything_is_spent(shop):
    said = call(shop, "plan", "--no-quality", write(shop, "planned", privacy="[privacy]\nrho = 1.0", more=LOGGED))
    assert "J = 6 scores" in json.dumps(said) and "tabular-dr-logged" in json.dumps(said)


def test_what_is_no_chance_is_set_aside_and_stops_no_run(shop):
    """0 of what was done, more than 1, less than 0, or a word: filed with its episode; an empty cell stays."""
    snapshot = shop / "home" / "store" / "shop" / "snapshot-0001"
    parts = pl.concat([pl.read_parquet(p) for p in sorted(snapshot.glob("part-*.parquet"))])
    known = parts["behavior_prob"].drop_nulls()
    assert set(known) == {1 / 3} and 0 < parts["behavior_prob"].null_count() <= 2
    filed = pl.concat([pl.read_parquet(p) for p in sorted(snapshot.glob("quarantine-*.parquet"))])
    assert set(filed["rule"]) == {"unparsable"} and 4 <= len(filed) <= 12


def test_chances_that_are_not_those_of_practice_withhold_the_answer(tmp_path):
    shop = make(tmp_path, 0.6)
    run = call(shop, "run", write(shop, privacy="[privacy]\nrho = 4.0", more=LOGGED))["run"]
    report = told(shop, run)
    assert report["evaluation"]["ratios"] < -4, "weights are a half of what they should be"
    assert report["verdict"]["answer"] == "withheld" and "logged probabilities" in report["verdict"]["why"]
    assert abs(told(shop, call(shop, "run", write(shop, "plain", more=HELD))["run"])["evaluation"]["placebo"]) < 4


def test_the_release_is_asked_unless_the_recipe_says_otherwise(shop):
    plain = told(shop, call(shop, "run", write(shop, "released", more=f'{HELD}probabilities = "released"\n'))["run"])
    assert plain["evaluation"]["estimator"] == "tabular-dr" and "ratios" not in plain["evaluation"]
    assert call(shop, "run", write(shop, "same", more=HELD))["replayed"], "it is the same question"


@pytest.mark.parametrize(
    ("agent", "more", "mapped", "why"),
    [
        ("dp-apvi", LOGGED, False, r"shop maps no column to source\.columns\.behavior_prob"),
        ("dp-one-step", LOGGED, True, "one-step-dr weighs nothing by them; take it out"),
        ("dp-apvi", '[evaluate]\nprobabilities = "logged"\n', True, "nobody evaluates; give people"),
        ("dp-apvi", f'{HELD}probabilities = "guessed"\n', True, "released"),
    ],
)
def test_what_cannot_be_weighed_is_refused_before_anything_is_charged(tmp_path, agent, more, mapped, why):
    shop = make(tmp_path, mapped=mapped)
    with pytest.raises((CardError, ValueError), match=why) as refused:
        run_job(
            str(write(shop, "wrong", agent=agent, privacy="[privacy]\nrho = 4.0", more=more)), home_at(shop / "home")
        )
    assert fail(refused.value, as_json=True) == 2
    assert not (shop / "home" / "ledger.db").exists(), "nothing was charged"
