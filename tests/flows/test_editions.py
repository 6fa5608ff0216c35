"""Which outputs exist is declared: by editions, one an ingest, and by a calendar; never by what one person brought."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from pipeline.declaration.lineage import Schedule
from pipeline.ledger.account import allowances
from pipeline.privacy.noise import OsNoise
from reticent import BudgetError, CardError
from tests.flows.nights import stop_clock
from tests.flows.shop import SCHEDULE, add, change, lay_out, rows
from tests.flows.verb import answer, invoke
from tests.jobs import home_at, ingest_job, ledger_in, nightly_job, page_of, plan_job, register_job, run_job

pytestmark = pytest.mark.usefixtures("unread")

WEEK = [f"2026-01-{day:02d}" for day in range(5, 15)]
Log = Sequence[Any]


@dataclass
class Seen:
    """All of a history that anybody but the operator can see, and what the ledger was charged."""

    runs: list[str]
    told: list[object]
    entries: list[tuple[str, object, object]]


def seen(home: Path, told: list[object]) -> Seen:
    charged = [(e.kind, e.body.get("rho"), e.body.get("run_key")) for e in ledger_in(home).entries()]
    return Seen(sorted(p.name for p in (home / "runs").iterdir()), told, charged)


def by_hand(folder: Path, deliveries: Sequence[Log]) -> Seen:
    """Every delivery is ingested and run by hand; what ``ingest`` says is the operator's."""
    told: list[object] = []
    for log in deliveries:
        shop = lay_out(folder / "shop", log=log, cap=100.0)
        invoke("--home", folder / "home", "ingest", shop)
        said = answer(folder / "home", "run", shop / "private.toml")
        told.append((said["run"], said["ledger"]))
    return seen(folder / "home", told)


def by_calendar(release: str, clock: Callable[[str], None]) -> Callable[[Path, Sequence[Log]], Seen]:
    """A delivery a night, under a calendar; what a server is shown of each."""

    def play(folder: Path, deliveries: Sequence[Log]) -> Seen:
        told: list[object] = []
        for day, log in zip(WEEK, deliveries, strict=False):
            clock(day)
            night = calendar_night(folder, log, release)
            page = page_of(night)
            told.append((night["run"], night["night"], page.key, page.title, page.rows))
        return seen(folder / "home", told)

    return play


def calendar_night(folder: Path, log: Log, release: str, *, cap=100.0, budget="", **more: Any) -> dict[str, Any]:
    shop = lay_out(folder / "shop", log=log, cap=cap)
    add(shop / "card.toml", budget)
    change(shop / "private.toml", 'release = "nightly"', f"release = {release}\n[watch]\nstale_days = 1")
    return nightly_job(str(shop / "private.toml"), home_at(folder / "home"), **more)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda day: stop_clock(monkeypatch, datetime.fromisoformat(day).replace(hour=3, tzinfo=UTC))


LOG = rows(100)
# they differ in one cell of one person
PAIR = LOG, [(*LOG[0][:5], 2 - LOG[0][5], *LOG[0][6:]), *LOG[1:]]


def test_one_cell_of_one_person_does_not_decide_which_runs_exist(tmp_path: Path) -> None:
    log, changed = PAIR
    same, other = by_hand(tmp_path / "a", [log, log]), by_hand(tmp_path / "b", [log, changed])
    assert same == other
    assert len(same.runs) == 2 and [rho for kind, rho, _ in same.entries if kind == "INTENT"] == ["1", "1"]


@pytest.mark.parametrize(
    ("release", "drawn"), [pytest.param('"nightly"', 3, marks=pytest.mark.slow), ('["2026-01-05", 2026-01-07]', 2)]
)
def test_nights_release_on_declared_dates_whatever_arrived(tmp_path, clock, release, drawn):
    log, changed = PAIR
    play = by_calendar(release, clock)
    same, other = play(tmp_path / "a", [log, log, log]), play(tmp_path / "b", [log, changed, changed])
    assert same == other
    assert len(same.runs) == drawn == sum(kind == "INTENT" for kind, *_ in same.entries)


