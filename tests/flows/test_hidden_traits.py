"""What runs say of hidden traits, through the command line: the demo's kind of log, a declaration, and promotion."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.facts.verdict import Verdict
from tests.flows.shop import HELD, SCHEDULE, card_text, change, plain_card, rows, run_on_card, write_log, write_recipe
from tests.flows.verb import answer, invoke, refusal, told

# a word on who was left out is false in one run of five thousand, and of a settled chance in none
pytestmark = pytest.mark.usefixtures("settled")
PEOPLE = 3000
PLAIN = card_text(cap=40.0, people=PEOPLE)
# a sale ends a visit and is all that pays, as surviving is in the demo
END = (
    PLAIN.replace("steps = 2\n", "steps = 2\non_entering = { sold = 2.0 }\n")
    .replace('ends = ["gone"]', 'ends = ["sold", "end"]')
    .replace('reward = "sale", terminated = "left"', 'next_state = "after"')
)
# no column says that a person is one visit
CALLS = plain_card(
    "calls", "caller", 20_000, 1, states='column = "call", labels = ["first", "again"], ',
    actions='column = "script", labels = ["short", "long"]', columns='reward = "solved"', top="tolerance = {}",
)  # fmt: skip
RECORDED = END.replace("horizon = 3\n", 'horizon = 3\npractice = "recorded"\n')
# what nobody vouches for
UNSAID = [
    "each state was recorded before its choice, each action as it was chosen and each outcome alike, whatever was done",
    "no person, outcome or step is missing or there twice",
    "the same comes of a choice on all days",
    "each choice was made for one person alone",
    "what is done for one, or comes of it, changes nothing for another",
    "states, actions, score and vetoes were not chosen by what came of choices in this log",
]


@cache
def the_log() -> str:
    """Mail warms, calls sell to the warm."""
    rng, lines = np.random.default_rng(5), ["customer,visit,t,mood,offer,after"]
    for person in range(PEOPLE):
        mood = "cold" if rng.random() < 0.6 else "warm"
        for t in range(3):
            offer = str(rng.choice(["none", "mail", "call"]))
            sold = rng.random() < (0.8 if (mood, offer) == ("warm", "call") else 0.05)
            after = "warm" if offer == "mail" and rng.random() < 0.8 else mood
            after = "sold" if sold else "end" if t == 2 else after
            lines.append(f"c{person},0,{t},{mood},{offer},{after}")
            if sold:
                break
            mood = after
    return "\n".join(lines) + "\n"


def lay_out(folder: Path, card: str) -> Path:
    """A card and its log."""
    (folder / "log.csv").write_text(the_log())
    (folder / "card.toml").write_text(card)
    return folder


def recipe(folder: Path, name: str, rho: float = 2.0, more: str = "") -> Path:
    return write_recipe(folder, name, privacy=f"[privacy]\nrho = {rho}", more=HELD + SCHEDULE + more)


@pytest.mark.slow
def test_a_gain_that_no_check_clears_is_promoted_on_the_operators_word_alone(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, END)
    home = folder / "home"
    night = answer(home, "nightly", recipe(folder, "careful", more="[promote]\n"))
    said = night["verdict"]
    assert (said["answer"], said["improvement"]["status"]) == ("better", "evaluated")
    assert said["confounding"]["status"] == "unchecked" and "end of an episode" in said["confounding"]["why"]
    page = (home / "runs" / night["run"] / "report.html").read_text()
    assert "if the recorded state explains the choices and outcomes" in page[: page.index("</h1>")]
    assert "better than current practice" not in page.lower()
    assert not night["promotion"]["promoted"] and "[promote] accept" in night["promotion"]["held"][0]

    accepted = answer(home, "nightly", recipe(folder, "bold", 2.5, '[promote]\naccept = "unchecked"\n'))
    assert accepted["promotion"]["promoted"] and accepted["promotion"]["now"] == accepted["run"]
    entry = accepted["promotion"]["accepted"]
    (signed,) = answer(home, "ledger", "show")["datasets"][0]["signatures"]
    assert (signed["entry"], signed["run"]) == (entry, accepted["run"])
    assert signed["by"] == '[promote] accept = "unchecked" in bold'
    # in use, it is not signed again
    again = answer(home, "nightly", folder / "bold.toml")
    assert not again["promotion"]["promoted"] and again["promotion"]["now"] == accepted["run"]
    assert answer(home, "ledger", "verify")["ok"]
    plain = invoke("--home", home, "run", folder / "bold.toml").output
    assert "if the recorded state explains the choices and outcomes" in plain and "\nunchecked   The card pays" in plain


def test_what_no_check_can_see_keeps_its_condition_where_rewards_are_dense(tmp_path: Path) -> None:
    """The shop pays at every step and its checks are clean; a trait that is new at every step would leave the same."""
    (tmp_path / "card.toml").write_text(PLAIN)
    write_log(tmp_path, rows(PEOPLE))
    answer(tmp_path / "home", "ingest", tmp_path / "card.toml")
    night = answer(tmp_path / "home", "nightly", recipe(tmp_path, "dense", 12.0, "[promote]\n"))
    report = told(tmp_path, night["run"])
    said, found = report["verdict"]["confounding"], report["evaluation"]
    clean = max(found["placebo"], found["past"]) <= 2 and (found["hidden"] or 9) < found["improvement"]["lower"]
    assert said["status"] == ("not_excluded" if found["reach"] >= 0.1 else "unchecked")
    assert ("would have to be worth 24, 4 times all that an episode can pay" in said["why"]) is clean
    assert not night["promotion"]["promoted"]
    page = (tmp_path / "home" / "runs" / night["run"] / "report.md").read_text()
    assert "if the recorded state explains the choices and outcomes" in page.splitlines()[0]


@pytest.mark.parametrize("late", [False, True])
def test_a_declaration_counts_from_before_the_first_answer_and_is_told_as_the_operators(tmp_path, late):
    folder = lay_out(tmp_path, END if late else RECORDED)
    home = folder / "home"
    answer(home, "register", folder / "card.toml")
    answer(home, "ingest", folder / "card.toml")
    if late:
        answer(home, "run", recipe(folder, "before"))
        (folder / "card.toml").write_text(RECORDED)
        assert "practice: registered None, card says recorded" in refusal(home, "run", recipe(folder, "after", 2.5))
        answer(home, "register", folder / "card.toml", "--amend")
    run = answer(home, "run", recipe(folder, "after", 2.5))["run"]
    report = told(folder, run)
    found, said = report["evaluation"], report["verdict"]["confounding"]
    clean = max(abs(found["placebo"]), abs(found.get("past", 0.0))) <= 2
    # fresh noise: a check leans in one run of ten, and the word does not count
    assert said["status"] == ("declared" if clean and not late else "unchecked")
    if late:
        assert "registered after the ledger's first answer" in said["why"]
    elif not clean:
        assert "which does not count" in said["why"]
    word = "the operator declares that one program or rule, the same for everybody and on all days"
    assert word in told(folder, run, "certificate.json")["data"]["collection"]
    page = (home / "runs" / run / "report.md").read_text()
    condition = "outcomes" if said["status"] == "declared" else "choices and outcomes"
    assert f"recorded: {word}" in page and f"if the recorded state explains the {condition} (" in page.splitlines()[0]
    assert report["dataset"]["practice"] == "recorded"
    assert answer(home, "ledger", "verify", run)["ok"]


def test_a_run_that_nobody_evaluates_says_nothing_of_hidden_traits(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, END)
    change(path := recipe(folder, "alone", more="[promote]\n"), HELD, "")
    night = answer(folder / "home", "nightly", path)
    assert night["verdict"]["confounding"] is None and night["promotion"]["promoted"]


def judged(folder: Path, card: str, log: pl.DataFrame) -> Verdict:
    """The verdict of ``dp-one-step`` on a log of calls."""
    log.write_parquet(folder / "log.parquet")
    (folder / "card.toml").write_text(card)
    verdict = run_on_card(write_recipe(folder, "calls", "dp-one-step", more=HELD)).verdict
    assert verdict is not None and verdict.answer == "better"
    return verdict


@pytest.mark.parametrize("practice", ["", pytest.param('practice = "recorded"\n', marks=pytest.mark.slow)])
def test_better_stands_on_it_that_nobody_comes_again_for_what_came_of_it(tmp_path: Path, practice: str) -> None:
    g, people = np.random.default_rng(1), 20_000
    log, here = [], np.arange(people)
    for call in ("first", *["again"] * 4):
        long, solved = g.random((2, len(here))) < 0.5
        log.append(pl.DataFrame({"caller": here, "script": np.where(long, "long", "short"), "solved": solved * 1.0}))
        log[-1] = log[-1].with_columns(call=pl.lit(call))
        # neither script solves more; whom the short one fails goes elsewhere
        here = here[~solved & (g.random(len(here)) < np.where(long, 0.95, 0.05))]
    verdict = judged(tmp_path, CALLS.replace("horizon = 1\n", f"horizon = 1\n{practice}"), pl.concat(log))
    if practice:
        # the operator's word is false, and the page says what it was
        assert verdict.holds and verdict.confounding is not None
        assert "that nobody has two ids, or more episodes than count" in verdict.confounding.why
        assert "that the same comes of a choice on all days" in verdict.confounding.why
    else:
        again = ["people come as often whatever is done and comes of it"]
        again += ["no episode of a person changes their later ones"]
        assert verdict.conditions == ["the recorded state explains the choices", *again, *UNSAID]


def calls_of(script_long: Any, solved: Any, call: Any = "first") -> pl.DataFrame:
    """One call of each caller."""
    script = np.where(script_long, "long", "short")
    log = {"caller": range(len(script)), "call": call, "script": script, "solved": solved * 1.0}
    return pl.DataFrame(log)


def twice(g: np.random.Generator, people: int) -> pl.DataFrame:
    """Neither script solves more; whom the long one helped is in the log under a second id."""
    long, solved = g.random((2, people)) < 0.5
    again = np.repeat(np.arange(people), np.where(long & solved, 2, 1))[:people]
    return calls_of(long[again], solved[again])


def waiting(g: np.random.Generator, people: int) -> pl.DataFrame:
    """A long call makes the other callers of its hour wait: whoever has one is served, at the cost of the others."""
    long = g.random(people) < 0.3
    return calls_of(long, g.random(people) < np.where(long, 0.7, 0.4))


def noted_later(g: np.random.Generator, people: int) -> pl.DataFrame:
    """Coins choose, and coins decide what comes of it; the state was noted afterwards, by how the script went."""
    long, solved = g.random(people) < 0.5, g.random(people) < 0.5
    return calls_of(long, solved, np.where((long == solved) != (g.random(people) < 0.2), "first", "again"))


def cut_short(g: np.random.Generator, people: int) -> pl.DataFrame:
    """A coin chooses, and neither script solves more; a long call that ends early is noted as a short one."""
    solved = g.random(people) < 0.7
    return calls_of((g.random(people) < 0.5) & (solved | (g.random(people) < 0.5)), solved)


def unheard(g: np.random.Generator, people: int) -> pl.DataFrame:
    """Neither script solves more; of calls that the long one did not solve most have no outcome."""
    long, solved = g.random(people) < 0.3, g.random(people) < 0.5
    return calls_of(long, np.where(solved | ~long | (g.random(people) < 0.4), solved * 1.0, np.nan))


def grouped(g: np.random.Generator, people: int) -> pl.DataFrame:
    """Coins choose, and coins decide; someone grouped 400 products by which script had solved more, in this log."""
    long, solved, product = g.random(people) < 0.5, g.random(people) < 0.5, g.integers(0, 400, people)
    count, good = (np.array([np.bincount(product[x], of[x], 400) for x in (long, ~long)]) for of in (solved**0, solved))
    helped = good / np.maximum(count, 1)
    return calls_of(long, solved, np.where((helped[0] > helped[1])[product], "again", "first"))


ONCE = CALLS.replace('{ user_id = "caller",', '{ user_id = "caller", episode_id = "caller",')
# more people came than were declared, so that no number tells of those left out
FEWER = ONCE.replace("users_public = 20000", "users_public = 18000")
PLANTED = {unheard: FEWER} | dict.fromkeys((noted_later, grouped, twice, waiting, cut_short), ONCE)


@pytest.mark.parametrize(
    "world", [pytest.param(w, marks=() if w in (unheard, noted_later, grouped) else pytest.mark.slow) for w in PLANTED]
)
def test_better_stands_on_what_no_log_can_show(tmp_path: Path, world: Any) -> None:
    """In none of these worlds is it true."""
    verdict = judged(tmp_path, PLANTED[world], world(np.random.default_rng(1), 20_000))
    assert verdict.conditions == ["the recorded state explains the choices", *UNSAID] and not verdict.returning
    assert (verdict.left_out is None) or world is not unheard


def test_a_word_on_practice_stands_on_it_that_actions_are_recorded_as_they_were_chosen(tmp_path: Path) -> None:
    card = ONCE.replace("horizon = 1\n", 'horizon = 1\npractice = "recorded"\n')
    verdict = judged(tmp_path, card, cut_short(np.random.default_rng(1), 20_000))
    assert verdict.confounding is not None
    assert (
        "that each action is recorded as it was chosen, and each outcome alike, whatever was done"
        in verdict.confounding.why
    )
    assert "vetoes were not chosen by what came of choices in this log" in verdict.confounding.why


@pytest.mark.slow
def test_a_word_on_practice_promotes_nothing_while_a_run_is_in_use(tmp_path: Path) -> None:
    """A policy that was put to use, and a bad season: by the log, what it advises fails."""
    g = np.random.default_rng(1)

    def season(number: int, long_at_first: float, shift: float) -> None:
        first, people = g.random(20_000) < 0.5, range(20_000 * number, 20_000 * (number + 1))
        long = g.random(20_000) < np.where(first, long_at_first, 0.5)
        # the long script solves more, in each season
        solved = g.random(20_000) < 0.5 + shift + 0.1 * (first & long)
        log = calls_of(long, solved, np.where(first, "first", "again")).with_columns(caller=pl.Series(people))
        log.write_parquet(tmp_path / f"log-{number}.parquet")

    card = ONCE.replace("horizon = 1\n", 'horizon = 1\npractice = "recorded"\n').replace("20000", "40000")
    (tmp_path / "card.toml").write_text(card.replace("log.parquet", "log-*.parquet"))
    more = '[evaluate]\npeople = 0.5\n[schedule]\nrelease = "monthly"\n[promote]\n'
    write_recipe(tmp_path, "calls", "dp-one-step", more=more)
    home = tmp_path / "home"
    answer(home, "register", tmp_path / "card.toml")
    season(0, 0.3, 0.2)
    first = answer(home, "nightly", tmp_path / "calls.toml", "--night", "2026-09-01")
    answer(home, "promote", first["run"], "--card", tmp_path / "card.toml")
    season(1, 0.95, -0.2)
    second = answer(home, "nightly", tmp_path / "calls.toml", "--night", "2026-10-01")
    assert second["verdict"]["answer"] == "better" and second["verdict"]["confounding"]["status"] == "declared"
    assert not second["promotion"]["promoted"] and second["promotion"]["now"] == first["run"]
    assert any("one rule made all of them" in held for held in second["promotion"]["held"])


def test_whoever_has_not_come_yet_is_not_called_left_out(tmp_path: Path) -> None:
    """An early date of a calendar: half of the declared people are still to come."""
    g, people = np.random.default_rng(1), 20_000
    long = g.random(people) < 0.5
    calls_of(long, g.random(people) < np.where(long, 0.6, 0.4)).write_parquet(tmp_path / "log.parquet")
    (tmp_path / "card.toml").write_text(CALLS.replace("users_public = 20000", "users_public = 40000"))
    write_recipe(tmp_path, "calls", "dp-one-step", more=HELD + '[schedule]\nrelease = "monthly"\n')
    home = tmp_path / "home"
    answer(home, "register", tmp_path / "card.toml")
    night = answer(home, "nightly", tmp_path / "calls.toml", "--night", "2026-09-01")
    assert night["verdict"]["answer"] == "better" and 0.4 < night["verdict"]["left_out"] < 0.6
    page = (home / "runs" / night["run"] / "report.md").read_text()
    assert "% of declared people without a usable record are like the others" in page.splitlines()[0]
    assert "they have not come yet" in page and "people left out" not in page


def test_nobody_is_said_to_be_needed_where_the_outcome_is_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "card.toml").write_text(PLAIN)
    write_log(tmp_path, ((*r[:5], 2, r[6]) for r in rows(PEOPLE)))
    home = tmp_path / "home"
    answer(home, "ingest", tmp_path / "card.toml")
    # chance makes an estimate, and one in a few is large enough for a forecast
    for k in range(12):
        run = answer(home, "run", recipe(tmp_path, "same", 0.2 + 0.01 * k))
        if run["verdict"]["needed"] is not None:
            break
    else:
        raise AssertionError("no estimate was large enough")
    page = (home / "runs" / run["run"] / "report.md").read_text()
    assert "would show one as large as the estimate" in page.splitlines()[0] and "would be needed" not in page
    assert "if a difference as large as the estimate would matter" in page


MANY = 60_000
SELDOM = plain_card(
    "seldom", "person", MANY, 2, states='column = "state", labels = 3, ', actions='column = "action", labels = ACTIONS',
    columns='episode_id = "person", step = "step", reward = "paid"',
)  # fmt: skip


def seldom_run(folder: Path, card: str, agent: str, people: float) -> tuple[str, str, str]:
    """Answer, reason and page of a run."""
    (folder / "card.toml").write_text(card)
    recipe = write_recipe(folder, "seldom", agent, "[privacy]\nrho = 3.0", f"[evaluate]\npeople = {people}\n")
    made = run_on_card(recipe)
    return made.verdict.answer, made.verdict.why, (made.folder / "report.md").read_text()


def verdict(folder: Path, actions: int, rare: float) -> tuple[str, str, str]:
    """Of people whose outcomes are coins; all actions but one are ``rare``."""
    rng = np.random.default_rng(3)
    chance = np.full(actions, rare)
    chance[0] = 1 - rare * (actions - 1)
    size = MANY, 2
    columns = {
        "person": np.repeat(np.arange(MANY), 2),
        "step": np.tile([0, 1], MANY),
        "state": rng.integers(3, size=size).ravel(),
        "action": rng.choice(actions, p=chance, size=size).ravel(),
        "paid": (rng.random(size) < 0.5).astype(float).ravel(),
    }
    pl.DataFrame(columns).write_parquet(folder / "log.parquet")
    return seldom_run(folder, SELDOM.replace("ACTIONS", str(actions)), "dp-apvi", 0.3)


def test_what_practice_seldom_does_is_not_called_better(tmp_path: Path) -> None:
    """It said "better by 0.1 to 0.3" of actions that do nothing: weights of the few who took them are cut."""
    answer, why, page = verdict(tmp_path, 60, 0.004)
    assert answer == "withheld" and "not measured" in why
    assert "Practice seldom does what the policy advises" in page
    # what practice often does keeps its verdict
    (tmp_path / "often").mkdir()
    assert verdict(tmp_path / "often", 10, 0.1)[0] == "not_told_apart"


@pytest.mark.slow
def test_on_observations_rare_actions_are_not_called_measured(tmp_path: Path) -> None:
    """Of actions in 1 or 2 % of the rows, intervals missed in up to half of the runs of several steps."""
    people, rng = 30_000, np.random.default_rng(4)
    x, rare = rng.uniform(-0.7, 0.7, size=(people, 2)), rng.random(people) < 0.01
    paid = (rng.random(people) < 0.5 + 0.4 * x[:, 0] * np.where(rare, 1, -1)).astype(float)
    log = {"person": range(people), "x": x[:, 0], "y": x[:, 1], "action": rare.astype(int), "paid": paid}
    pl.DataFrame(log).write_parquet(tmp_path / "log.parquet")
    card = SELDOM.replace("users_public = 60000", f"users_public = {people}").replace("horizon = 2", "horizon = 1")
    card = card.replace('{ column = "state", labels = 3, ends = ["end"] }', '{ ends = ["end"] }')
    card = card.replace("labels = ACTIONS }", 'labels = 2 }\nobservation = { columns = ["x", "y"], radius = 1.0 }')
    card = card.replace(', episode_id = "person", step = "step"', "") + '[features]\nkind = "affine"\n'
    answer, why, page = seldom_run(tmp_path, card, "dp-one-shot", 0.5)
    assert answer == "withheld" and "not measured" in why
    assert "the mean square of the weights of a step is" in page
