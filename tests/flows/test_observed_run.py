"""``run`` on real-valued observations: ingested, charged, verified, asked; CartPole in Minari's layout, ICU-Sepsis."""

import json
import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.config.recipe import Setting, setting
from pipeline.audits.attack import AuditTarget, attack
from pipeline.ledger.verify import verify_run
from pipeline.logs.regression_sums import ObservedRows
from pipeline.logs.store import snapshots
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import FastOsNoise, OsNoise
from pipeline.privacy.release_file import read_release
from pipeline.statistics.held_out import held_out_loss
from pipeline.statistics.linear_plan import declared_map
from pipeline.statistics.linear_sums import Quantiser, StreamRows
from reticent import CardError, load_card, load_recipe
from tests.campaigns.cartpole_log import simulate, write_minari
from tests.flows.observed import AGENTS, PEOPLE, ROOT, STEPS, cartpole, ingested, lay_out
from tests.flows.shop import HELD, bare_recipe, plain_card, run_on_card
from tests.flows.verb import answer, invoke, told
from tests.jobs import foresee_job, home_at, ingest_job, ledger_of, plan_job, policy_of, proof_of, run_job


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
        extent = setting(str(shop / "exact.toml"), home_at(shop)).plan.plan.extent()
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


def test_plan_charges_what_the_run_spends_and_a_replay_nothing(ran):
    shop, home, runs = ran
    assert plan_job(str(shop / "private.toml"), home)["rho"] == 4.0
    again = run_job(str(shop / "private.toml"), home)
    assert again["ledger"]["spent_rho"] == pytest.approx(12.0, rel=1e-9)
    policies = [(Path(run["folder"]) / "policy.parquet").read_bytes() for run in (again, runs["private"])]
    assert policies[0] == policies[1]


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
    said = answer(home.root, "policy", "act", folder, "--observation", "0, 0, 0.05, 0.4", "--step", 1)
    assert said["action"] in ("left", "right")
    assert "longer than declared" in run("--observation", "0, 0, 9, 0", "--step", "1").output
    wrong = (("--state", "anywhere", "--step", "1"), ("--observation", "0, 0", "--step", "1"))
    for more in (*wrong, ("--observation", "0, 0, 0, 0", "--step", "77")):
        assert isinstance(run(*more).exception, CardError)
    for verb in ("policy", "show"), ("ledger", "verify"):
        answer(home.root, *verb, folder)


def test_the_mechanism_is_attacked_at_its_own_price(ran):
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
    """As affine features do where people judge."""
    both = {name: AGENTS[name] for name in ("exact", "private")}
    shop, home = ingested(tmp_path, 100, 3, both, "fourier")
    for name in both:
        checks = proof_of(Path(run_job(str(shop / f"{name}.toml"), home)["folder"]), shop).checks
        assert all(c.ok for c in checks), checks