def person(rng: np.random.Generator, seed: int) -> list[Any]:
    """What one person may bring to a delivery: nothing, other rows, rows that break the card, bytes that are no row."""
    own = [("me", *r[1:]) for r in rows(1, seed)]
    wrong = [("me", 0, 0, "lukewarm", "none", 0, True), ("me", 0, "x", "cold", "none", 9, True)]
    return [[], own, [*own, *own], wrong, [("me", "no row")], [own[0], *wrong]][rng.integers(6)]


@pytest.mark.parametrize(
    "route", ["nightly", *(pytest.param(r, marks=pytest.mark.slow) for r in ("by hand", "weekly", "dates"))]
)
def test_histories_that_differ_in_one_person_leave_the_same_outputs(tmp_path: Path, clock: Any, route: str) -> None:
    """Random pairs; also where the one person is all there is, and where their rows are beyond the tolerance."""
    release = {"nightly": '"nightly"', "weekly": '"weekly"', "dates": '["2026-01-05", "2026-01-06", "2026-02-01"]'}
    play = by_hand if route == "by hand" else by_calendar(release[route], clock)
    for seed in range(2):
        rng, nights = np.random.default_rng(seed), 3
        base = [rows(int(rng.choice([0, 3, 20])), int(rng.integers(2))) for _ in range(nights)]
        # at most one history has a first delivery that nobody could read
        pair = [[[*log, *person(rng, i)] for i, log in enumerate(base)] for _ in range(2)]
        a, b = (play(tmp_path / f"{seed}-{side}", pair[i]) for i, side in enumerate("ab"))
        assert a == b


def test_a_date_has_one_release_though_the_service_was_down_or_the_night_ran_twice(tmp_path: Path, clock: Any) -> None:
    log, said = rows(50), list[str]()
    clock("2026-01-07")
    first = calendar_night(tmp_path, log, '"weekly"', say=said.append)
    assert first["night"]["due"] == "2026-01-05" and first["night"]["charged_rho"] == 1.0
    again = calendar_night(tmp_path, rows(50, 1), '"weekly"', say=said.append)
    assert again["run"] == first["run"] and again["night"]["unchanged"] and again["night"]["snapshot"] == 1
    assert said[-1] == "the release of 2026-01-05 stands, and nothing was charged"
    clock("2026-01-11")
    assert calendar_night(tmp_path, rows(50, 1), '"weekly"')["night"]["snapshot"] == 1
    # the rows of a standing release may be gone
    answer(tmp_path / "home", "store", "purge", tmp_path / "shop", "--yes")
    assert calendar_night(tmp_path, rows(50, 1), '"weekly"')["run"] == first["run"]
    clock("2026-01-12")
    fresh = calendar_night(tmp_path, rows(50, 1), '"weekly"')
    assert fresh["run"] != first["run"] and fresh["night"]["charged_rho"] == 1.0
    # one that was missed is made up for
    late = calendar_night(tmp_path, log, '"weekly"', day=datetime(2025, 12, 31).date())
    assert late["night"]["due"] == "2025-12-29" and late["night"]["charged_rho"] == 1.0


def test_a_clock_that_goes_back_puts_no_older_release_in_use(tmp_path: Path, clock: Any) -> None:
    nightly = '"nightly"\n\n[promote]'
    clock("2026-01-05")
    older = calendar_night(tmp_path, rows(50), nightly)
    clock("2026-01-06")
    newer = calendar_night(tmp_path, rows(50, 1), nightly)
    assert newer["promotion"]["before"] == older["run"] and newer["promotion"]["now"] == newer["run"]
    clock("2026-01-05")
    again = calendar_night(tmp_path, rows(50, 1), nightly)
    assert (again["run"], again["night"]["charged_rho"]) == (older["run"], 0.0)
    assert again["promotion"]["now"] == newer["run"]
    assert again["promotion"]["held"] == ["its release is older than that of the run in use"]


def test_a_night_whose_files_cannot_be_read_releases_on_the_last_good_edition(tmp_path: Path, clock: Any) -> None:
    clock("2026-01-05")
    first = calendar_night(tmp_path, rows(50), '"nightly"')
    clock("2026-01-06")
    (tmp_path / "shop" / "log.csv").write_text("nobody,knows,these,columns\n")
    recipe, said = str(tmp_path / "shop" / "private.toml"), list[str]()
    night = nightly_job(recipe, home_at(tmp_path / "home"), say=said.append)
    assert night["exit"] == 3 and night["night"]["charged_rho"] == 1.0 and night["run"] != first["run"]
    assert any("the log of private breaks its card" in line for line in said)


