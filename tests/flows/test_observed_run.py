"""``run`` on real-valued observations: ingested, charged, verified, asked; CartPole in Minari's layout, ICU-Sepsis."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.config.home import Home
from flows.jobs.foresight import forecast_quality
from flows.jobs.intake import ingest_job
from pipeline.audits.attack import AuditTarget
from pipeline.declaration.card import CardError, load_card
from pipeline.learners.observed_policy import StoredObserved
from pipeline.learners.offline_agents import read_stored
from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.verify import verify_run
from pipeline.logs.observed_rows import ObservedRows
from pipeline.logs.store import snapshots
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import OsNoise
from pipeline.statistics.regression_rows import Quantiser, StreamRows
from tests.campaigns.cartpole_log import simulate, write_minari
from tests.flows.verb import invoke
from tests.jobs import plan_job, run_job

ROOT = Path(__file__).parents[2]
AGENTS = {
    "exact": ("vapvi", ""),
    "plain": ("pevi", ""),
    "private": ("dp-vapvi", "[privacy]\nrho = 4.0"),
    "halves": ("dp-vapvi", "[privacy]\nrho = 4.0\n[linear]\nhalves = true"),
    "once": ("one-shot", ""),
    "private_once": ("dp-one-shot", "[privacy]\nrho = 4.0"),
}
PEOPLE, STEPS = 400, 6


def lay_out(folder: Path, card: str, agents=AGENTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.toml").write_text(card)
    for name, (agent, rest) in agents.items():
        recipe = f'[recipe]\nname = "{name}"\ncard = "card.toml"\nagent = "{agent}"\n{rest}\n'
        (folder / f"{name}.toml").write_text(recipe)
    return folder


def cartpole(people: int, steps: int, kind: str = "quadratic") -> str:
    card = (ROOT / "datasets" / "cartpole" / "card.toml").read_text()
    card = card.replace("users_public = 40000", f"users_public = {people}").replace(
        "horizon = 20", f"horizon = {steps}"
    )
    waves = "\nwaves = 6\nbandwidth = 0.5\nseed = 4" if kind == "fourier" else ""
    return card.replace('kind = "quadratic"', f'kind = "{kind}"{waves}').replace("rho = 8.0", "rho = 100.0")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    root = tmp_path_factory.mktemp("observed")
    shop, home = lay_out(root / "shop", cartpole(PEOPLE, STEPS)), Home(root / "home")
    write_minari(shop / "data", PEOPLE, STEPS)
    ingest_job(str(shop), home)
    return shop, home, {name: run_job(str(shop / f"{name}.toml"), home) for name in AGENTS}


@pytest.mark.parametrize("name", AGENTS)
def test_an_honest_run_passes_every_check(ran, name):
    _, home, runs = ran
    checks = verify_run(Path(runs[name]["folder"]), open_ledger(home.root / "ledger.db", create=False).entries())
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
    from flows.config.setting import setting

    return setting(str(shop / "exact.toml"), Home(shop)).plan.request.plan.extent()


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
    stored = read_stored(folder)
    assert isinstance(stored, StoredObserved)
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
    from flows.config.setting import setting

    shop, home, _ = ran
    (target,) = setting(str(shop / "private.toml"), home).plan.targets(OsNoise())
    assert isinstance(target, AuditTarget)
    # a plan of two steps stands for all: two of them cost two of six parts
    assert 0 < target.claimed_rho <= 4


def test_its_quality_is_foreseen_in_a_made_up_world_of_observations(tmp_path):
    # many people learn there, forty do not
    shop, home = lay_out(tmp_path / "shop", cartpole(40_000, 4)), Home(tmp_path / "home")
    for name in ("private", "private_once"):
        told, few = (forecast_quality(str(shop / f"{name}.toml"), home, people=n) for n in (None, 40))
        assert told.world.startswith("a made-up world: 64 observations") and told.reason is None
        assert max(told.without_noise.mean, told.suboptimality.mean) < 0.1 * told.reference.suboptimality
        assert few.suboptimality.mean > 0.5 * few.reference.suboptimality
        # agents of counts would be simulated in another world
        assert all("apvi" not in rival.agent or "vapvi" in rival.agent for rival in told.rivals)
    assert "halves" in forecast_quality(str(shop / "halves.toml"), home).reason


@pytest.mark.parametrize("kind", ["affine", "fourier"])
def test_other_features_run_too(tmp_path, kind):
    shop = lay_out(tmp_path / "shop", cartpole(100, 3, kind), {"exact": AGENTS["exact"], "private": AGENTS["private"]})
    write_minari(shop / "data", 100, 3)
    home = Home(tmp_path / "home")
    ingest_job(str(shop), home)
    for name in ("exact", "private"):
        folder = Path(run_job(str(shop / f"{name}.toml"), home)["folder"])
        checks = verify_run(folder, open_ledger(home.root / "ledger.db", create=False).entries())
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
        plan_job(str(shop / "private.toml"), Home(tmp_path / "home"))


def icu_card(people: int, steps: int) -> str:
    shipped = tomllib.loads((ROOT / "datasets" / "icu_sepsis" / "card.toml").read_text())
    assert shipped["domain"]["actions"]["labels"] == 25
    centers = ", ".join(f'"center_{i:02}"' for i in range(47))
    actions = ", ".join(f"[2, {fluid}, {pressor}]" for fluid in range(-2, 3) for pressor in range(-2, 3))
    return f"""
