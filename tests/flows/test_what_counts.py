"""Plain logs through the Python door: which rewards a page counts, and why it withholds."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.terminal.pages import warnings_of
from pipeline.facts.verdict import Verdict
from reticent import Store
from tests.conftest import slow
from tests.flows.shop import run_on_card, write_recipe

# what is planted shows in nearly every run, and in every one of a settled chance
pytestmark = pytest.mark.usefixtures("settled")
PEOPLE = 20_000
CARD = """
schema_version = 2
name = "visits"
budget = { rho = 4.0, ledger = "ledger.db" }
[unit]
user = "who"
users_public = 20000
[domain]
horizon = 3
states = { column = "state", labels = ["well", "ill"], ends = ["end"] }
actions = { column = "done", labels = ["mild", "strong"] }
[reward]
range = [0.0, 1.0]
[source]
files = ["frame.parquet"]
columns = { user_id = "who", episode_id = "stay", step = "visit", reward = "good" }
"""
JUDGED = "[evaluate]\npeople = 0.5\n"
WORD = 'practice = "recorded"\n'
_NAMES = (("ill", "well"), ("strong", "mild"))


def visits(visit: int, who: Any, ill: Any, strong: Any, good: Any, **more: Any) -> pl.DataFrame:
    """Rows of one visit."""
    cells = {"who": who, "stay": who, "visit": np.full(len(who), visit), "good": good * 1.0, "ill": ill}
    cells["strong"] = strong
    log = pl.DataFrame(cells).with_columns(pl.col("ill", "strong").cast(pl.Boolean))
    state, done = (pl.when(name).then(pl.lit(name)).otherwise(pl.lit(other)) for name, other in _NAMES)
    return log.select("who", "stay", "visit", "good", state.alias("state"), done.alias("done")).with_columns(**more)


def page_of(folder: Path, log: pl.DataFrame, changes: dict[str, str], agent: str, more=JUDGED, rho=1.0):
    """The page and the verdict of a run on this card with ``changes``."""
    card, folder = CARD, folder / str(len(list(folder.iterdir())))
    for old, new in changes.items():
        assert old in card
        card = card.replace(old, new)
    folder.mkdir()
    (folder / "card.toml").write_text(card)
    return ran(folder, [log], agent, more, rho)


def ran(folder: Path, logs: list[pl.DataFrame], agent: str, more: str, rho=1.0) -> tuple[str, Any]:
    """The same of the card there and the last of some deliveries."""
    done = run_on_card(write_recipe(folder, "visits", agent, f"[privacy]\nrho = {rho}", more), *logs)
    return (done.folder / "report.md").read_text(), done.verdict


def some(log: pl.DataFrame, people: int) -> tuple[pl.DataFrame, dict[str, str]]:
    """So many of them, where they show it as well, and what the card says of it."""
    return log.filter(pl.col("who") < people), {"users_public = 20000": f"users_public = {people}"}


@cache
def harmful_later() -> pl.DataFrame:
    """A first visit at which the strong drug helps, .7 instead of .5, and three that are worse for it, .3."""
    g, who = np.random.default_rng(1), np.arange(PEOPLE)
    strong = g.random(PEOPLE) < 0.5
    chances = [np.where(strong, 0.7, 0.5), *[np.where(strong, 0.3, 0.5)] * 3]
    well = np.zeros(PEOPLE)
    return pl.concat([visits(h, who, well, strong & (h == 0), g.random(PEOPLE) < p) for h, p in enumerate(chances)])


@pytest.mark.parametrize(("share", "status"), [("0.9", "modelled"), ("0.5", "evaluated")])
def test_an_interval_is_called_measured_only_where_enough_people_taught(
    tmp_path: Path, share: str, status: str
) -> None:
    """With nine in ten who judge, near the least number of judges, 27 of 57 intervals missed."""
    log, changes = some(harmful_later().filter(pl.col("visit") < 3), 2_000)
    changes["rho = 4.0,"] = f"rho = 4.0, reserve = {share},"
    _, verdict = page_of(tmp_path, log, changes, "dp-apvi", JUDGED.replace("0.5", share))
    assert verdict.improvement.status == status


def test_a_ledger_may_reserve_more_people_than_a_card_says(tmp_path: Path) -> None:
    """The card that first came to the ledger says for all how many may teach."""
    log, changes = some(harmful_later().filter(pl.col("visit") < 3), 2_000)
    card = CARD.replace(*changes.popitem())
    first = card.replace('"visits"', '"first"').replace("rho = 4.0,", "rho = 4.0, reserve = 0.9,")
    (tmp_path / "card.toml").write_text(card)
    (tmp_path / "first.toml").write_text(first)
    Store(tmp_path / "home").register(tmp_path / "first.toml")
    page, verdict = ran(tmp_path, [log], "dp-apvi", JUDGED)
    assert verdict.improvement.status == "modelled"
    assert "Fewer people would teach than must judge" in page


@pytest.mark.parametrize("word", ["", slow(WORD)])
def test_what_comes_after_the_last_declared_step_counts_nowhere_and_the_page_says_so(tmp_path: Path, word: str) -> None:
    changes = {"horizon = 3\n": f"horizon = 1\n{word}"}
    page, verdict = page_of(tmp_path, harmful_later(), changes, "dp-one-step")
    assert verdict.answer == "better"
    assert "rounded down to steps of 1 (how many were, only ingest tells), of the first step of an episode" in page
    # the true difference of whole episodes is -.4; a word that says that nothing comes later is false of this log
    said = "no person, outcome or step is missing or comes after the last declared step"
    assert (said in verdict.confounding.why) == bool(word) and said in page
    assert word or "or beyond the last declared step are set aside" in page


def warned(folder: Path, log: pl.DataFrame, old: str, new: str, words: str) -> int:
    """Of how many warnings of an ingest these words are, of 500 people and a card that says otherwise."""
    (folder / "card.toml").write_text(CARD.replace("20000", "500").replace(old, new))
    report = Store(folder / "home").ingest(folder / "card.toml", log.filter(pl.col("who") < 500))["report"]
    return sum(words in warning for warning in warnings_of(report))


def test_ingest_warns_of_rows_beyond_the_horizon_and_of_next_states_that_the_next_rows_contradict(tmp_path: Path):
    words = "rows beyond domain.horizon: what those pay counts nowhere"
    for horizon, found in ((1, 1), (4, 0)):
        assert warned(tmp_path, harmful_later(), "horizon = 3\n", f"horizon = {horizon}\n", words) == found
    # a last row has no other: where steps are alike, `dp-apvi` advised the harmful action by them
    for more, found in ((', next_state = "after" }', 1), (" }", 0)):
        log, old = _seen_right_after(500), 'reward = "good" }'
        assert warned(tmp_path, log, old, f'reward = "good"{more}', "take next_state out") == found


def test_a_range_that_is_far_too_wide_is_named_where_nothing_is_told_apart(tmp_path: Path) -> None:
    """The same coin that helps in .3 more of the visits: told apart in a range of 1, and lost in one of 100."""
    g, who = np.random.default_rng(3), np.arange(PEOPLE)
    strong = g.random(PEOPLE) < 0.5
    log = visits(0, who, np.arange(PEOPLE) % 2, strong, g.random(PEOPLE) < np.where(strong, 0.6, 0.3))
    one, wide = {"horizon = 3\n": "horizon = 1\n"}, {"range = [0.0, 1.0]\n": "range = [0.0, 100.0]\nsteps = 100\n"}
    for changes, answer in ((one, "better"), (one | wide, "not_told_apart")):
        page, verdict = page_of(tmp_path, log, changes, "dp-one-step")
        assert verdict.answer == answer
        assert ("An episode can pay 0 to 100 by the card, and now pays" in page) == (answer != "better")


def test_what_helped_until_summer_is_better_on_the_condition_that_it_still_does(tmp_path: Path) -> None:
    """All year a coin chooses: the drug pays .25 more in eight months, and .1 less in the four that follow."""
    g, who = np.random.default_rng(7), np.arange(PEOPLE)
    strong, late = g.random(PEOPLE) < 0.5, who >= PEOPLE * 2 // 3
    good = g.random(PEOPLE) < 0.4 + np.where(late, -0.1, 0.25) * strong
    log = visits(0, who, g.random(PEOPLE) < 0.5, strong, good)
    page, verdict = page_of(tmp_path, log, {"horizon = 3\n": "horizon = 1\n"}, "dp-one-step")
    assert verdict.answer == "better" and "the same comes of a choice on all days" in verdict.conditions
    assert "Has what comes of a choice changed since the first days of the log?" in page


@pytest.mark.slow
def test_the_score_says_how_rewards_are_discounted_cut_or_left_out(tmp_path: Path) -> None:
    g, who = np.random.default_rng(2), np.arange(PEOPLE)
    soon = g.random(PEOPLE) < 0.5
    # the strong drug pays .5 and then .2, the mild one .2 and then .6: .1 more in all, and less at half the worth
    first = visits(0, who, np.zeros(PEOPLE), soon, g.random(PEOPLE) < np.where(soon, 0.5, 0.2))
    then = visits(1, who, soon, np.zeros(PEOPLE), g.random(PEOPLE) < np.where(soon, 0.2, 0.6))
    log = pl.concat([first, then])
    fine = "range = [0.0, 1.0]\nsteps = 1000\n"
    half = {"horizon = 3\n": "horizon = 2\ndiscount = 0.5\n", "range = [0.0, 1.0]\n": fine}
    few, declared = some(log, 2_000)
    page, _ = page_of(tmp_path, few, half | declared, "dp-apvi")
    halved = "(each counting 0.5 times as much as one a step before), 0 after its end"
    assert f"summed over the first 2 steps of an episode {halved}" in page
    once = {"horizon = 3\n": "horizon = 2\n", "range = [0.0, 1.0]\n": "range = [0.0, 1.0]\ntotal = 1.0\n"}
    page, _ = page_of(tmp_path, few, once | declared, "dp-apvi")
    assert "summed over the first 2 steps of an episode (cut to 1 in all), 0 after its end" in page
    last = {"horizon = 3\n": "horizon = 2\n", "range = [0.0, 1.0]\n": 'range = [0.0, 1.0]\npaid = "last"\n'}
    # a third visit is the last, and lies beyond: what the second paid is no score
    longer = pl.concat([log, visits(2, who, soon, np.zeros(PEOPLE), np.zeros(PEOPLE))])
    page, verdict = page_of(tmp_path, longer, last, "dp-apvi")
    assert ", of an episode's last step alone, if it lies within the first 2 steps." in page
    assert verdict.improvement.upper < 0.01


def stays(often: int) -> pl.DataFrame:
    """Stays of three visits: ill people have ``often``, whatever is done, the others one; the strong drug helps."""
    g = np.random.default_rng(3)
    frail = g.random(PEOPLE) < 0.4
    who = np.repeat(np.arange(PEOPLE), np.where(frail, often, 1))
    ill, log = g.random(len(who)) < np.where(frail[who], 0.8, 0.2), []
    for h in range(3):
        strong = g.random(len(who)) < 0.5
        good = g.random(len(who)) < np.where(ill, 0.2 + 0.2 * strong, 0.7)
        log.append(visits(h, who, ill, strong, good).with_columns(stay=pl.Series(range(len(who)))))
        ill = np.where(g.random(len(who)) < 0.8, ill, ~ill)
    return pl.concat(log)


@pytest.mark.slow
def test_people_with_more_episodes_than_others_are_a_reason_for_two_values_of_practice(tmp_path: Path) -> None:
    several = {"users_public = 20000\n": "users_public = 20000\nepisodes_per_user = 3\n"}
    _, verdict = page_of(tmp_path, stays(3), several, "dp-apvi")
    assert verdict.answer == "withheld"
    assert "people with more episodes than others: tables count these more often" in verdict.why
    _, verdict = page_of(tmp_path, stays(3), {}, "dp-apvi")
    assert verdict.improvement.lower > 0


def tiring(people: int) -> pl.DataFrame:
    """Five stays of one visit: the strong drug pays .15 more, and most whom it was given are ill at their next stay."""
    g, who, log = np.random.default_rng(11), np.arange(people), list[pl.DataFrame]()
    ill = g.random(people) < 0.5
    for stay in range(5):
        strong = g.random(people) < 0.4
        good = g.random(people) < np.where(ill, 0.3, 0.8) + 0.15 * strong
        log.append(visits(0, who, ill, strong, good).with_columns(stay=pl.Series(5 * who + stay)))
        ill = g.random(people) < np.where(strong, 0.9, 0.2)
    return pl.concat(log)


ALONE = "no episode of a person changes their later ones"


@pytest.mark.parametrize(("cap", "word"), [("5", ""), slow("1", ""), slow("5", WORD)])
def test_better_of_people_who_come_again_stands_on_it_that_an_episode_leaves_nothing_behind(tmp_path, cap, word):
    """The state explains every choice and outcome, all come five times, and the strong drug for everybody loses .08."""
    few, declared = some(tiring(10_000), 10_000)
    several = {f"{new}\n": f"{new}\nepisodes_per_user = {cap}\n" for new in declared.values()}
    changes = declared | several | {"horizon = 3\n": f"horizon = 1\n{word}"}
    page, verdict = page_of(tmp_path, few, changes, "dp-one-step")
    assert verdict.answer == "better" and ALONE in verdict.conditions
    assert ALONE in page and "what is done then change how they come again" in page


def sites(state: bool) -> tuple[pl.DataFrame, dict[str, str]]:
    """Two sites that practise unlike and fare alike, and the card's states with or without the site."""
    g, who, log = np.random.default_rng(4), np.arange(PEOPLE), list[pl.DataFrame]()
    site, ill = g.random(PEOPLE) < 0.5, g.random(PEOPLE) < 0.5
    for h in range(3):
        strong = g.random(PEOPLE) < np.where(site, 0.9, 0.1)
        log.append(visits(h, who, ill, strong, g.random(PEOPLE) < np.where(ill, 0.2 + 0.2 * strong, 0.7)))
        named = np.where(ill, "ill", "well").astype(object) + np.where(site, " north", " south")
        log[-1] = log[-1].with_columns(state=pl.Series(named.tolist())) if state else log[-1]
        ill = np.where(g.random(PEOPLE) < np.where(strong, 0.6, 0.8), ill, ~ill)
    four = '"well north", "well south", "ill north", "ill south"'
    return pl.concat(log), {'"well", "ill"': four} if state else {}