def test_a_scheduled_night_needs_a_calendar_that_has_begun(tmp_path: Path, clock: Any) -> None:
    clock("2026-01-05")
    shop, home = lay_out(tmp_path / "shop"), home_at(tmp_path / "home")
    change(shop / "private.toml", SCHEDULE, "")
    with pytest.raises(CardError, match=r"\[schedule\] is missing"):
        nightly_job(str(shop / "private.toml"), home)
    with pytest.raises(CardError, match="the first release is due on 2026-02-01"):
        calendar_night(tmp_path, rows(50), '["2026-02-01"]')
    assert [p.name for p in home.store.iterdir()] == [".nights"]


def test_that_bytes_are_those_of_an_earlier_edition_is_told_in_the_terminal_alone(tmp_path: Path) -> None:
    shop, home = lay_out(tmp_path / "shop"), tmp_path / "home"
    run, ingest = ["run", shop / "private.toml"], ["ingest", shop]
    assert answer(home, *ingest)["same_as"] is None
    first = answer(home, *run)
    done = invoke("--home", home, *ingest)
    assert done.exit_code == 0 and "these are the bytes of snapshot 1: `run --edition 1`" in done.stderr
    replayed = answer(home, *run, "--edition", 1)
    assert replayed["replayed"] and replayed["run"] == first["run"] and len(list((home / "runs").iterdir())) == 1
    # following it is the operator's own act; what runs by itself does not
    assert not answer(home, *run)["replayed"]
    with pytest.raises(CardError, match="there is no snapshot 7"):
        run_job(str(shop / "private.toml"), home_at(home), edition=7)


@pytest.mark.parametrize(
    ("release", "day", "due", "after"),
    [
        ("nightly", "2026-01-31", "2026-01-31", "2026-02-01"),
        ("weekly", "2026-01-04", "2025-12-29", "2026-01-05"),
        ("weekly", "2026-01-05", "2026-01-05", "2026-01-12"),
        ("monthly", "2026-01-31", "2026-01-01", "2026-02-01"),
        ("monthly", "2026-12-01", "2026-12-01", "2027-01-01"),
        (["2026-03-01", "2026-01-15"], "2026-01-14", "None", "2026-01-15"),
        (["2026-03-01", "2026-01-15"], "2026-02-28", "2026-01-15", "2026-03-01"),
        (["2026-03-01", "2026-01-15"], "2026-03-01", "2026-03-01", "None"),
    ],
)
def test_the_dates_of_a_calendar(release: Any, day: str, due: str, after: str) -> None:
    calendar = Schedule.model_validate({"release": release})
    at = datetime.fromisoformat(day).date()
    assert (str(calendar.due(at)), str(calendar.after(at))) == (due, after)


