"""Nights without a server: what they cost, what they promote, when they alert."""

import json
import shutil
import stat
import sys
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from flows.jobs.nightly import alert
from pipeline.privacy.noise import SeededNoise
from reports.page import percent
from reticent import BudgetError, CardError, LogError, Store, load_recipe
from tests import jobs
from tests.flows.nights import stop_clock
from tests.flows.shop import SCHEDULE, add, change, lay_out, rows
from tests.flows.verb import refusal
from tests.jobs import check_night, home_at, ledger_of, page_of
from tests.learners.lq_shop import lay_out_plant

pytestmark = pytest.mark.usefixtures("unread")


@pytest.fixture
def home(tmp_path):
    return home_at(tmp_path / "home")


@pytest.fixture
def nightly_job(monkeypatch):
    """A night; every call is that of the next date."""
    dates = count(1)

    def job(recipe, *args, **more):
        stop_clock(monkeypatch, datetime(2026, 1, 1, 3, tzinfo=UTC) + timedelta(next(dates)))
        return jobs.nightly_job(str(recipe), *args, **more)

    return job


def with_tables(shop: Path, text: str, name: str = "private") -> str:
    add(recipe := shop / f"{name}.toml", text)
    return str(recipe)


def note_of(home) -> Path:
    """The operator's note of the one recipe."""
    return next((home.store / ".nights").glob("*.json"))


def spent(home) -> float:
    return float(ledger_of(home).account("shop").spent)


def test_a_night_releases_an_edition_of_its_own_and_a_second_run_on_its_date_costs_nothing(tmp_path, home, nightly_job):
    shop, said = lay_out(tmp_path / "shop"), []
    recipe = str(shop / "private.toml")
    first = nightly_job(recipe, home, say=said.append)
    assert first["night"] | {"charges": None} == {
        "recipe": "private", "dataset": "shop", "snapshot": 1, "due": "2026-01-02", "unchanged": False,
        "charged_rho": 1.0, "charges": None,
    }  # fmt: skip
    assert "stands" not in "".join(said)
    again = jobs.nightly_job(recipe, home, say=said.append)
    assert again["run"] == first["run"] and again["night"]["unchanged"] and again["night"]["charged_rho"] == 0
    assert spent(home) == 1.0 and "nothing was charged" in said[-1]
    second = nightly_job(recipe, home)
    assert second["run"] != first["run"] and second["night"]["snapshot"] == 2 and spent(home) == 2.0
    charges = [(c["snapshot"], c["committed"], c["total_rho"]) for c in second["night"]["charges"]]
    assert charges == [(1, True, 1.0), (2, True, 2.0)]


def test_a_night_that_would_pass_the_cap_charges_nothing(tmp_path, home, nightly_job):
    shop = lay_out(tmp_path / "shop", cap=1.5)
    nightly_job(shop / "private.toml", home)
    lay_out(shop, cap=1.5, log=rows(seed=1))
    with pytest.raises(BudgetError, match=r"left 0\.5"):
        nightly_job(shop / "private.toml", home)
    assert spent(home) == 1.0
    assert check_night(shop / "private.toml", home)["last"]["exit"] == 4


def test_a_real_lineage_without_registration_stops_a_night_before_its_log_is_read(tmp_path, home, nightly_job):
    shop = lay_out(tmp_path / "shop", kind="real")
    (shop / "log.csv").unlink()
    with pytest.raises(BudgetError, match="register"):
        nightly_job(shop / "private.toml", home)


def test_the_rule_promotes_holds_and_never_promotes_again_what_was_rolled_back(tmp_path, home, nightly_job):
    shop = lay_out(tmp_path / "shop", cap=100.0)
    recipe = with_tables(shop, "[promote]\nmost_changed = 1.0\n")
    first = nightly_job(recipe, home, noise=SeededNoise(0))
    assert first["promotion"]["promoted"] and (home.runs / "current").resolve().name == first["run"]
    lay_out(shop, cap=100.0, log=rows(seed=1))
    second = nightly_job(with_tables(shop, "[promote]\nlower_gain = 5.0\n"), home, noise=SeededNoise(1))
    assert not second["promotion"]["promoted"] and "rule asks for 5" in second["promotion"]["held"][0]
    assert second["promotion"]["now"] == first["run"] and second["promotion"]["changes"]["a"] == first["run"]
    lay_out(shop, cap=100.0, log=rows(seed=1))
    recipe = with_tables(shop, "[promote]\n")
    assert jobs.nightly_job(recipe, home)["promotion"]["now"] == second["run"]
    Store(home.root).roll_back()
    kept = jobs.nightly_job(recipe, home)["promotion"]
    assert kept["now"] == first["run"] and kept["held"] == ["it was rolled back before"]