@pytest.mark.slow
def test_sites_that_practise_unlike_and_fare_alike_are_not_called_a_cause_of_outcomes(tmp_path: Path) -> None:
    _, verdict = page_of(tmp_path, *sites(state=False), "dp-apvi")
    assert verdict.answer == "withheld" and verdict.confounding.status == "seen"
    assert "drives both" not in verdict.why and "Sites or years that differ in practice alone" in verdict.why
    _, verdict = page_of(tmp_path, *sites(state=True), "dp-apvi")
    assert verdict.confounding.status != "seen" and verdict.improvement.lower > 0


@pytest.mark.parametrize("agent", ["dp-apvi", slow("dp-one-step")])
def test_a_difference_that_no_episode_can_pay_is_withheld(tmp_path: Path, agent: str) -> None:
    g, who = np.random.default_rng(5), np.arange(PEOPLE)
    well, log = np.zeros(PEOPLE, bool), list[pl.DataFrame]()
    # recovery pays once, people keep coming, and no state tells who did: practice is worth .974 of 1
    for h in range(4):
        strong = g.random(PEOPLE) < 0.5
        good = ~well & (g.random(PEOPLE) < np.where(strong, 0.8, 0.4))
        well |= good
        log.append(visits(h, who, g.random(PEOPLE) < 0.5, strong, good))
    once = {"horizon = 3\n": "horizon = 4\n", "range = [0.0, 1.0]\n": "range = [0.0, 1.0]\ntotal = 1.0\n"}
    _, verdict = page_of(tmp_path, pl.concat(log), once, agent)
    # the best policy gains .024, and people's scores say ten times that
    assert verdict.answer == "withheld"
    assert verdict.why.startswith("An episode pays 0 to 1 and current practice is worth 0.97")


