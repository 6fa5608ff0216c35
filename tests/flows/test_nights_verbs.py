"""``plan``, ``run``, ``ledger show`` and ``ledger verify`` of a recipe with [nightly], and what it may not ask."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.jobs.book import Book
from pipeline.ledger.steps import counters_problem, noise_problem
from reticent import BudgetError, CardError, Store
from tests.flows.nights import Shop, customers, shop
from tests.flows.office import edit as edited
from tests.flows.shop import bare_recipe, change
from tests.flows.verb import invoke
from tests.jobs import home_at, plan_job, run_job, wrong_of

__all__ = ["shop"]


def verb(shop, *args):
    return invoke("--home", shop.home.root, *args)


def test_plan_tells_the_counters_cost_and_what_is_left_of_its_nights(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, cap=1.2)
    before = plan_job(shop.recipe, shop.home)
    told = before["counter"]
    assert (told["night"], told["drawn"], told["left"], told["charge_rho"]) == (1, 0, 7, pytest.approx(1, abs=0.01))
    assert before["allowed"] and before["rho"] == pytest.approx(told["charge_rho"]) and before["spent_before"] == 0
    times = told["times_one_release"]
    assert times["tonight"] == 4 and times["worst"] == pytest.approx(8.95, abs=0.1)
    shop.append(1, customers(0, 60))
    shop.on(3)
    now = plan_job(shop.recipe, shop.home)["counter"]
    # a date has its leaf whatever came in
    assert (now["night"], now["drawn"], now["left"], now["charge_rho"], now["replays"]) == (3, 1, 5, 0, False)
    shop.append(3)
    assert plan_job(shop.recipe, shop.home)["counter"]["replays"]
    shop.on(4)
    now = plan_job(shop.recipe, shop.home)
    assert (now["counter"]["replays"], now["counter"]["charge_rho"], now["allowed"]) == (False, 0, True)
    shown = verb(shop, "plan", "--no-quality", shop.recipe)
    assert shown.exit_code == 0, shown.output
    assert "today is night 4, 4 left after it; a run charges ρ = 0" in shown.output
    shop.on(9)
    over = plan_job(shop.recipe, shop.home)
    assert not over["allowed"] and (over["counter"]["night"], over["counter"]["left"]) == (None, 0)
    assert "today is no night of this counter" in verb(shop, "plan", "--no-quality", shop.recipe).output
    assert "counter (tree, 8 nights from 2026-01-01 to 2026-01-08): paid once for all of them, 2 drawn" in shown.output


def test_run_takes_a_night_by_date_and_the_ledger_shows_it(shop):
    shop.on(5)
    shop.deliver(customers(0, 60))
    done = verb(shop, "run", shop.recipe, "--night", "2026-01-02", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout[done.stdout.index("{") :])
    [times] = re.findall(r"Their variance is (\S+) times", Path(found["report"]).with_suffix(".md").read_text())
    assert (found["counter"]["night"], found["counter"]["date"]) == (2, "2026-01-02")
    again = verb(shop, "run", shop.recipe, "--night", "2026-01-02")
    assert "night       2 of 8 (2026-01-02)" in again.stdout and "replayed" in again.stdout
    assert f"its noise has {times} × the variance of one release" in again.stdout
    shown = verb(shop, "ledger", "show", "--card", shop.folder)
    assert "night 2 of 8" in shown.stdout and "2026-01-05" in shown.stdout and "█" not in shown.stdout
    data = json.loads(verb(shop, "ledger", "show", "--card", shop.folder, "--json").stdout)["datasets"][0]
    assert [p["spent_rho"] for p in data["spending"]] == [data["spent_rho"]]
    assert [(e["night"], e["nights"]) for e in data["entries"]] == [(2, 8)]


def test_no_page_advises_a_test_that_plan_refuses(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, kind="synthetic")
    # enough to hold some out
    change(shop.folder / "card.toml", "users_public = 400", "users_public = 4000")
    runs = shop.night(1, customers(0, 60)), run_job(str(shop.folder / "pure.toml"), shop.home)
    for run, instead in zip(runs, ("a calendar such as [schedule]", "rho, or epsilon with delta"), strict=True):
        page = (Path(run["folder"]) / "report.md").read_text().replace("\\", "")
        assert instead in page and "[evaluate]" not in page


def test_a_schedule_refuses_a_counter_beyond_it_with_exit_4(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, budget="[budget.schedule]\nrho_month = 0.5\n")
    shop.deliver(customers(0, 60))
    with pytest.raises(BudgetError, match=r"left 0\.5 of 0\.5 this month"):
        run_job(shop.recipe, shop.home)
    refused = verb(shop, "plan", "--no-quality", shop.recipe, "--json")
    assert refused.exit_code == 4 and json.loads(refused.stdout)["allowed"] is False
    plan = plan_job(shop.recipe, shop.home)
    assert not plan["allowed"] and plan["limit"] == {"of": "month", "cap_rho": 0.5, "left_rho": 0.5}
    assert plan["fits"]["rho"] == 0.5
    shown = verb(shop, "plan", "--no-quality", shop.recipe).output
    assert "this month: ρ = 0.5, left 0.5" in shown and "what still fits: rho = 0.5" in shown
    assert "schedule: ρ = 0.5 a month; left now 0.5" in verb(shop, "ledger", "show", "--card", shop.folder).output


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        shop = Shop(tmp_path_factory.mktemp("verify"), patch)
        shop.night(1, customers(0, 60))
        run = shop.night(3, customers(60, 60))
    folder = Path(run["folder"])
    Store(shop.home.root).ledger(shop.folder).export(exported := folder.parents[1] / "all.json")
    return folder, shop.ledger.entries(), exported


def test_an_honest_night_passes(night):
    proof = Store(night[0].parents[1]).open(night[0]).verify(ledger=night[2])
    assert proof.ok and proof.vouched and any("tonight's sums" in c.what for c in proof.checks)


def of_counter(**changes):
    return lambda proof: proof["counter"].update(changes)


EDITS = {
    "another night": of_counter(night=2),
    "a longer counter": of_counter(nights=16),
    "less noise than there is": of_counter(error=0.5),
    "a cheaper counter": of_counter(cost=1),
    "other rows": of_counter(drawn_sha256="0" * 64),
    "another counter": of_counter(key="0" * 64),
    "one level": lambda proof: proof["mechanisms"][0]["running"].update(cost=1),
    "no counter at all": lambda proof: proof.pop("counter"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_every_edit_of_a_nights_certificate_is_seen(night, tmp_path, edit):
    folder = shutil.copytree(night[0], tmp_path / night[0].name)
    edited(folder / "certificate.json", EDITS[edit])
    assert wrong_of(folder, tmp_path, night[2])


def forged(entries, **changes):
    """The second INTENT with mechanisms of other values; nobody checks the chain here."""
    at = [i for i, e in enumerate(entries) if e.kind == "INTENT"][1]
    body = json.loads(json.dumps(entries[at].body))
    body["mechanisms"][0].update(changes)
    return [*entries[:at], replace(entries[at], body=body), *entries[at + 1 :]]


def test_a_night_of_another_variance_or_domain_is_not_of_its_counter(night):
    folder, entries, _ = night
    assert counters_problem(entries) is None
    variance = next(e for e in entries if e.kind == "INTENT").body["mechanisms"][0]["variance"]
    for changes in ({"variance": variance - 1}, {"l2_squared": 1}):
        assert "entry 7 is of another domain" in str(counters_problem(forged(entries, **changes)))
    # what a night may differ in
    later = {"cost": 4, "draws": 15, "error": 3.0}
    assert counters_problem(forged(entries, scale=1.0, running=later)) is None
    register = replace(entries[0], body={**entries[0].body, "domain_hash": "0" * 64})
    assert "entry 3 is of another domain" in str(counters_problem([register, *entries[1:]]))
    proof = json.loads((folder / "certificate.json").read_text())
    assert noise_problem(proof) is None
    proof["data"]["domain_hash"] = "0" * 64
    assert "its key is of another domain" in str(noise_problem(proof))


def test_verify_of_the_whole_ledger_looks_at_its_counters(night, tmp_path):
    _, entries, _ = night
    of = {"entries": lambda: forged(entries, variance=1), "problem": lambda: None, "lineages": list, "where": "here"}
    book = Book(home_at(tmp_path))
    book.__dict__["chain"] = SimpleNamespace(**of)
    found = book.verify()
    assert not found["ok"] and "entry 7 is of another domain" in found["problem"]


def test_the_page_says_which_night_it_is_and_what_it_covers(night):
    folder, *_ = night
    report = json.loads((folder / "report.json").read_text())
    assert report["counter"]["night"] == 3 and report["value"]["status"] == "modelled"
    assert "for all 8 nights together" in report["guarantee"]["sentence"]
    assert any("first night that brings rows of theirs" in a for a in report["assumptions"])
    proof = json.loads((folder / "certificate.json").read_text())
    assert "which outputs exist does not depend on the rows" in proof["implementation"]["side_channels"]
    assert report["dataset"]["snapshot"] is None and "snapshot" not in (folder / "report.md").read_text()
    page = (folder / "report.html").read_text()
    assert "This is night 3 (2026-01-03) of a counter over 8 nights (binary tree)" in page


FIRST, RHO = 'first = "2026-01-01"', "[privacy]\nrho = 1.0\n"


@pytest.mark.parametrize(
    ("agent", "privacy", "nightly", "wrong"),
    [
        ("dp-apvi", RHO, "nights = 8", "first"),
        ("dp-apvi", RHO, f"{FIRST}\nnights = 0", "greater than or equal to 1"),
        ("dp-apvi", RHO, f'{FIRST}\ncounter = "pile"', "'tree' or 'toeplitz'"),
        ("dp-apvi", "[privacy]\nepsilon = 1.0\n", FIRST, r"\[nightly\]"),
        ("dp-vapvi", RHO, FIRST, r"\[nightly\]"),
    ],
)
def test_a_recipe_that_no_counter_can_serve_is_refused(shop, agent, privacy, nightly, wrong):
    recipe = bare_recipe(shop.folder, "x", agent, f"{privacy}[nightly]\n{nightly}")
    with pytest.raises(CardError, match=wrong):
        plan_job(str(recipe), shop.home)