def test_without_a_rule_nothing_is_promoted_and_the_rule_is_no_part_of_a_runs_name(tmp_path, home, nightly_job):
    shop = lay_out(tmp_path / "shop")
    plain = nightly_job(shop / "private.toml", home)
    assert plain["promotion"]["now"] is None and not (home.runs / "current").exists()
    ruled = nightly_job(with_tables(shop, "[promote]\n[watch]\nstale_days = 2\n"), home)
    assert ruled["run"] != plain["run"] and ruled["promotion"]["promoted"]
    shutil.copyfile(shop / "private.toml", tmp_path / "ruled.toml")
    lay_out(shop)
    again = jobs.nightly_job(str(shop / "private.toml"), home)
    assert again["run"] == ruled["run"] and again["night"]["unchanged"]
    rule = load_recipe(tmp_path / "ruled.toml").promote
    assert rule == type(rule)()


def test_a_recipe_has_a_pointer_of_its_own_where_it_says_so(tmp_path, home, nightly_job):
    shop = lay_out(tmp_path / "shop")
    run = nightly_job(with_tables(shop, '[promote]\npointer = "shop-now"\n'), home)["run"]
    assert (home.runs / "shop-now").resolve().name == run and not (home.runs / "current").exists()


def test_a_night_of_a_linear_controller_is_compared_by_its_gains(tmp_path, home, nightly_job):
    shop = lay_out_plant(tmp_path / "plant")
    for name in ("private", "asked", "wider"):
        with_tables(shop, SCHEDULE, name)
    first = nightly_job(with_tables(shop, "[promote]\n"), home)
    assert first["promotion"]["promoted"] and "snapshot 1" in page_of(first).markdown
    night = nightly_job(with_tables(shop, "[promote]\nmost_changed = 0.01\nlower_gain = 0.0\n", "asked"), home)
    assert night["promotion"]["now"] == first["run"]
    assert night["promotion"]["held"] == [
        "one of the two claims no interval, and the rule asks for a gain of the lower value",
        f"its gains moved by {percent(night['promotion']['changes']['gains']['change'])} of their norm, "
        "the rule allows 1 %",
    ]
    assert "of 8 gains differ" in page_of(night).markdown
    assert "rows" not in night["promotion"]["changes"]["gains"]
    assert nightly_job(with_tables(shop, "[promote]\nmost_changed = 1.0\n", "wider"), home)["promotion"]["promoted"]


@pytest.fixture
def heard(tmp_path, monkeypatch):
    """A command that writes its last word down."""
    file = tmp_path / "heard"
    code = "import sys, pathlib; pathlib.Path(sys.argv[1]).open('a').write(sys.argv[2] + chr(10))"
    monkeypatch.setenv("RETICENT_ALERT", f'{sys.executable} -c "{code}" {file}')
    return lambda: file.read_text().splitlines() if file.exists() else []


def test_a_log_that_breaks_its_card_stops_no_night_and_its_operator_hears_of_it(tmp_path, home, heard, nightly_job):
    log = [(f"c{i}", 0, 0, "cold" if i else "lukewarm", "none", 0, True) for i in range(50)]
    shop = lay_out(tmp_path / "shop", log=log)
    add(shop / "card.toml", "[tolerance]\nunknown_label = 0.0\n")
    # the gate of synthetic people is exact, and would stop at one
    change(shop / "private.toml", "[privacy]\n", "[privacy]\ngate = 0.0\n")
    night = nightly_job(shop / "private.toml", home)
    assert (night["exit"], night["night"]["charged_rho"]) == (3, 1.0)
    text = "the log of private breaks its card (LogError, exit 3); tonight has what can be read of it"
    assert heard() == [f"reticent: {text}"]
    assert "unknown_label" in check_night(shop / "private.toml", home)["last"]["text"]