@cache
def leavers(lost: float, after_strong: float, strong_pays: float) -> pl.DataFrame:
    """Eight visits, the strong drug rare; who leaves has no more rows.  The visit before says where it led."""
    g, who = np.random.default_rng(7), np.arange(PEOPLE)
    ill, stay, log = g.random(PEOPLE) < 0.5, np.ones(PEOPLE, bool), list[pl.DataFrame]()
    for h in range(8):
        strong, then = g.random(PEOPLE) < 0.1, g.random(PEOPLE) < 0.5
        good = g.random(PEOPLE) < 0.3 - 0.1 * ill + strong_pays * strong
        led = pl.when(pl.Series(then)).then(pl.lit("ill")).otherwise(pl.lit("well"))
        log.append(visits(h, who, ill, strong, good, led=led).filter(pl.Series(stay)))
        stay &= g.random(PEOPLE) >= np.where(strong, after_strong, lost)
        ill = then
    return pl.concat(log)


@pytest.mark.parametrize(
    ("agent", "word"),
    [("dp-apvi", WORD), slow("dp-vapvi", ""), slow("dp-apvi", ""), slow("dp-vapvi", WORD)],
)
def test_people_who_leave_unseen_are_no_gain_of_a_policy(tmp_path: Path, agent: str, word: str) -> None:
    """One in a hundred leaves after each visit, whatever was done, and both drugs do the same."""
    features = '[features]\nkind = "one_hot"\n[source]' if agent == "dp-vapvi" else "[source]"
    led = {'reward = "good"': 'reward = "good", next_state = "led"', "[source]": features}
    _, verdict = page_of(tmp_path, leavers(0.01, 0.01, 0.0), {"horizon = 3\n": f"horizon = 8\n{word}"} | led, agent)
    assert verdict.answer == "withheld" and "By the released counts episodes break off" in verdict.why
    # nobody leaves
    few, declared = some(leavers(0.0, 0.0, 0.3), 8_000)
    _, verdict = page_of(tmp_path, few, {"horizon = 3\n": f"horizon = 8\n{word}"} | led | declared, agent)
    assert verdict.answer == "better"


