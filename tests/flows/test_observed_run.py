"""``run`` on real-valued observations: ingested, charged, verified, asked; CartPole in Minari's layout, ICU-Sepsis."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipeline.audits.attack import AuditTarget
from pipeline.logs.regression_sums import ObservedRows
from pipeline.logs.store import snapshots
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import OsNoise
from pipeline.statistics.linear_sums import Quantiser, StreamRows
from reticent import CardError, load_card
from tests.campaigns.cartpole_log import simulate, write_minari
from tests.flows.observed import AGENTS, PEOPLE, STEPS, cartpole, lay_out, write_log
from tests.flows.verb import invoke
from tests.jobs import foresee_job, home_at, ingest_job, plan_job, policy_of, proof_of, run_job


@pytest.fixture(scope="module")
def ran(tmp_path_factory, unread):
    root = tmp_path_factory.mktemp("observed")
    shop, home = lay_out(root / "shop", cartpole(PEOPLE, STEPS)), home_at(root / "home")
    write_minari(shop / "data", PEOPLE, STEPS)
    ingest_job(str(shop), home)
    return shop, home, {name: run_job(str(shop / f"{name}.toml"), home) for name in AGENTS}


@pytest.mark.parametrize("name", AGENTS)
def test_an_honest_run_passes_every_check(ran, name):
    shop, _, runs = ran
    checks = proof_of(Path(runs[name]["folder"]), shop).checks
    assert all(c.ok for c in checks), checks


def test_the_snapshot_holds_what_was_logged(ran):
    shop, home, _ = ran
    (snapshot,) = snapshots(home.store, "cartpole")
    rows = pl.concat([pl.read_parquet(part) for part in snapshot.part_files])
    rows = rows.sort(pl.col("user_id").str.split("#").list.last().cast(pl.Int64), "step")
    x, actions, lengths = simulate(PEOPLE, STEPS)
    assert len(rows) == lengths.sum()
    scale = np.array(load_card(shop / "card.toml").domain.observation.scales)
    here, after = (np.stack(rows[c].to_list()) for c in ("observation", "next_observation"))
    logged = np.concatenate([x[i, :n] for i, n in enumerate(lengths)]) / scale
    np.testing.assert_allclose(here, logged, rtol=1e-6)
    ahead = np.concatenate([x[i, 1 : n + 1] for i, n in enumerate(lengths)]) / scale
    np.testing.assert_allclose(after, ahead, rtol=1e-6)
    np.testing.assert_array_equal(rows["action"], np.concatenate([actions[i, :n] for i, n in enumerate(lengths)]))


def test_sums_are_those_of_the_loops_kept_or_read_anew(ran):
    shop, home, _ = ran
    card = load_card(shop / "card.toml")
    (snapshot,) = snapshots(home.store, "cartpole")
    assert card.features is not None and card.domain.observation is not None
    features = card.features.observed(1, 2, card.domain.observation)
    quantiser = Quantiser(1024, 0, 5 * 1024, (0, 1024), 100, 1024)

    def value(f: np.ndarray) -> np.ndarray:
        return np.abs(f).sum((-1, -2)) / 1000

    found = []
    for memory in (1 << 30, 1):
        rows = StreamRows(ObservedRows(snapshot, card, features, Resources(memory=memory)), features.dimension)
        extent = _extent(shop)
        found.append([rows.sums(h, "both", value, quantiser, None, extent) for h in range(STEPS)])
    for kept, anew in zip(found[0], found[1], strict=True):
        for a, b in zip(kept, anew, strict=True):
            np.testing.assert_array_equal(a, b)
    table = pl.concat([pl.read_parquet(part) for part in snapshot.part_files])
    for h in (0, STEPS - 1):
        gram, target = np.zeros((30, 30), dtype=np.int64), np.zeros(30, dtype=np.int64)
        for row in table.filter(pl.col("step") == h).iter_rows(named=True):
            here, after = (np.array([row[c]], dtype=np.float64) for c in ("observation", "next_observation"))
            f = features.of_actions(here, np.array([0]))[0, row["action"]].astype(np.int64)
            ended = row["terminated"] or h == STEPS - 1
            v = 0.0 if ended else float(value(features.of_actions(after, np.array([0])))[0])
            gram += np.outer(f, f)
            target += f * (1024 * int(row["reward"]) + int(np.floor(v * 1024 + 1e-9)) - 100)
        np.testing.assert_array_equal(found[0][h][0], gram)
        np.testing.assert_array_equal(found[0][h][1][0], target)


def _extent(shop):
    from flows.config.recipe import setting

    return setting(str(shop / "exact.toml"), home_at(shop)).plan.plan.extent()


def test_plan_charges_what_the_run_spends_and_a_replay_nothing(ran):
    shop, home, runs = ran
    planned = plan_job(str(shop / "private.toml"), home)
    assert planned["rho"] == 4.0
    again = run_job(str(shop / "private.toml"), home)
    assert again["ledger"]["spent_rho"] == pytest.approx(12.0, rel=1e-9)
    assert (Path(again["folder"]) / "policy.parquet").read_bytes() == (
        Path(runs["private"]["folder"]) / "policy.parquet"
    ).read_bytes()


def test_act_takes_an_observation_and_says_what_the_table_says(ran):
    _, home, runs = ran
    folder = Path(runs["exact"]["folder"])
    stored = policy_of(folder)
    names = stored.labels["states"]
    for h in (0, 3):
        for s, name in enumerate(names[:9]):
            x = np.array([[float(t) for t in name.strip("()").split(", ")]])
            advice = stored.act(x, np.array([h]), np.array([0]))[0]
            shown = stored.shown_at.policy
            if shown.abstains[h, s]:
                assert advice["action"] is None
            elif not advice["tie"]:
                assert advice["action"] == stored.labels["actions"][int(shown.probabilities[h, s].argmax())]
    run = lambda *more: invoke("--home", home.root, "policy", "act", folder, *more)  # noqa: E731
    done = run("--observation", "0, 0, 0.05, 0.4", "--step", "1", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["action"] in ("left", "right")
    far = run("--observation", "0, 0, 9, 0", "--step", "1")
    assert "longer than declared" in far.output
    wrong = (("--state", "anywhere", "--step", "1"), ("--observation", "0, 0", "--step", "1"))
    for more in (*wrong, ("--observation", "0, 0, 0, 0", "--step", "77")):
        assert isinstance(run(*more).exception, CardError)
    for verb in (["policy", "show", str(folder)], ["ledger", "verify", str(folder)]):
        done = invoke("--home", home.root, *verb)
        assert done.exit_code == 0, done.output


def test_the_mechanism_is_attacked_at_its_own_price(ran):
    from flows.config.recipe import setting

    shop, home, _ = ran
    (target,) = setting(str(shop / "private.toml"), home).plan.targets(OsNoise())
    assert isinstance(target, AuditTarget)
    # a plan of two steps stands for all: two of them cost two of six parts
    assert 0 < target.claimed_rho <= 4


def test_its_quality_is_foreseen_in_a_made_up_world_of_observations(tmp_path, few, rivals):
    # many people learn there, forty do not
    shop, home = lay_out(tmp_path / "shop", cartpole(40_000, 4)), home_at(tmp_path / "home")
    for name in ("private", "private_once"):
        told, alone = (foresee_job(str(shop / f"{name}.toml"), home, people=n) for n in (None, 40))
        assert told["world"].startswith("a made-up world: 64 observations") and "reason" not in told
        lost = max(told[way]["mean"] for way in ("without_noise", "suboptimality"))
        assert lost < 0.1 * told["reference"]["suboptimality"]
        assert alone["suboptimality"]["mean"] > 0.5 * alone["reference"]["suboptimality"]
        # agents of counts would be simulated in another world
        assert all("apvi" not in rival["agent"] or "vapvi" in rival["agent"] for rival in told["rivals"])
    assert "halves" in foresee_job(str(shop / "halves.toml"), home)["reason"]


def test_waves_run_too(tmp_path):
    """As affine features do in test_observed_held_out."""
    both = {name: AGENTS[name] for name in ("exact", "private")}
    shop, home = lay_out(tmp_path / "shop", cartpole(100, 3, "fourier"), both), home_at(tmp_path / "home")
    write_log(shop, 100, 3)
    ingest_job(str(shop), home)
    for name in both:
        checks = proof_of(Path(run_job(str(shop / f"{name}.toml"), home)["folder"]), shop).checks
        assert all(c.ok for c in checks), checks


WRONG = {
    "no observation": (('column = "observations"', 'columns = ["a", "b", "c"]'), "dimension"),
    "tabular features": (('kind = "quadratic"', 'kind = "one_hot"'), "features of an observation"),
    "waves alone": (('kind = "quadratic"', 'kind = "quadratic"\nwaves = 3'), "belong to kind = 'fourier'"),
    "first": (("[[0.0, 0.0, 0.0, 0.0]]", "[[0.0, 0.0]]"), "4 finite numbers"),
    "next state": (('step = "step"', 'step = "step", next_state = "n"'), "needs declared states"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_card_is_said(tmp_path, name):
    change, words = WRONG[name]
    card = cartpole(100, 3)
    shop = lay_out(tmp_path / "shop", card.replace(*change))
    with pytest.raises(CardError, match=words):
        load_card(shop / "card.toml")


def test_values_are_fitted_by_no_more_features_than_there_are_public_observations(tmp_path):
    card = cartpole(100, 3, "fourier").replace("waves = 6", "waves = 60")
    shop = lay_out(tmp_path / "shop", card, {"private": AGENTS["private_once"]})
    with pytest.raises(CardError, match="declare fewer features"):
        plan_job(str(shop / "private.toml"), home_at(tmp_path / "home"))
