"""A log that breaks its card stops a run by a noisy count of people, before the main budget is spent."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from flows.config.recipe import setting
from pipeline.logs.store import latest
from pipeline.transaction import release_once as module
from reticent import BudgetError, LogError, Store, audit
from tests.flows.gated import STRICT, Shop, typo
from tests.flows.shop import rows
from tests.flows.verb import reticent
from tests.jobs import plan_job, proof_of, wrong_of

pytestmark = pytest.mark.usefixtures("unread")


def said(shop, *words):
    return reticent("--home", shop.home.root, *words, cwd=shop.folder)


def test_a_typo_is_caught_before_the_main_budget_is_spent_and_a_retry_is_answered_as_before(tmp_path):
    shop, told = Shop(tmp_path, log=typo(rows())), []
    for _ in range(2):
        with pytest.raises(
            LogError, match=r"unknown_label.*rows of about 2.. people; the card accepts 0.*Only the gate"
        ) as stopped:
            shop.run()
        told.append(str(stopped.value))
    assert len(set(told)) == 1 and shop.spent == Fraction(1, 50) and not list(shop.home.runs.iterdir())
    done = said(shop, "run", shop.folder / "private.toml")
    assert done.returncode == 3 and told[0].splitlines()[0] in done.stderr
    assert shop.kinds() == ["REGISTER", "INTENT", "COMMIT"]
    # what is tolerated is compared with the committed answer, whatever it is raised to
    card = shop.folder / "card.toml"
    card.write_text(card.read_text().replace("unknown_label = 0.0", "unknown_label = 1.0"))
    shop.run()
    assert shop.spent <= 1 and shop.kinds().count("INTENT") == 2


def test_mended_and_ingested_again_it_runs_and_the_page_tells_of_the_gate(tmp_path):
    shop = Shop(tmp_path, log=typo(rows()))
    with pytest.raises(LogError, match="Only the gate"):
        shop.run()
    shop.ingest(rows())
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


def test_a_certificate_that_tells_of_another_gate_does_not_verify(tmp_path):
    shop = Shop(tmp_path)
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


def test_one_person_decides_nothing_but_through_the_noise(tmp_path):
    """Four rows of one person stopped a run outright; now the count of people is one, and the noise is five."""
    # of 0 people the gate would be as quiet
    log = typo(rows(), people=5)
    shop = Shop(tmp_path, log=log)
    shop.run()
    wrong = {user for user, _, _, mood, *_ in log if mood == "lukewarm"}
    assert latest(shop.home.store, "shop").set_aside == {"unknown_label": 1} == {"unknown_label": len(wrong)}


def test_a_release_of_before_there_were_gates_is_replayed_without_one(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    s = setting(str(shop.folder / "private.toml"), shop.home)
    # as a version without a gate drew it
    old = module.release_once(s.card, 1, s.plan, shop.ledger, shop.home.store, s.recipe.terms.noise())
    spent = shop.spent
    answer = shop.run()
    assert answer["replayed"] and shop.spent == spent
    proof = json.loads((Path(answer["folder"]) / "certificate.json").read_text())
    assert "gate" not in proof and proof["ledger"]["run_key"] == old.run_key
    assert plan_job(str(shop.folder / "private.toml"), shop.home)["replays"]


def test_plan_lists_the_gate_and_its_share(tmp_path):
    shop = Shop(tmp_path)
    plan = plan_job(str(shop.folder / "private.toml"), shop.home)
    assert plan["mechanisms"][0]["table"] == "set_aside"
    assert plan["rho"] <= 1.0 and plan["mechanisms"][0]["rho"] == 0.02
    spent = plan["remaining_after"]
    shop.run()
    assert float(shop.ledger.account("shop").remaining) == pytest.approx(spent)
    again = plan_job(str(shop.folder / "private.toml"), shop.home)
    assert again["replays"] and again["remaining_after"] == pytest.approx(spent)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("private", "0.1"),
        pytest.param("both", "0.02", marks=pytest.mark.slow),
        pytest.param("pure", "0.02", marks=pytest.mark.slow),
    ],
)
def test_the_whole_run_costs_no_more_than_was_asked(tmp_path, name, share):
    shop = Shop(tmp_path)
    recipe = shop.folder / f"{name}.toml"
    recipe.write_text(recipe.read_text().replace("[privacy]\n", f"[privacy]\ngate = {share}\n"))
    answer = shop.run(name)
    promise = answer["guarantee"]
    asked = promise["asked"]
    assert all(promise[loss] <= asked[loss] for loss in asked) and shop.spent <= Fraction(str(promise["rho"]))
    assert all(c.ok for c in proof_of(Path(answer["folder"]), shop.folder).checks)
    plan = plan_job(str(recipe), shop.home)
    assert plan["rho"] == pytest.approx(promise["rho"]) and plan["epsilon"] == pytest.approx(promise["epsilon"])


@pytest.mark.parametrize("version", [1, 2])
def test_a_real_card_that_says_nothing_has_a_gate_since_version_2(tmp_path, version):
    """Without one, a typo in a table of labels costs the whole budget; plan says so where it may happen."""
    shop = Shop(tmp_path, log=typo(rows()), tolerance="")
    card = shop.folder / "card.toml"
    card.write_text(card.read_text().replace("schema_version = 1", f"schema_version = {version}"))
    rules = ["unknown_label"] if version == 2 else []
    assert plan_job(str(shop.folder / "private.toml"), shop.home)["gate"] == rules
    if version == 2:
        with pytest.raises(LogError, match="the card accepts 40,"):
            shop.run()
        card.write_text(card.read_text() + "[tolerance]\n")
        assert plan_job(str(shop.folder / "private.toml"), shop.home)["gate"] == []
    shop.run()


@pytest.mark.parametrize(
    ("tolerance", "kind"),
    [
        (0.4, "real"),
        pytest.param(1, "real", marks=pytest.mark.slow),
        pytest.param(0.4, "synthetic", marks=pytest.mark.slow),
    ],
)
def test_ingest_warns_where_the_gate_may_stop_a_run(tmp_path, tolerance, kind):
    """A share of rows that ingest accepts may be rows of nearly everybody, whom the gate counts."""
    shop = Shop(tmp_path, kind=kind, log=typo(rows()), tolerance=f"[tolerance]\nunknown_label = {tolerance}\n")
    warned = "the card accepts 160: the gate of a run counts people" in said(shop, "ingest", shop.folder).stderr
    assert warned == (kind == "real" and tolerance < 1)


def test_plan_is_loud_where_nothing_stops_a_run(tmp_path):
    shop, card = Shop(tmp_path, tolerance=""), tmp_path / "shop" / "card.toml"
    plan = ("plan", shop.folder / "private.toml", "--no-quality")
    assert "gate: NONE" in said(shop, *plan).stdout
    card.write_text(card.read_text() + STRICT)
    assert "break unknown_label" in said(shop, *plan).stdout


@pytest.mark.parametrize("table", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_audit_attacks_the_gate(tmp_path, table):
    shop = Shop(tmp_path)
    found = audit(shop.folder / "private.toml", store=Store(shop.home.root), draws=1500, table=table)
    first = found.verdicts[0]
    assert first.mechanism.startswith("the gate") and not first.violates and first.attained == pytest.approx(1)
    assert first.claimed_rho == 0.02 and len(found.verdicts) > 1


def test_nothing_is_charged_for_the_gate_of_a_run_that_the_budget_does_not_allow(tmp_path):
    shop = Shop(tmp_path, cap=0.99)
    with pytest.raises(BudgetError, match=r"asked ρ = 1, left 0\.99"):
        shop.run()
    assert shop.spent == 0


def test_no_share_is_no_gate(tmp_path):
    shop = Shop(tmp_path, log=typo(rows()))
    recipe = shop.folder / "private.toml"
    recipe.write_text(recipe.read_text().replace("[privacy]\n", "[privacy]\ngate = 0.0\n"))
    assert not shop.run()["replayed"] and shop.kinds().count("INTENT") == 1


def test_synthetic_people_are_counted_exactly_and_for_nothing(tmp_path):
    shop = Shop(tmp_path, kind="synthetic", log=typo(rows(), people=6))
    with pytest.raises(LogError, match=r"rows of about \d people"):
        shop.run()
    assert shop.spent == 0
    shop.ingest(rows())
    assert "gate" not in json.loads((Path(shop.run()["folder"]) / "certificate.json").read_text())