def test_a_last_step_that_leads_nowhere_is_not_said_to_be_people_who_leave(tmp_path: Path) -> None:
    """Whole episodes, but no end is declared."""
    changes = {"horizon = 3\n": "horizon = 8\n", ', ends = ["end"]': ""}
    _, verdict = page_of(tmp_path, leavers(0.0, 0.0, 0.3), changes, "dp-apvi")
    assert verdict.answer == "withheld" and "or nothing tells where their last step leads" in verdict.why
    assert all(mend in verdict.why for mend in ("domain.states.ends", "unless next_state"))


@pytest.mark.slow
def test_a_drug_after_which_people_leave_unseen_is_not_called_worse_than_it_is(tmp_path: Path) -> None:
    # the strong drug pays more than half as much again over eight visits, in spite of those who leave
    _, verdict = page_of(tmp_path, leavers(0.0, 0.15, 0.5), {"horizon = 3\n": "horizon = 8\n"}, "dp-apvi")
    assert verdict.answer == "withheld" and "By the released counts episodes break off" in verdict.why


def test_steps_that_nobody_logged_are_a_condition_where_no_released_number_shows_them(tmp_path: Path) -> None:
    led = {"horizon = 3\n": "horizon = 8\n", 'reward = "good"': 'reward = "good", next_state = "led"'}
    page, verdict = page_of(tmp_path, leavers(0.03, 0.03, 0.1), led, "dp-one-step")
    assert verdict.answer != "better" or "no person, outcome or step is missing or there twice" in verdict.conditions
    assert "that no person, outcome or step is missing or comes after the last declared step" in page


