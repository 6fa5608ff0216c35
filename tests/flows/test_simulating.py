"""``simulate``: a folder that can be ingested and run at once, with the truth beside; nothing foreign is lost."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from flows.jobs.simulated_logs import world_folder
from pipeline.worlds.catalog import WORLDS, load_world
from pipeline.worlds.world import world_values
from reticent import CardError, LogOptions, load_card
from tests.flows.verb import answer, refusal, reticent
from tests.jobs import home_at, ingest_job, run_job, simulate_logs

pytestmark = pytest.mark.usefixtures("unread")

SHELF = Path(__file__).resolve().parents[2] / "datasets"


@pytest.mark.parametrize(
    ("world", "asked", "v_star", "v_behavior"),
    [
        ("riverswim", LogOptions(behaviour="right-0.8", episodes=300), 3.397264, 0.644557),
        ("riverswim_inhomogeneous", LogOptions(episodes=300, params=("states=5",)), 0.494385, 0.022697),
        ("random", LogOptions(episodes=300, params=("reward=last", "states=4", "horizon=5")), None, None),
        pytest.param(
            *("icu_sepsis", LogOptions(episodes=300, bins="8", behaviour="clinician", horizon=10), 0.6364, 0.5292),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_simulated_lineage_runs_at_once_and_its_report_tells_the_truth(tmp_path, world, asked, v_star, v_behavior):
    home = home_at(tmp_path / "home", SHELF)
    made = simulate_logs(world, asked, home)
    assert {"episodes", "dataset", "card", "files"} <= set(made) and made["episodes"] == 300
    assert made["values"]["optimal"] > made["values"]["uniform"]
    assert Path(made["folder"]).parent == home.root / "simulated"
    s = ingest_job(made["folder"], home)
    assert (s["users"], s["episodes"]) == (300, 300) and not any(s["quarantined"].values())
    r = run_job(made["recipe"], home)
    assert r["truth"]["v_star"] == pytest.approx(made["values"]["optimal"], abs=1e-9)
    assert r["truth"]["v_behavior"] == pytest.approx(made["values"][made["behaviour"]], abs=1e-9)
    assert r["truth"]["v_uniform"] == pytest.approx(made["values"]["uniform"], abs=1e-9)
    if v_star is not None:
        assert r["truth"]["v_star"] == pytest.approx(v_star, abs=5e-5)
        assert r["truth"]["v_behavior"] == pytest.approx(v_behavior, abs=5e-5)


@pytest.mark.slow
def test_a_lineage_of_all_states_has_their_features_beside_its_card(tmp_path: Path):
    home = home_at(tmp_path / "home", SHELF)
    made = simulate_logs("icu_sepsis", LogOptions("clinician", 200, bins="all"), home)
    card = load_card(Path(made["card"]))
    shipped = load_card(SHELF / "icu_sepsis" / "card.toml")
    np.testing.assert_array_equal(card.domain.state_features, shipped.domain.state_features)
    assert card.reward.on_entering == shipped.reward.on_entering
    s = ingest_job(made["folder"], home)
    assert s["users"] == 200 and not any(s["quarantined"].values())


def test_a_gymnasium_lineage_runs_at_once(tmp_path: Path):
    home = home_at(tmp_path / "home")
    asked = LogOptions("near-optimal-0.3", 300, 12, 1, params=("is_slippery=true",), episodes_per_user=2, name="cliff")
    made = simulate_logs("gymnasium:CliffWalking-v1", asked, home)
    s = ingest_job(made["folder"], home)
    assert (s["users"], s["episodes"]) == (150, 300) and not any(s["quarantined"].values())
    truth = run_job(made["recipe"], home)["truth"]
    assert truth["v_star"] == pytest.approx(made["values"]["optimal"], abs=1e-9) and truth["v_star"] < -11


def test_the_world_file_says_which_world_and_how_it_was_logged(tmp_path: Path):
    asked = LogOptions("uniform", 20, seed=5, params=("states=4",), name="four", to=tmp_path / "four")
    simulate_logs("riverswim", asked, home_at(tmp_path / "home"))
    told = tomllib.loads((tmp_path / "four" / "world.toml").read_text())
    log = {"horizon": 20, "episodes": 20, "episodes_per_user": 1, "seed": 5}
    assert told == {"name": "riverswim", "behaviour": "uniform", "log": log, "params": {"states": 4}}
    readme = (tmp_path / "four" / "README.md").read_text()
    assert "reticent simulate riverswim --logs --behaviour uniform --episodes 20 --seed 5" in readme
    assert "| optimal |" in readme and "| uniform |" in readme
    assert not (tmp_path / "home").exists()


def test_the_same_request_writes_the_same_bytes_and_another_seed_another_lineage(tmp_path: Path):
    def made(seed: int, place: str) -> tuple[str, dict[str, bytes]]:
        r = simulate_logs("random", LogOptions(episodes=50, seed=seed), home_at(tmp_path / place))
        return r["dataset"], {p.name: p.read_bytes() for p in Path(r["folder"]).iterdir()}

    first, again, other = made(1, "a"), made(1, "b"), made(2, "c")
    assert first == again
    assert first[0] != other[0] and first[1]["episodes-0000.parquet"] != other[1]["episodes-0000.parquet"]
    # a second time into the same place replaces, and leaves nothing behind
    assert made(1, "a") == first


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "card.toml").write_text('name = "mine"\n')
    with pytest.raises(CardError, match="holds no simulated log"):
        simulate_logs("random", LogOptions(episodes=5, to=tmp_path / "mine"), home_at(tmp_path / "home"))
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["card.toml"]
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.slow
def test_a_shipped_name_alone_writes_the_shipped_log_and_with_an_option_a_new_lineage(tmp_path: Path):
    home = home_at(tmp_path / "home", SHELF)
    shipped = simulate_logs("riverswim", LogOptions(to=tmp_path / "log"), home)
    assert shipped["dataset"] == "riverswim" and shipped["episodes"] == 50_000
    # beside the log stands the record of how it was made, which a bound asks for
    written = {p.name for p in (tmp_path / "log").iterdir()}
    assert {Path(f).name for f in shipped["files"]} == written - {"generated.json"} != written
    assert shipped["card"] == str(SHELF / "riverswim" / "card.toml")
    new = simulate_logs("riverswim", LogOptions(episodes=5), home)
    assert new["dataset"] != "riverswim" and load_card(Path(new["card"])).unit.users_public == 5


@pytest.mark.parametrize(
    ("world", "asked", "message"),
    [
        ("atlantis", LogOptions(episodes=1), "no world 'atlantis'; there are: icu_sepsis, riverswim"),
        ("random", LogOptions(behaviour="clinician"), "no behaviour 'clinician'; there are: uniform, preferred"),
        ("random", LogOptions(bins="8"), "no bins '8'; there are: all"),
        ("random", LogOptions(horizon=7), "defined for a horizon of 10 steps, not 7"),
        ("random", LogOptions(params=("depth=2",)), "depth"),
        ("random", LogOptions(params=("states",)), "write key=value"),
        ("random", LogOptions(rho=0.0), "budget.rho"),
        ("random", LogOptions(name="Not A Name"), "name"),
    ],
)
def test_a_wrong_request_is_a_card_error_and_writes_nothing(tmp_path, world, asked, message):
    with pytest.raises(CardError, match=message):
        simulate_logs(world, asked, home_at(tmp_path / "home"))
    assert not list(tmp_path.rglob("card.toml"))


def test_parameters_are_read_as_toml_or_as_a_bare_word():
    asked = LogOptions(params=("a=1", "b=0.5", "c=true", "d=last", 'e="8x8"', f"f={'9' * 5000}"))
    assert asked.arguments() == {"a": 1, "b": 0.5, "c": True, "d": "last", "e": "8x8", "f": "9" * 5000}


def page_of_worlds() -> str:
    return (SHELF.parent / "docs" / "research.md").read_text(encoding="utf-8")


# the two of intensive care are planned over hundreds of states
@pytest.mark.parametrize(
    "name", [pytest.param(w, marks=pytest.mark.slow if w.startswith("icu_sepsis") else ()) for w in WORLDS]
)
def test_the_page_of_worlds_has_every_value_of_those_that_are_shipped(tmp_path: Path, name: str):
    world = load_world(name, world_folder(name, home_at(tmp_path, SHELF)))
    assert f"`{name}`" in page_of_worlds()
    for value in world_values(world, world.steps(None)).values():
        assert f"{value:.6g}" in page_of_worlds(), name


@pytest.mark.parametrize(
    ("line", "horizon", "param"),
    [
        ("FrozenLake-v1`", 20, ()),
        ("FrozenLake8x8-v1`", 50, ()),
        ("Taxi-v4`", 20, ()),
        ("CliffWalking-v1`", 20, ()),
        ("CliffWalking-v1` `--param is_slippery=true`", 20, ("is_slippery=true",)),
    ],
)
def test_the_page_of_worlds_has_gymnasiums_values(tmp_path: Path, line: str, horizon: int, param: tuple[str, ...]):
    name = f"gymnasium:{line.partition('`')[0]}"
    world = load_world(name, tmp_path, **LogOptions(params=param).arguments())
    values = world_values(world, horizon)
    live = {label for s, label in enumerate(world.raw_labels) if s not in world.ends}
    shown = f"{horizon} | {len(live)} | {values['optimal']:.6g} | {values['uniform']:.6g} |"
    assert f"| `gymnasium:{line} | {shown}" in page_of_worlds()


def test_the_verb_prints_one_json_object_and_refuses_half_a_request(tmp_path: Path):
    facts = answer(tmp_path, "simulate", "random", "--logs", "--episodes", 5)
    assert {"episodes", "dataset", "card", "files", "values"} <= set(facts) and "preferred" in facts["values"]
    assert reticent("simulate", "random", cwd=tmp_path).returncode == 2
    assert "name a world" in refusal(tmp_path, "simulate", "--logs")
