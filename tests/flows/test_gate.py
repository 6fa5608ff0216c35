"""A log that breaks its card stops a run by a noisy count of people, before the main budget is spent."""

import json
from datetime import date
from fractions import Fraction
from pathlib import Path
from unittest.mock import Mock

import pytest

from flows.config.recipe import nightly_counter, setting
from flows.jobs.proof import verify_run_job
from flows.server.recorded import StepError, quietly
from pipeline.logs.store import latest
from pipeline.transaction import release_once as module
from pipeline.transaction.continual_step import append_step
from pipeline.transaction.drawing import GateError
from reticent import BudgetError, CardError, LogError, Store, audit, load_card
from tests.conftest import slow
from tests.flows import nights
from tests.flows.shop import SCHEDULE, add, change, rows
from tests.flows.verb import reticent
from tests.jobs import plan_job, proof_of, run_job, wrong_of

pytestmark = pytest.mark.usefixtures("unread")
STRICT = "[tolerance]\nunknown_label = 0.0\n"


def typo(log, people=400):
    """The log as somebody writes it who calls the cold lukewarm."""
    return [(u, v, t, "lukewarm" if m == "cold" and int(u[1:]) < people else m, *more) for u, v, t, m, *more in log]


class Shop(nights.Shop):
    """A shop whose card tolerates nothing, and a log that may break it; ``schedule``: of its recipe."""

    def __init__(self, folder: Path, monkeypatch, *, log=None, tolerance=STRICT, schedule="", **more):
        super().__init__(folder, monkeypatch, budget=tolerance, **more)
        self.card, self.recipe = self.folder / "card.toml", str(self.folder / "private.toml")
        if schedule:
            change(self.folder / "private.toml", SCHEDULE, schedule)
        self.deliver(rows() if log is None else log)

    def run(self, name="private"):
        return run_job(str(self.folder / f"{name}.toml"), self.home)

    @property
    def spent(self) -> Fraction:
        return self.ledger.account("shop").spent

    def kinds(self):
        return [e.kind for e in self.ledger.entries() if e.kind not in ("KEY", "DRAW")]


@pytest.fixture
def shop(tmp_path, monkeypatch) -> Shop:
    return Shop(tmp_path, monkeypatch)


NIGHTLY, MONTHLY = '[nightly]\nnights = 8\nfirst = "2026-01-01"\n', '[schedule]\nrelease = "monthly"\n'


def proof_in(run):
    """What a run's certificate says."""
    return json.loads((Path(run["folder"]) / "certificate.json").read_text())


def assert_proved(run, shop):
    """Every check of the verifier passes."""
    assert all(c.ok for c in proof_of(Path(run["folder"]), shop.folder).checks)


def said(shop, *words):
    return reticent("--home", shop.home.root, *words, cwd=shop.folder)


def test_a_typo_is_caught_before_the_main_budget_is_spent_and_a_retry_is_answered_as_before(tmp_path, monkeypatch):
    shop, told = Shop(tmp_path, monkeypatch, log=typo(rows())), []
    for _ in range(2):
        why = r"unknown_label.*rows of about 2.. people; the card accepts 0.*Only the gate"
        with pytest.raises(LogError, match=why) as stopped:
            shop.run()
        told.append(str(stopped.value))
    assert len(set(told)) == 1 and shop.spent == Fraction(1, 50) and not list(shop.home.runs.iterdir())
    done = said(shop, "run", shop.folder / "private.toml")
    assert done.returncode == 3 and told[0].splitlines()[0] in done.stderr
    assert shop.kinds() == ["REGISTER", "INTENT", "COMMIT"]
    # what is tolerated is compared with the committed answer, whatever it is raised to
    change(shop.card, "unknown_label = 0.0", "unknown_label = 1.0")
    shop.run()
    assert shop.spent <= 1 and shop.kinds().count("INTENT") == 2


def test_mended_and_ingested_again_it_runs_and_the_page_tells_of_the_gate(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, log=typo(rows()))
    with pytest.raises(LogError, match="Only the gate"):
        shop.run()
    shop.deliver(rows())
    answer = shop.run()
    folder = Path(answer["folder"])
    report, proof = (json.loads((folder / f"{name}.json").read_text()) for name in ("report", "certificate"))
    gate = proof["gate"]
    assert gate == report["gate"] and gate["mechanism"]["l2_squared"] == 1 and gate["mechanism"]["rho_exact"] == "1/50"
    assert shop.ledger.entries()[gate["entry"] - 1].kind == "COMMIT"
    # what the page promises is all that was charged for it
    assert Fraction(proof["rho_exact"]) == shop.spent - Fraction(1, 50) <= 1
    assert answer["guarantee"]["rho"] <= 1.0
    assert all(c.ok for c in proof_of(folder, shop.folder).checks)
    assert shop.run()["replayed"] and Fraction(proof["rho_exact"]) == shop.spent - Fraction(1, 50)
    assert json.loads((folder / "certificate.json").read_text()) == proof