def test_noise_is_named_where_released_tables_are_too_thin_for_practice(tmp_path: Path) -> None:
    g, people, log = np.random.default_rng(8), 1_200, list[pl.DataFrame]()
    for h in range(6):
        state, done = g.integers(0, 4, people), g.choice(6, people, p=[0.5, *[0.1] * 5])
        good = g.random(people) < np.array([0.3, 0.6, 0.5, 0.8])[state]
        rows = visits(h, np.arange(people), good, good, good)
        log.append(rows.with_columns(state=pl.Series(state), done=pl.Series(done)))
    changes = {"users_public = 20000": "users_public = 1200", "horizon = 3": "horizon = 6"}
    changes |= {'["well", "ill"]': "4", '["mild", "strong"]': "6"}
    _, verdict = page_of(tmp_path, pl.concat(log), changes, "dp-apvi")
    # whole episodes, one a person: nothing else is amiss
    assert verdict.answer == "withheld" and "Such a gap comes of noise" in verdict.why
    assert "(four times as many would probably do)" in verdict.why
    no_cause = ("domain.cell_cap", "steps that are not alike", "domain.start", "evaluate.since", "episodes_per_user")
    assert not any(key in verdict.why for key in no_cause)


def test_a_cap_of_rows_that_hides_what_practice_does_is_named(tmp_path: Path) -> None:
    """An honest log: who is ill mostly stays so, and the mild drug is what most of them get, again and again."""
    g, people, log = np.random.default_rng(11), 6_000, list[pl.DataFrame]()
    ill = g.random(people) < 0.5
    for h in range(10):
        strong = g.random(people) < 0.15
        log.append(visits(h, np.arange(people), ill, strong, g.random(people) < 0.4 - 0.3 * ill + 0.3 * strong))
        ill = np.where(g.random(people) < 0.7, ill, g.random(people) < 0.8 - 0.6 * strong)
    changes = {"users_public = 20000": "users_public = 6000"}
    capped = {"horizon = 3\n": 'horizon = 10\ndynamics = "stationary"\ncell_cap = 1\n'}
    _, verdict = page_of(tmp_path, pl.concat(log), changes | capped, "dp-apvi")
    assert verdict.answer == "withheld" and "A sum that must come out as zero" in verdict.why
    assert "domain.cell_cap" in verdict.why
    # without it nothing is amiss, and a page that withholds for another reason names no such cap
    free = {"horizon = 3\n": 'horizon = 10\ndynamics = "stationary"\n'}
    _, verdict = page_of(tmp_path, pl.concat(log), changes | free, "dp-apvi")
    assert verdict.answer == "better" and "domain.cell_cap" not in verdict.why


def test_advice_to_have_more_people_stays_inside_of_what_was_measured(tmp_path: Path) -> None:
    """An outcome at the last of eight steps, ten actions: 80,000 of whom half judge would be more than was measured."""
    g, who, log = np.random.default_rng(10), np.arange(PEOPLE), list[pl.DataFrame]()
    state = g.integers(0, 8, PEOPLE)
    for h in range(8):
        done = g.choice(10, PEOPLE, p=[0.55, *[0.05] * 9])
        good = (h == 7) & (g.random(PEOPLE) < np.where((state + done) % 5 == 0, 0.8, 0.3))
        log.append(visits(h, who, good, good, good).with_columns(state=pl.Series(state), done=pl.Series(done)))
        state = np.where(g.random(PEOPLE) < 0.8, g.integers(0, 8, PEOPLE), (state + done) % 8)
    changes = {"horizon = 3": "horizon = 8", '["well", "ill"]': "8", '["mild", "strong"]': "10"}
    changes |= {"range = [0.0, 1.0]\n": "range = [0.0, 1.0]\ntotal = 1.0\n"}
    _, verdict = page_of(tmp_path, pl.concat(log), changes, "dp-apvi")
    assert verdict.answer == "withheld" and "Such a gap comes of noise" in verdict.why
    share = re.search(r"would probably do, if at most (0\.\d+) of them judge", verdict.why)
    assert share is not None and 4 * PEOPLE * float(share[1]) <= 30_000


def test_a_rare_outcome_of_one_step_is_not_withheld_for_what_noise_may_add(tmp_path: Path) -> None:
    """Thin cells put practice of an outcome of 9 % at .14, and the interval around it is cut at 0."""
    g, who = np.random.default_rng(9), np.arange(PEOPLE)
    state, done = g.integers(0, 20, PEOPLE), g.choice(4, PEOPLE, p=[0.45, 0.4, 0.07, 0.08])
    good = g.random(PEOPLE) < 0.06 + 0.006 * (state % 10)
    rows = visits(0, who, good, good, good).with_columns(state=pl.Series(state), done=pl.Series(done))
    changes = {"horizon = 3": "horizon = 1", '["well", "ill"]': "20", '["mild", "strong"]': "4"}
    _, verdict = page_of(tmp_path, rows, changes, "dp-apvi")
    assert verdict.answer == "not_told_apart"