@pytest.mark.parametrize(
    ("release", "told"),
    [
        (
            '"weekly"',
            {
                "rho_life": None, "drawn": 1, "due": "2026-01-05", "stands": True, "next": "2026-01-12",
                "to_come": None, "paid": 4, "last": "2026-02-02", "refused": "2026-02-09", "limit": "lifetime",
            },
        ),
        pytest.param('"nightly"', {
                "rho_life": None, "drawn": 1, "due": "2026-01-08", "stands": False, "next": "2026-01-08",
                "to_come": None, "paid": 2, "last": "2026-01-09", "refused": "2026-01-10", "limit": "month",
            }, marks=pytest.mark.slow),
        pytest.param('["2026-01-06", "2026-03-01", "2026-04-01"]', {
                "rho_life": 3.0, "drawn": 1, "due": "2026-01-06", "stands": True, "next": "2026-03-01",
                "to_come": 2, "paid": 2, "last": "2026-04-01", "refused": None, "limit": None,
            }, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_plan_prices_the_calendar_for_its_whole_life(tmp_path: Path, clock: Any, release: str, told: Any) -> None:
    budget = "[budget.schedule]\nrho_month = 3.0\n" if "nightly" in release else ""
    clock("2026-01-07")
    night = calendar_night(tmp_path, rows(30), release, cap=5.0, budget=budget)
    clock("2026-01-08")
    recipe = tmp_path / "shop" / "private.toml"
    planned = plan_job(str(recipe), home_at(tmp_path / "home"))["calendar"]
    assert {k: v for k, v in planned.items() if k not in ("release", "rho_each")} == told
    assert planned["rho_each"] == night["night"]["charged_rho"] == 1.0
    done = invoke("--home", tmp_path / "home", "plan", recipe, "--no-quality")
    assert "calendar (" in done.stdout and (told["refused"] or "the budget pays all 2 to come") in done.stdout


OTHERS = "cap of other, whose people may be the same"


@pytest.mark.parametrize(
    ("cap", "schedule", "paid", "limit", "refused", "left"),
    [
        (9.0, "rho_month = 2.5", 0, "month", "the limit of the month", "this month: ρ = 2.5, left 0"),
        (4.5, "rho_month = 9.0", 2, "lifetime", f"the {OTHERS}", f"{OTHERS}: ρ = 4.5, left 2"),
    ],
)
def test_a_plan_of_a_calendar_counts_what_others_spent_on_the_same_people(
    tmp_path, clock, cap, schedule, paid, limit, refused, left
):
    """It said that the budget pays for nights whose first one the ledger refused."""
    clock("2026-01-07")
    home = home_at(tmp_path / "home")
    for name, most in (("shop", 9.0), ("other", cap)):
        folder = lay_out(tmp_path / name, name=name, kind="real", ledger="../ledger.db", cap=most)
        add(folder / "card.toml", f"[budget.schedule]\n{schedule}\n")
        register_job(str(folder), home)
        ingest_job(str(folder), home)
    run_job(str(tmp_path / "other" / "greedy.toml"), home)
    calendar = plan_job(str(tmp_path / "shop" / "private.toml"), home)["calendar"]
    assert (calendar["paid"], calendar["limit"]) == (paid, limit)
    done = invoke("--home", home.root, "plan", tmp_path / "shop" / "private.toml", "--no-quality")
    assert f"is refused by {refused}\n" in done.stdout and f"{left}\n" in done.stdout


def test_a_plan_of_a_long_calendar_does_not_read_the_ledger_for_each_month(tmp_path, clock, monkeypatch):
    """For a century of nights it took two minutes of a ledger of 3,000 entries."""
    clock("2026-01-07")
    calendar_night(tmp_path, rows(30), '"nightly"', cap=500.0, budget="[budget.schedule]\nrho_month = 31.0\n")
    asked = list[str]()
    counting = lambda entries, name, at: asked.append(f"{at:%Y-%m}") or allowances(entries, name, at)  # noqa: E731
    monkeypatch.setattr("flows.jobs.plan.allowances", counting)
    planned = plan_job(str(tmp_path / "shop" / "private.toml"), home_at(tmp_path / "home"))["calendar"]
    assert (planned["paid"], planned["last"], planned["limit"]) == (499, "2027-05-21", "lifetime")
    assert asked == ["2026-01", "2026-02", "2027-01"]


def test_a_calendar_whose_draws_die_for_ever_does_not_use_up_the_cap(tmp_path, clock, monkeypatch):
    """Every date is a release of its own, and each was paid for: a cap of 100 would have been gone in 100 nights."""
    exits: list[type[BaseException] | None] = []
    with monkeypatch.context() as broken:
        broken.setattr(OsNoise, "gaussian", Mock(side_effect=MemoryError))
        for day in WEEK:
            clock(day)
            try:
                calendar_night(tmp_path, rows(50), '"nightly"')
            except (MemoryError, BudgetError) as e:
                exits.append(type(e))
    assert exits == [MemoryError] * 3 + [BudgetError] * 7
    kept = ledger_in(tmp_path / "home")
    assert kept.account("shop").spent == 3
    clock("2026-01-20")
    kept.note("shop", "RETRY", {})
    assert calendar_night(tmp_path, rows(50), '"nightly"')["night"]["charged_rho"] == 1.0
    clock("2026-01-21")
    assert calendar_night(tmp_path, rows(50), '"nightly"')["night"]["charged_rho"] == 1.0