schema_version = 2
name = "icu_observed"
kind = "synthetic"
[unit]
user = "user_id"
users_public = {people}
[domain]
horizon = {steps}
states = {{ column = "sofa", bins = {{ by = "sofa", edges = [0.0] }}, ends = ["died", "survived", "end"] }}
observation = {{ columns = [{centers}], radius = 6.0 }}
actions = {{ column = "action", labels = 25 }}
start = {{ "sofa < 0" = 0.5, "sofa ≥ 0" = 0.5 }}
[features]
kind = "affine"
actions = [{actions}]
[reward]
range = [0.0, 1.0]
steps = 1
total = 1.0
[source]
files = ["log.parquet"]
columns = {{ user_id = "user_id", episode_id = "episode_id", step = "step", reward = "reward", terminated = "over" }}
[budget]
rho = 100.0
delta = 1e-6
"""


@pytest.mark.slow
def test_icu_sepsis_runs_on_its_47_numbers_crossed_with_bins(tmp_path):
    folder, people, steps = ROOT / "datasets" / "icu_sepsis", 300, 4
    log = pl.read_parquet(folder / "episodes-0000.parquet").filter(
        (pl.col("user_id") < people) & (pl.col("step") < steps)
    )
    numbers = pl.read_parquet(folder / "states.parquet")
    survived = (pl.col("next_state") == "survived").fill_null(value=False)
    over = pl.col("next_state").is_in(["died", "survived"]).fill_null(value=False)
    log = log.with_columns(
        pl.col("state").cast(pl.String), survived.cast(pl.Float64).alias("reward"), over.alias("over")
    )
    joined = log.join(numbers.with_columns(pl.col("state").cast(pl.String)), on="state", how="left")
    shop = lay_out(
        tmp_path / "shop",
        icu_card(people, steps),
        {
            "exact": AGENTS["exact"],
            "private": ("dp-vapvi", "[privacy]\nrho = 8.0"),
            "private_once": AGENTS["private_once"],
        },
    )
    joined.with_columns(pl.col("center_00").alias("sofa")).drop("state", "next_state").write_parquet(
        shop / "log.parquet"
    )
    home = Home(tmp_path / "home")
    found = ingest_job(str(shop), home)
    assert found["users"] == people and set(found["quarantined"]) <= {"beyond_radius"}
    for name in ("exact", "private", "private_once"):
        folder_of_run = Path(run_job(str(shop / f"{name}.toml"), home)["folder"])
        stored = read_stored(folder_of_run)
        assert isinstance(stored, StoredObserved)
        assert stored.features.dimension == 2 * 48 * 3
        told = stored.act(numbers.select(pl.exclude("state")).to_numpy()[:20], np.zeros(20, int), np.zeros(20, int))
        assert all(a["abstains"] or a["action"] in stored.labels["actions"] for a in told)
        with pytest.raises(CardError, match="--state must be one of"):
            stored.state_index(None)
        checks = verify_run(folder_of_run, open_ledger(home.root / "ledger.db", create=False).entries())
        assert all(c.ok for c in checks), checks
    told = forecast_quality(str(shop / "private_once.toml"), home)
    # so few people and so many numbers: the forecast says that nothing is learnt
    assert told.suboptimality.mean > 0.5 * told.reference.suboptimality > 0


def stands(stored: StoredObserved, steps: int, episodes: int = 200) -> float:
    """Mean number of steps that the pole stands under a policy."""
    import gymnasium

    env = gymnasium.make_vec("CartPole-v1", num_envs=episodes, vectorization_mode="vector_entry_point")
    seen, _ = env.reset(seed=99)
    alive, stood = np.ones(episodes, dtype=bool), 0
    for h in range(steps):
        said = stored.act(seen.astype(np.float64), np.full(episodes, h), np.zeros(episodes, dtype=np.int64))
        actions = np.array([int(s["action"] == "right") for s in said])
        seen, _, fallen, _, _ = env.step(actions)
        stood += int(alive.sum())
        alive &= ~fallen
    return stood / episodes


@pytest.mark.slow
def test_without_noise_it_keeps_the_pole_up_where_the_log_lets_it_fall(tmp_path):
    """Twelve hundred episodes of thirty steps: the log's pole stands 27 of them."""
    people, steps = 1200, 30
    shop, home = (
        lay_out(tmp_path / "shop", cartpole(people, steps), {"exact": AGENTS["exact"]}),
        Home(tmp_path / "home"),
    )
    write_minari(shop / "data", people, steps)
    ingest_job(str(shop), home)
    stored = read_stored(Path(run_job(str(shop / "exact.toml"), home)["folder"]))
    assert isinstance(stored, StoredObserved)
    logged = simulate(people, steps)[2].mean()
    assert logged < 28.5
    assert stands(stored, steps) > 29.5


@pytest.mark.slow
def test_privately_40_000_episodes_are_enough(tmp_path):
    # 20.0 in five draws of five; at rho = 2 seven gave 18.7 to 20.0, three below the log's 19.3
    shop, home = (
        lay_out(tmp_path / "shop", cartpole(40_000, 20), {"private": ("dp-vapvi", "[privacy]\nrho = 8.0")}),
        Home(tmp_path / "home"),
    )
    write_minari(shop / "data", 40_000, 20)
    ingest_job(str(shop), home)
    stored = read_stored(Path(run_job(str(shop / "private.toml"), home)["folder"]))
    assert isinstance(stored, StoredObserved)
    assert stands(stored, 20) > simulate(2000, 20)[2].mean()