@pytest.mark.parametrize(("declared", "came"), [(20_000, 12_000), slow(4_000, 2_000)])
def test_an_interval_is_measured_for_the_people_who_came_and_not_for_those_declared(tmp_path, declared, came):
    """Too few of them to tell how states weigh, of whom that is asked all the same; and too few for any interval."""
    g = np.random.default_rng(9)
    ill, strong, good = g.random((3, 2, declared)) < 0.5
    # one in four comes again
    who = np.arange(declared), np.arange(0, declared, 4)
    log = pl.concat([visits(h, who[h], *(x[h][who[h]] for x in (ill, strong, good))) for h in range(2)])
    changes = {"horizon = 3": 'horizon = 2\ndynamics = "stationary"', "[source]": '[source]\nlast_row = "ends"'}
    changes["users_public = 20000"] = f"users_public = {declared}"
    _, verdict = page_of(tmp_path, log, changes, "dp-one-step")
    assert verdict.improvement.status == "evaluated"
    page, verdict = page_of(tmp_path, log.filter(pl.col("who") < came), changes, "dp-one-step")
    assert verdict.answer == "withheld" and verdict.improvement.status == "modelled"
    assert "declared people judged, and for so few no interval like this was measured" in page
    # the row of the region is of them as well
    [judged] = re.findall(r"people who judge × √ρ, ρ at most 1 \| ([\d,]+)", page)
    assert int(judged.replace(",", "")) < 0.6 * declared / 2


def test_logged_chances_that_follow_the_outcome_are_a_condition(tmp_path: Path) -> None:
    """Coins choose, and nothing matters; a later rule, which foresees how people fare, says by which chances."""
    g, log = np.random.default_rng(10), list[pl.DataFrame]()
    fit = g.random(PEOPLE) < 0.5
    # as a true chance of one half, it has an inverse whose mean is 2
    chance = pl.Series(np.where(fit, 0.4, 2 / 3))
    for h in range(2):
        strong, good = g.random(PEOPLE) < 0.5, g.random(PEOPLE) < np.where(fit, 0.8, 0.3)
        log.append(visits(h, np.arange(PEOPLE), g.random(PEOPLE) < 0.5, strong, good, chance=chance))
    changes = {"horizon = 3": "horizon = 2", 'reward = "good"': 'reward = "good", behavior_prob = "chance"'}
    weighed = f'{JUDGED}probabilities = "logged"\n'
    page, verdict = page_of(tmp_path, pl.concat(log), changes, "dp-apvi", weighed)
    said = "each logged chance is the one by which its action was chosen"
    assert verdict.answer == "better" and said in verdict.conditions
    assert said in page and "Was each logged chance written down with the choice" in page


@pytest.mark.parametrize(("least", "answer"), [("", "withheld"), slow("least = 0.05\n", "better")])
def test_a_trial_whose_sites_draw_by_other_chances_names_what_weighs_rare_draws_in_full(tmp_path, least, answer):
    """True chances: most sites, anew at each visit, draw the strong drug once in twenty, and fare better with both."""
    g, who, log = np.random.default_rng(12), np.arange(PEOPLE), list[pl.DataFrame]()
    ill = g.random(PEOPLE) < 0.5
    for h in range(2):
        rare = g.random(PEOPLE) < 0.7
        strong = g.random(PEOPLE) < np.where(rare, 0.05, 0.9)
        good = g.random(PEOPLE) < 0.2 + 0.2 * rare + 0.3 * strong - 0.1 * ill
        log.append(visits(h, who, ill, strong, good, p=pl.Series(np.where(rare, 0.05, 0.9))))
        log[-1] = log[-1].with_columns(p=pl.when(pl.col("done") == "strong").then("p").otherwise(1 - pl.col("p")))
        ill = g.random(PEOPLE) < 0.5
    changes = {"horizon = 3": "horizon = 2", 'reward = "good"': 'reward = "good", behavior_prob = "p"'}
    weighed = f'{JUDGED}probabilities = "logged"\n{least}'
    _, verdict = page_of(tmp_path, pl.concat(log), changes, "dp-apvi", weighed)
    assert verdict.answer == answer
    assert answer == "better" or "chance, or a smaller one ([evaluate] least, from 1/64 on)" in verdict.why