def test_a_certificate_that_tells_of_another_gate_does_not_verify(shop, tmp_path):
    folder = Path(shop.run()["folder"])
    text = (folder / "certificate.json").read_text()
    Store(shop.home.root).ledger(shop.folder).export(tmp_path / "all.json")
    assert not wrong_of(folder, tmp_path, tmp_path / "all.json")
    for damage in (
        lambda proof: proof.pop("gate"),
        lambda proof: proof["gate"].update(entry=1),
        lambda proof: proof["gate"].update(hash="0" * 64),
        lambda proof: proof["gate"]["mechanism"].update(variance=500),
        lambda proof: proof["gate"]["mechanism"].update(sensitivity_rule="none"),
    ):
        damage(proof := json.loads(text))
        (folder / "certificate.json").write_text(json.dumps(proof))
        assert wrong_of(folder, tmp_path, tmp_path / "all.json"), proof.get("gate")


def test_one_person_decides_nothing_but_through_the_noise(tmp_path, monkeypatch):
    """Four rows of one person stopped a run outright; now the count of people is one, and the noise is five."""
    # of 0 people the gate would be as quiet
    log = typo(rows(), people=5)
    shop = Shop(tmp_path, monkeypatch, log=log)
    shop.run()
    wrong = {user for user, _, _, mood, *_ in log if mood == "lukewarm"}
    assert latest(shop.home.store, "shop").set_aside == {"unknown_label": 1} == {"unknown_label": len(wrong)}


def test_a_release_of_before_there_were_gates_is_replayed_without_one(shop):
    s = setting(str(shop.folder / "private.toml"), shop.home)
    # as a version without a gate drew it
    old = module.release_once(s.card, 1, s.plan, shop.ledger, shop.home.store, s.recipe.terms.noise())
    spent = shop.spent
    answer = shop.run()
    assert answer["replayed"] and shop.spent == spent
    proof = proof_in(answer)
    assert "gate" not in proof and proof["ledger"]["run_key"] == old.run_key
    assert plan_job(str(shop.folder / "private.toml"), shop.home)["replays"]


def test_plan_lists_the_gate_and_its_share(shop):
    plan = plan_job(str(shop.folder / "private.toml"), shop.home)
    assert plan["mechanisms"][0]["table"] == "set_aside"
    assert plan["rho"] <= 1.0 and plan["mechanisms"][0]["rho"] == 0.02
    spent = plan["remaining_after"]
    shop.run()
    assert float(shop.ledger.account("shop").remaining) == pytest.approx(spent)
    again = plan_job(str(shop.folder / "private.toml"), shop.home)
    assert again["replays"] and again["remaining_after"] == pytest.approx(spent)


@pytest.mark.parametrize(("name", "share"), [("private", "0.1"), slow("both", "0.02"), slow("pure", "0.02")])
def test_the_whole_run_costs_no_more_than_was_asked(shop, name, share):
    recipe = shop.folder / f"{name}.toml"
    change(recipe, "[privacy]\n", f"[privacy]\ngate = {share}\n")
    answer = shop.run(name)
    promise = answer["guarantee"]
    asked = promise["asked"]
    assert all(promise[loss] <= asked[loss] for loss in asked) and shop.spent <= Fraction(str(promise["rho"]))
    assert_proved(answer, shop)
    plan = plan_job(str(recipe), shop.home)
    assert plan["rho"] == pytest.approx(promise["rho"]) and plan["epsilon"] == pytest.approx(promise["epsilon"])


@pytest.mark.parametrize("version", [1, 2])
def test_a_real_card_that_says_nothing_has_a_gate_since_version_2(tmp_path, monkeypatch, version):
    """Without one, a typo in a table of labels costs the whole budget; plan says so where it may happen."""
    shop = Shop(tmp_path, monkeypatch, log=typo(rows()), tolerance="")
    change(shop.card, "schema_version = 1", f"schema_version = {version}")
    rules = ["unknown_label"] if version == 2 else []
    assert plan_job(str(shop.folder / "private.toml"), shop.home)["gate"] == rules
    if version == 2:
        with pytest.raises(LogError, match="the card accepts 40,"):
            shop.run()
        add(shop.card, "[tolerance]\n")
        assert plan_job(str(shop.folder / "private.toml"), shop.home)["gate"] == []
    shop.run()


@pytest.mark.parametrize(("tolerance", "kind"), [(0.4, "real"), slow(1, "real"), slow(0.4, "synthetic")])
def test_ingest_warns_where_the_gate_may_stop_a_run(tmp_path, monkeypatch, tolerance, kind):
    """A share of rows that ingest accepts may be rows of nearly everybody, whom the gate counts."""
    accepts = STRICT.replace("0.0", str(tolerance))
    shop = Shop(tmp_path, monkeypatch, kind=kind, log=typo(rows()), tolerance=accepts)
    warned = "the card accepts 160: the gate of a run counts people" in said(shop, "ingest", shop.folder).stderr
    assert warned == (kind == "real" and tolerance < 1)


def test_plan_is_loud_where_nothing_stops_a_run(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, tolerance="")
    plan = ("plan", shop.folder / "private.toml", "--no-quality")
    assert "gate: NONE" in said(shop, *plan).stdout
    add(shop.card, STRICT)
    assert "break unknown_label" in said(shop, *plan).stdout