WRONG = {
    "no observation": (('column = "observations"', 'columns = ["a", "b", "c"]'), "dimension"),
    "tabular features": (('kind = "quadratic"', 'kind = "one_hot"'), "features of an observation"),
    "waves alone": (('kind = "quadratic"', 'kind = "quadratic"\nwaves = 3'), "belong to kind = 'fourier'"),
    "first": (("[[0.0, 0.0, 0.0, 0.0]]", "[[0.0, 0.0]]"), "4 finite numbers"),
    "next state": (('step = "step"', 'step = "step", next_state = "n"'), "needs declared states"),
    "center": (("radius =", "center = [1.0]\nradius ="), "'center' has 1 entries, the dimension is 4"),
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


def icu_card(people: int, steps: int) -> str:
    shipped = tomllib.loads((ROOT / "datasets" / "icu_sepsis" / "card.toml").read_text())
    assert len(shipped["domain"]["actions"]["labels"]) == 25
    centers = ", ".join(f'"center_{i:02}"' for i in range(47))
    actions = ", ".join(f"[2, {fluid}, {pressor}]" for fluid in range(-2, 3) for pressor in range(-2, 3))
    return f"""
schema_version = 2
name = "icu_observed"
kind = "synthetic"
unit = {{ user = "user_id", users_public = {people} }}
features = {{ kind = "affine", actions = [{actions}] }}
reward = {{ range = [0.0, 1.0], steps = 1, total = 1.0 }}
budget = {{ rho = 100.0, delta = 1e-6 }}
[domain]
horizon = {steps}
states = {{ column = "sofa", bins = {{ by = "sofa", edges = [0.0] }}, ends = ["died", "survived", "end"] }}
observation = {{ columns = [{centers}], radius = 6.0 }}
actions = {{ column = "action", labels = 25 }}
start = {{ "sofa < 0" = 0.5, "sofa ≥ 0" = 0.5 }}
[source]
files = ["log.parquet"]
columns = {{ user_id = "user_id", episode_id = "episode_id", step = "step", reward = "reward", terminated = "over" }}
"""


@pytest.mark.slow
def test_icu_sepsis_runs_on_its_47_numbers_crossed_with_bins(tmp_path, few):
    folder, people, steps = ROOT / "datasets" / "icu_sepsis", 300, 2
    log = pl.read_parquet(folder / "episodes-0000.parquet")
    log = log.filter((pl.col("user_id") < people) & (pl.col("step") < steps))
    numbers = pl.read_parquet(folder / "states.parquet")
    survived = (pl.col("next_state") == "survived").fill_null(value=False)
    over = pl.col("next_state").is_in(["died", "survived"]).fill_null(value=False)
    log = log.with_columns(pl.col("state").cast(pl.String), reward=survived.cast(pl.Float64), over=over)
    joined = log.join(numbers.with_columns(pl.col("state").cast(pl.String)), on="state", how="left")
    agents = {"private": ("dp-vapvi", "[privacy]\nrho = 8.0"), "private_once": AGENTS["private_once"]}
    shop = lay_out(tmp_path / "shop", icu_card(people, steps), agents)
    joined = joined.with_columns(pl.col("center_00").alias("sofa")).drop("state", "next_state")
    joined.write_parquet(shop / "log.parquet")
    home = home_at(tmp_path / "home")
    found = ingest_job(str(shop), home)
    assert found["users"] == people and set(found["quarantined"]) <= {"beyond_radius"}
    for name in ("private", "private_once"):
        folder_of_run = Path(run_job(str(shop / f"{name}.toml"), home)["folder"])
        stored = policy_of(folder_of_run)
        assert stored.features.dimension == 2 * 48 * 3
        told = stored.act(numbers.select(pl.exclude("state")).to_numpy()[:20], np.zeros(20, int), np.zeros(20, int))
        assert all(a["abstains"] or a["action"] in stored.labels["actions"] for a in told)
        with pytest.raises(CardError, match="--state must be one of"):
            stored.state_index(None)
        checks = verify_run(folder_of_run, ledger_of(home).entries())
        assert all(c.ok for c in checks), checks
    told = foresee_job(str(shop / "private_once.toml"), home)
    # so few people and so many numbers: the forecast says that nothing is learnt
    assert told["suboptimality"]["mean"] > 0.5 * told["reference"]["suboptimality"] > 0


def stands(stored: Any, steps: int, episodes: int = 200) -> float:
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
    shop, home = ingested(tmp_path, people, steps, {"exact": AGENTS["exact"]})
    stored = policy_of(Path(run_job(str(shop / "exact.toml"), home)["folder"]))
    assert simulate(people, steps)[2].mean() < 28.5 and stands(stored, steps) > 29.5


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_privately_40_000_episodes_are_enough(tmp_path):
    # 20.0 in five draws of five; at rho = 2 seven gave 18.7 to 20.0, three below the log's 19.3: its chance is settled
    shop, home = ingested(tmp_path, 40_000, 20, {"private": ("dp-vapvi", "[privacy]\nrho = 8.0")})
    stored = policy_of(Path(run_job(str(shop / "private.toml"), home)["folder"]))
    assert stands(stored, 20) > simulate(2000, 20)[2].mean()


CENTER = np.array([120.0, 80.0])
SUGAR = """
schema_version = 2
name = "sugar"
kind = "synthetic"
unit = {{ user = "pid", users_public = 300 }}
reward = {{ range = [0.0, 1.0], steps = 1 }}
features = {{ kind = "quadratic" }}
source.files = ["log.csv"]
source.columns = {{ user_id = "pid", episode_id = "pid", step = "visit", reward = "ok" }}
budget = {{ rho = 2.0, delta = 1e-6, ledger = "home" }}
[domain]
horizon = 3
first_observations = [{first}]
states = {{ ends = ["end"] }}
actions = {{ column = "drug", labels = ["diet", "insulin"] }}
[domain.observation]
columns = ["glucose", "weight"]
scale = [64.0, 32.0]
radius = 1.5
{center}
"""


def lay_out_sugar(folder, by, center):
    """A log whose numbers are moved by ``by``, all of them multiples of 1/8: no arithmetic rounds them."""
    rng = np.random.default_rng(3)
    x = rng.integers(-500, 500, (300, 3, 2)) / 8 + by
    rows = [(u, t, *x[u, t], ("diet", "insulin")[(u + t) % 2]) for u in range(300) for t in range(3)]
    high = np.where(np.arange(900) // 3 % 2, x.reshape(-1, 2)[:, 0] > by[0], x.reshape(-1, 2)[:, 1] > by[1])
    folder.mkdir()
    names = ["pid", "visit", "glucose", "weight", "drug"]
    pl.DataFrame(rows, orient="row", schema=names).with_columns(ok=pl.Series(high.astype(int))).write_csv(
        folder / "log.csv"
    )
    (folder / "card.toml").write_text(SUGAR.format(first=[float(by[0]) + 16, float(by[1]) + 8], center=center))
    bare_recipe(folder, "recipe", "vapvi")
    return folder


def learn(folder):
    home = home_at(folder / "home")
    ingest_job(str(folder), home)
    run = run_job(str(folder / "recipe.toml"), home)
    (snapshot,) = snapshots(home.store, "sugar")
    rows = pl.concat([pl.read_parquet(part) for part in snapshot.part_files]).sort("user_id", "step")
    return rows, policy_of(home.runs / run["run"])


def test_a_center_moves_the_log_the_first_observations_and_the_policy(tmp_path):
    rows, plain = learn(lay_out_sugar(tmp_path / "plain", np.zeros(2), ""))
    same, moved = learn(lay_out_sugar(tmp_path / "moved", CENTER, f"center = {CENTER.tolist()}"))
    assert rows.equals(same)
    asked = np.random.default_rng(0).normal(0, 40, (50, 2)).round(0)
    steps, states = np.arange(50) % 3, np.zeros(50, dtype=int)
    advice, told = plain.act(asked, steps, states), moved.act(asked + CENTER, steps, states)
    keys = "step", "action", "advice", "tie", "outside"
    assert [[a[k] for k in keys] for a in advice] == [[a[k] for k in keys] for a in told]
    assert {a["outside"] for a in told} == {True, False} and len({a["action"] for a in told}) == 2
    # without it most lie beyond the ball
    _, lost = learn(lay_out_sugar(tmp_path / "lost", CENTER, ""))
    beyond = [sum(a["outside"] for a in of.act(asked + CENTER, steps, states)) for of in (moved, lost)]
    assert 3 * beyond[0] < beyond[1], beyond
    hashes = {load_card(tmp_path / name / "card.toml").domain_hash() for name in ("moved", "lost")}
    assert len(hashes) == 2, "a center is part of the domain"


# one number decides who is treated and how they fare, both around one value; what is done changes nothing
PEAK = plain_card(
    "peak", "id", 40_000, 1, actions='column = "treated", labels = ["no", "yes"]', columns='reward = "well"',
    top='features = { kind = "fourier", waves = 4, bandwidth = 1.0, seed = 0 }\ntolerance = {}',
    domain='practice = "recorded"\nobservation = { columns = ["level"], scale = [1.0], radius = 2.0 }',
)  # fmt: skip
SEEN = 'observation = { columns = ["x"], scale = [1.0], radius = 1.0 }'
MANY, FEW_STEPS = 3000, 5
JUDGED = {
    "adaptive": ("dp-vapvi", f"[privacy]\nrho = 4.0\n{HELD}"),
    "once": ("dp-one-shot", f"[privacy]\nrho = 4.0\n{HELD}"),
    "bare": ("vapvi", HELD),
    "halves": ("dp-vapvi", f"[privacy]\nrho = 4.0\n[linear]\nhalves = true\n{HELD}"),
}


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    shop, home = ingested(tmp_path_factory.mktemp("judged"), MANY, FEW_STEPS, JUDGED, "affine")
    return shop, home, {name: run_job(str(shop / f"{name}.toml"), home) for name in JUDGED if name != "halves"}


@pytest.mark.parametrize("name", ["adaptive", "once", "bare"])
def test_other_people_say_what_the_policy_is_worth_and_every_check_passes(pole, name):
    shop, _, runs = pole
    assert not [c for c in proof_of(Path(runs[name]["folder"]), shop).checks if not c.ok]
    found = told(shop.parent, runs[name]["run"])["evaluation"]
    assert found["estimator"] == "observed-dr"
    assert found["practice"]["lower"] <= FEW_STEPS <= found["practice"]["upper"] + 1
    assert abs(found["misfit"]) < 20 and "placebo" in found and found["placebo"] is None
    assert found["calibrated"] is False, "900 people who judge are too few"


@pytest.mark.parametrize("name", ["adaptive", "once"])
def test_what_both_parts_cost_is_computed_again_and_a_replay_is_free(pole, name):
    shop, home, runs = pole
    folder = Path(runs[name]["folder"])
    release, labels = read_release(folder), json.loads((folder / "policy.json").read_text())
    assert release.joint_rho is not None and release.joint is not None
    again = held_out_loss(release.mechanisms, release.joint, declared_map(labels["features"]))
    assert Fraction(99, 100) * 4 < again <= release.joint_rho <= 4
    assert plan_job(str(shop / f"{name}.toml"), home)["rho"] == pytest.approx(4.0, rel=0.01)
    replayed = run_job(str(shop / f"{name}.toml"), home)
    assert replayed["run"] == runs[name]["run"]
    assert replayed["ledger"]["spent_rho"] <= 8.0


def test_an_audit_attacks_both_stages_and_finds_a_quarter_of_the_noise(pole):
    shop, home, _ = pole
    card, recipe = load_card(shop / "card.toml"), load_recipe(shop / "once.toml")
    moved, scored = Setting(recipe, card, home).plan.evaluation.targets(FastOsNoise())
    assert "moments of observed features" in moved.mechanism and "scores of people" in scored.mechanism
    sound = attack(moved, FastOsNoise(), 400)
    assert not sound.violates and sound.lower_bound_rho < sound.claimed_rho

    def quiet(side, noise, copies):
        drawn = moved.path(side, noise, copies)
        return [means[side] + (table - means[side]) / 4 for table, means in zip(drawn, both, strict=True)]

    both = list(zip(*moved.means, strict=True))
    assert attack(replace(moved, path=quiet), FastOsNoise(), 400).violates


def test_halves_are_refused_before_anything_is_charged(pole):
    shop, home, _ = pole
    with pytest.raises(CardError, match="splits people as well"):
        run_job(str(shop / "halves.toml"), home)


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_better_rests_on_features_where_outcomes_bend_unseen(tmp_path):
    """Where nothing shows, the check speaks in three runs of a hundred: its chance is settled."""
    g, people = np.random.default_rng(1), 40_000
    level = g.normal(scale=0.5, size=people)
    treated = g.random(people) < np.where(abs(level) < 0.3, 0.9, 0.1)
    well = g.random(people) < 0.3 + 0.5 * np.exp(-4 * level**2)
    log = {"id": range(people), "level": level, "treated": np.where(treated, "yes", "no"), "well": well * 1.0}
    folder = lay_out(tmp_path, PEAK, {"peak": ("dp-vapvi", f"[privacy]\nrho = 1.0\n{HELD}")})
    pl.DataFrame(log).write_parquet(folder / "log.parquet")
    verdict = run_on_card(folder / "peak.toml").verdict
    # nothing is better: the check of what features leave out is silent here
    assert verdict.answer == "better" and not verdict.holds
    assert verdict.conditions == ["the declared features describe the values"]


@pytest.mark.parametrize("observed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_last_step_counts_where_steps_are_alike_and_no_column_names_the_next_state(tmp_path, observed):
    g, people = np.random.default_rng(1), 20_000
    log = []
    for t in range(2):
        x, a = g.choice([-1.0, 1.0], people), g.integers(0, 2, people)
        paid = g.random(people) < 0.5 + 0.25 * x * (2 * a - 1)
        state = np.where(x < 0, "low", "high")
        log.append(pl.DataFrame({"u": range(people), "t": t, "x": x, "s": state, "a": a, "y": paid * 1.0}))
    pl.concat(log).write_parquet(tmp_path / "log.parquet")
    states, features = ("", "affine") if observed else ('column = "s", labels = ["low", "high"], ', "one_hot")
    # steps are alike, and no column names the next state
    card = plain_card(
        "alike", "u", people, 2, states=states, actions='column = "a", labels = 2',
        columns='episode_id = "u", step = "t", reward = "y"',
        top=f'features = {{ kind = "{features}" }}\ntolerance = {{}}',
        domain=f'dynamics = "stationary"\n{SEEN * observed}',
    )  # fmt: skip
    (tmp_path / "card.toml").write_text(card)
    recipe = bare_recipe(tmp_path, "alike", "dp-vapvi", "[privacy]\nrho = 1.0\n[evaluate]\npeople = 0.5")
    verdict = run_on_card(recipe).verdict
    # each of two steps gains a quarter
    assert verdict is not None and verdict.answer == "better", verdict
    assert verdict.improvement is not None and verdict.improvement.lower > 0.35