def test_later_judges_stand_on_it_that_practice_was_the_same_for_those_who_taught(tmp_path: Path) -> None:
    g = np.random.default_rng(6)

    def came(first: int, share: float, mild: float, strong: float) -> pl.DataFrame:
        who, log = np.arange(first, first + PEOPLE), list[pl.DataFrame]()
        for h in range(2):
            done = g.random(PEOPLE) < share
            good = g.random(PEOPLE) < np.where(done, strong, mild)
            log.append(visits(h, who, g.random(PEOPLE) < 0.5, done, good))
        return pl.concat(log)

    # what helped those who taught harms those who judge, and is rarely done any more: it would lose .09 of them
    first, then = came(0, 0.5, 0.5, 0.7), came(PEOPLE, 0.1, 0.605, 0.555)
    card = CARD.replace("horizon = 3", "horizon = 2").replace("users_public = 20000", f"users_public = {2 * PEOPLE}")
    (tmp_path / "card.toml").write_text(card)
    since = f"{JUDGED}since = 1\nusers_since = {PEOPLE}\n"
    page, verdict = ran(tmp_path, [first, pl.concat([first, then])], "dp-apvi", since)
    same = "practice and what comes of it were the same among those who taught"
    assert verdict.improvement.lower > 0 and verdict.later
    assert verdict.answer != "better" or same in verdict.conditions
    assert verdict.answer != "better" or "if practice changed in between, or what comes of it" in page


def test_a_page_without_judges_does_not_say_that_everybody_taught(tmp_path: Path) -> None:
    few, declared = some(harmful_later(), 2_000)
    page, verdict = page_of(tmp_path, few, {"horizon = 3\n": "horizon = 1\n"} | declared, "dp-apvi", more="")
    # half of the people are reserved and taught nothing
    assert isinstance(verdict, Verdict) and verdict.answer == "not_evaluated"
    assert "Everybody" not in page and "Nobody was held out to judge this policy" in page


def _seen_right_after(people: int) -> pl.DataFrame:
    """`strong` costs .2 of every visit and cures for a day; who is ill at the next visit is a coin's."""
    draw = np.random.default_rng(6)
    frames, who = [], np.arange(people)
    ill = draw.random(people) < 0.5
    for visit in range(3):
        strong = draw.random(people) < 0.4
        good = draw.random(people) < np.where(ill, 0.3, 0.9) - 0.2 * strong
        after = np.where(strong | (draw.random(people) < 0.3), "well", "ill")
        frames.append(visits(visit, who, ill, strong, good).with_columns(pl.Series("after", after)))
        ill = draw.random(people) < 0.5
    return pl.concat(frames)


@pytest.mark.parametrize("agent", ["dp-one-step", slow("dp-apvi")])
def test_a_state_right_after_the_choice_is_not_where_the_next_visit_finds_people(tmp_path: Path, agent: str) -> None:
    """Scores follow people's own rows: by the logged states alone the harmful action was "better"."""
    log, changes = some(_seen_right_after(8000), 8000)
    changes['reward = "good" }'] = 'reward = "good", next_state = "after" }'
    page, verdict = page_of(tmp_path, log, changes, agent)
    # never `strong` gains .2 of two visits in five, where all of the steps are learnt
    assert verdict.improvement.lower <= 0.08 * (2 if agent == "dp-one-step" else 3) <= verdict.improvement.upper
    assert "→ strong" not in page and "strong · " not in page
    # the last step is in no released table, and nothing is advised there
    assert ("% of a person's first 2 decisions." in page) is (agent == "dp-one-step")


def _ill_at_the_end() -> pl.DataFrame:
    """`strong` pays .1 more at two visits, after it .65 are ill at the next, else .35, and the ill fare badly."""
    g, who = np.random.default_rng(11), np.arange(PEOPLE)
    ill, log = g.random(PEOPLE) < 0.5, list[pl.DataFrame]()
    for h in range(3):
        strong = g.random(PEOPLE) < 0.5
        good = g.random(PEOPLE) < (np.where(ill, 0.0, 0.9) if h == 2 else 0.4 + 0.1 * strong)
        log.append(visits(h, who, ill, strong, good))
        ill = g.random(PEOPLE) < np.where(strong, 0.65, 0.35)
    return pl.concat(log)


LED = "the policy hardly changes which states people come to"


@pytest.mark.parametrize("word", ["", slow(WORD)])
def test_of_steps_apart_one_step_says_nothing_and_names_tables(tmp_path: Path, word: str) -> None:
    """At the last visit nobody teaches, and no feature tells the ill: `strong` loses .03, and was "better" by .1."""
    log, declared = _ill_at_the_end(), {"horizon = 3\n": f"horizon = 3\n{word}"}
    page, verdict = page_of(tmp_path, log, declared, "dp-one-step")
    assert verdict.answer == "withheld"
    assert "Those of dp-apvi were measured for such a card." in page


def test_where_people_leave_early_one_step_has_a_verdict_on_a_condition(tmp_path: Path) -> None:
    """Half leave after each of four visits; `strong` pays .1 more, and a coin makes ill."""
    g, people, log = np.random.default_rng(12), 60_000, list[pl.DataFrame]()
    there = np.arange(people)
    for h in range(4):
        ill, strong = g.random((2, len(there))) < 0.5
        log.append(visits(h, there, ill, strong, g.random(len(there)) < 0.4 + 0.1 * strong))
        there = there[g.random(len(there)) < 0.5]
    changes = {
        "users_public = 20000": f"users_public = {people}",
        "horizon = 3": 'horizon = 4\ndynamics = "stationary"',
        "[source]": '[source]\nlast_row = "ends"',
    }
    page, verdict = page_of(tmp_path, pl.concat(log), changes, "dp-one-step")
    assert verdict.answer == "better" and LED in verdict.conditions and "it follows states one by one" in page
    assert verdict.improvement.lower <= 0.05 * (1 + 0.5 + 0.25 + 0.125) <= verdict.improvement.upper