def test_a_failed_night_alerts_with_its_kind_and_code_and_no_word_of_its_text(tmp_path, home, heard, nightly_job):
    shop = lay_out(tmp_path / "shop")
    (shop / "log.csv").write_text("customer,visit\n")
    said: list[str] = []
    with pytest.raises(LogError, match="missing_column"):
        nightly_job(shop / "private.toml", home, say=said.append)
    text = "the night of private failed (LogError, exit 3); the policy in use stays"
    assert heard() == [f"reticent: {text}"] and said[-1] == f"alert: {text}"
    recipe = shop / "private.toml"
    # the operator finds the text in a note that only the operator may read
    assert "missing_column" in check_night(recipe, home)["last"]["text"]
    assert stat.S_IMODE(note_of(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(note_of(home).parent.stat().st_mode) == 0o700
    assert check_night(recipe, home)["problem"] == "the last night of private failed (LogError, exit 3)"


def test_a_recipe_that_is_not_there_is_a_failed_night_too(home, heard, nightly_job):
    with pytest.raises(Exception, match="nowhere"):
        nightly_job("nowhere", home)
    assert heard() == ["reticent: the night of nowhere failed (CardError, exit 2); the policy in use stays"]


def test_a_mistyped_date_is_no_failed_night(tmp_path, home, heard, nightly_job):
    recipe = str(lay_out(tmp_path / "shop") / "private.toml")
    nightly_job(recipe, home)
    before = heard(), check_night(recipe, home)["problem"]
    for day, words in ((date(2027, 1, 2), "is to come"), ("2027-01-02", "is to come"), ("2 January", "is no date")):
        with pytest.raises(CardError, match=words):
            nightly_job(recipe, home, day=day)
    assert (heard(), check_night(recipe, home)["problem"]) == before


def age(home, key: str, days: float) -> None:
    note = json.loads(note_of(home).read_text())
    note[key] = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")
    note_of(home).write_text(json.dumps(note))


def test_no_news_for_too_long_is_stale_and_news_end_it(tmp_path, home, heard, nightly_job):
    shop = lay_out(tmp_path / "shop", cap=100.0)
    recipe = with_tables(shop, "[watch]\nstale_days = 2\n")
    nightly_job(recipe, home)
    age(home, "news_at", 1.9)
    nightly_job(recipe, home)
    assert heard() == [] and check_night(recipe, home)["problem"] is None
    age(home, "news_at", 2.1)
    nightly_job(recipe, home)
    assert heard() == ["reticent: no new log of private for 2 days; the policy in use stays"]
    assert check_night(recipe, home)["problem"] == "no new log of private for 2 days; the policy in use stays"
    lay_out(shop, cap=100.0, log=rows(seed=1))
    with_tables(shop, "[watch]\nstale_days = 2\n")
    nightly_job(recipe, home)
    assert len(heard()) == 1 and check_night(recipe, home)["problem"] is None


def test_a_night_that_never_came_is_noticed_by_its_age(tmp_path, home, nightly_job):
    recipe = lay_out(tmp_path / "shop") / "private.toml"
    late = "no night of private was done within 30 hours"
    assert check_night(recipe, home)["problem"] == late
    nightly_job(str(recipe), home)
    assert check_night(recipe, home)["problem"] is None
    age(home, "done_at", 31 / 24)
    assert check_night(recipe, home)["problem"] == late and check_night(recipe, home, 32)["problem"] is None
    # a damaged note hides no error, and is written anew
    note_of(home).write_text("{")
    assert check_night(recipe, home, 32)["problem"] == late.replace("30", "32")
    nightly_job(str(recipe), home)
    assert check_night(recipe, home)["problem"] is None


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("[watch]\nstale_days = 1e12\n", "watch.stale_days"),
        ("[nightly]\nfirst = 9990-01-01\nnights = 10000\n", "nightly.first"),
    ],
)
def test_times_that_no_calendar_holds_are_refused_before_a_charge(tmp_path, home, nightly_job, table, key):
    recipe = lay_out(tmp_path / "shop") / "private.toml"
    change(recipe, SCHEDULE, table if "nightly" in table else SCHEDULE + table)
    with pytest.raises(CardError, match=key):
        nightly_job(str(recipe), home)
    assert not home.store.joinpath("shop").exists()


@pytest.mark.parametrize("hours", [float("nan"), 1e300, 0.0, -1.0])
def test_hours_that_are_none_are_refused(tmp_path, hours):
    recipe = lay_out(tmp_path / "shop") / "private.toml"
    assert "--hours" in refusal(tmp_path / "home", "nightly", recipe, "--check", "--hours", hours)


def test_an_alert_whose_command_fails_is_said_and_stops_nothing(monkeypatch):
    said: list[str] = []
    for command, kind in (("/does/not/exist", "FileNotFoundError"), ("false", "CalledProcessError")):
        monkeypatch.setenv("RETICENT_ALERT", command)
        alert("x", said.append)
        assert kind in said[-1]