@pytest.mark.parametrize("table", [False, slow(True)])
def test_the_audit_attacks_the_gate(shop, table):
    found = audit(shop.folder / "private.toml", store=Store(shop.home.root), draws=1500, table=table)
    first = found.verdicts[0]
    assert first.mechanism.startswith("the gate") and not first.violates and first.attained == pytest.approx(1)
    assert first.claimed_rho == 0.02 and len(found.verdicts) > 1


def test_nothing_is_charged_for_the_gate_of_a_run_that_the_budget_does_not_allow(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, cap=0.99)
    with pytest.raises(BudgetError, match=r"asked ρ = 1, left 0\.99"):
        shop.run()
    assert shop.spent == 0


def test_no_share_is_no_gate(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, log=typo(rows()))
    change(shop.folder / "private.toml", "[privacy]\n", "[privacy]\ngate = 0.0\n")
    assert not shop.run()["replayed"] and shop.kinds().count("INTENT") == 1


def test_synthetic_people_are_counted_exactly_and_for_nothing(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, kind="synthetic", log=typo(rows(), people=6))
    with pytest.raises(LogError, match=r"rows of about \d people"):
        shop.run()
    assert shop.spent == 0
    shop.deliver(rows())
    assert "gate" not in proof_in(shop.run())


@pytest.mark.parametrize("schedule", [NIGHTLY, slow(MONTHLY)])
def test_a_scheduler_that_goes_on_for_ever_pays_for_one_answer(tmp_path, monkeypatch, schedule):
    shop = Shop(tmp_path, monkeypatch, schedule=schedule, log=typo(rows()))
    for night in range(1, 4):
        with pytest.raises(LogError, match="Only the gate"):
            shop.job(night, typo(rows(seed=night)))
    assert shop.spent == Fraction(1, 50)


def test_a_counter_begins_once_its_operator_asks_again_and_no_night_is_asked_after_that(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, schedule=NIGHTLY, log=typo(rows()))
    with pytest.raises(LogError, match="Only the gate"):
        shop.job(1)
    shop.on(2)
    shop.deliver(rows())
    first = shop.run()
    proof = proof_in(first)
    assert Fraction(proof["rho_exact"]) == shop.spent - Fraction(1, 50) <= 1 and "gate" in proof
    assert_proved(first, shop)
    # later nights name the same gate, ask none, and take what comes
    third = shop.job(3, typo(rows(seed=7)))
    assert shop.spent == Fraction(proof["rho_exact"]) + Fraction(1, 50) and third["exit"] == 3
    again = proof_in(third)
    assert again["gate"] == proof["gate"] and again["rho_exact"] == proof["rho_exact"]
    assert_proved(third, shop)


def test_a_counter_of_before_there_were_gates_goes_on_without_one(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, schedule=NIGHTLY, log=rows())
    shop.on(1)
    s = setting(str(shop.folder / "private.toml"), shop.home)
    append_step(nightly_counter(s), shop.ledger, shop.home.store, s.recipe.terms.noise(), date(2026, 1, 1))
    spent = shop.spent
    answer = shop.job(2, typo(rows(seed=3)))
    assert shop.spent == spent and answer["counter"]["night"] == 2
    assert "gate" not in proof_in(answer)


def test_what_is_made_again_from_card_and_recipe_is_the_gated_run(shop):
    answer = shop.run()
    folder, card = Path(answer["folder"]), load_card(shop.folder / "card.toml")
    proof = verify_run_job(folder, shop.ledger.entries, card)
    assert proof.ok and not [c for c in proof.checks if c.ok is None], proof.checks
    # another share asked for is another gate, and another release
    change(folder / "recipe.toml", "[privacy]\n", "[privacy]\ngate = 0.1\n")
    assert not verify_run_job(folder, shop.ledger.entries, card).ok


def test_a_sampler_that_leaves_nothing_of_delta_is_refused_before_the_gate_is_charged(tmp_path, monkeypatch):
    """The counter's noise is drawn exactly, its gate's is not: both were charged, and no page could be made."""
    shop = Shop(tmp_path, monkeypatch, schedule=NIGHTLY, cap=300.0)
    recipe = shop.folder / "private.toml"
    change(recipe, "rho = 1.0", 'rho = 1.0\nsampler = "table"')
    add(recipe, 'counter = "toeplitz"\n')
    shop.on(1)
    for job in (plan_job, run_job):
        with pytest.raises(CardError, match="sampler = 'table' would use up delta"):
            job(str(recipe), shop.home)
    assert not shop.spent


def test_a_server_hears_the_kind_of_an_error_and_not_its_text():
    """Of a run that its gate stopped it hears that it is over."""
    caught = []
    assert quietly(Mock(side_effect=GateError("12 people")), caught) is None and isinstance(caught[0], GateError)
    with pytest.raises(StepError) as told:
        quietly(lambda: int("canary"), [])
    assert str(told.value).startswith("ValueError: ") and "canary" not in str(told.value)
    assert told.value.__context__ is None