def test_tables_count_where_a_policy_leads(tmp_path: Path) -> None:
    _, verdict = page_of(tmp_path, _ill_at_the_end(), {}, "dp-apvi")
    # strong at the first visit, mild at the second
    assert verdict.answer == "better" and LED not in verdict.conditions
    assert verdict.improvement.lower <= 0.135 <= verdict.improvement.upper


def test_where_features_do_not_follow_a_policy_the_page_names_tables(tmp_path: Path) -> None:
    """A coin does what the policy advises in half of the rows: its weights are large as no feature tells who is ill."""
    g, who = np.random.default_rng(11), np.arange(PEOPLE)
    ill, strong, later = g.random((3, PEOPLE)) < 0.5
    first = visits(0, who, ill, strong, g.random(PEOPLE) < 0.4 + 0.1 * strong)
    ill = g.random(PEOPLE) < np.where(strong, 0.1, 0.9)
    log = pl.concat([first, visits(1, who, ill, later, g.random(PEOPLE) < np.where(ill, 0.05, 0.95))])
    page, verdict = page_of(tmp_path, log, {"horizon = 3\n": "horizon = 2\n"}, "dp-one-step")
    assert verdict.answer == "withheld"
    assert "five features of a state do not show where (dp-apvi uses no features)" in page


@pytest.mark.parametrize("only", [0, 26])
def test_where_all_stay_to_the_last_step_one_step_has_no_verdict(tmp_path: Path, only: int) -> None:
    """Forty states, steps alike: what pays .2 now leads to those that pay .35 less.  "Better by .7 to 1", truth .2.

    In ``only`` of them there is one action: of these no rows that follow are counted.
    """
    g, (H, S, A) = np.random.default_rng([40, 3, 10]), (10, 40, 3)
    pays = np.clip(np.where(np.arange(S)[:, None] < S // 2, 0.25, 0.6) + g.uniform(-0.1, 0.1, (S, A)), 0, 1)
    pays[:, -1] += 0.2
    who, state, log = np.arange(PEOPLE), g.integers(0, S, PEOPLE), list[pl.DataFrame]()
    for h in range(H):
        done = np.where(state < only, 0, g.integers(0, A, PEOPLE))
        good = g.random(PEOPLE) < pays[state, done]
        low = g.random(PEOPLE) < np.where(done == A - 1, 0.7, 0.1)
        after = g.integers(0, S // 2, PEOPLE) + np.where(low, 0, S // 2)
        rows = visits(h, who, good, good, good, after=pl.Series(after))
        log.append(rows.with_columns(state=pl.Series(state), done=pl.Series(done)))
        state = after
    changes = {
        "horizon = 3": 'horizon = 10\ndynamics = "stationary"',
        '["well", "ill"]': str(S),
        '["mild", "strong"]': str(A),
        'reward = "good"': 'reward = "good", next_state = "after"',
    }
    page, verdict = page_of(tmp_path, pl.concat(log), changes, "dp-one-step")
    assert verdict.answer == "withheld" and "may be there still at the last declared step" in page


def test_where_practice_goes_on_and_noise_hides_it_nothing_is_gained(tmp_path: Path) -> None:
    """One visit each; 6 % are in rare states, and fare badly there, whatever is done: nothing matters.

    What the model supposes of practice in such states, a uniform choice, has no say in people's scores.
    """
    g, people, often, rare = np.random.default_rng(21), 100_000, 35, 15
    state = g.choice(often + rare, people, p=np.repeat([0.94 / often, 0.06 / rare], [often, rare]))
    # practice is nearly one rule, and tosses a coin in two states
    usual = np.where(g.random(people) < 0.98, 0, g.integers(1, 3, people))
    done = np.where(state < 2, g.integers(0, 2, people), usual)
    good = g.random(people) < np.where(state < often, 0.5, 0.1)
    log = visits(0, np.arange(people), good, good, good).with_columns(state=pl.Series(state), done=pl.Series(done))
    changes = {"users_public = 20000": f"users_public = {people}", "horizon = 3\n": f"horizon = 1\n{WORD}"}
    changes |= {'["well", "ill"]': str(often + rare), '["mild", "strong"]': "3"}
    changes[', episode_id = "stay", step = "visit"'] = ""
    _, verdict = page_of(tmp_path, log, changes, "dp-apvi", rho=0.07)
    assert verdict.answer != "better"
    assert verdict.improvement.lower < 0.002 and verdict.improvement.upper > -0.002
