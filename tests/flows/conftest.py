"""A shop, what plans foresee, and a published run of people's data, as tests of several files want them."""

import shutil
from pathlib import Path

import pytest

from flows.config.home import Home
from flows.jobs import plan as foresight
from flows.jobs import run
from reports.run import run_page
from tests.flows.office import Office
from tests.flows.shop import Opened, lay_out
from tests.jobs import home_at, ingest_job, register_job, run_job


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "shop")


@pytest.fixture
def home(tmp_path: Path, shop: Path, opened: Opened) -> Home:
    """A home in which that shop's log is ingested."""
    return opened(tmp_path, kind="synthetic")[1]


@pytest.fixture
def no_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecasts of a recipe alone."""
    monkeypatch.setattr(foresight, "_rivals", lambda s: ())


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rivals, of one run each."""
    monkeypatch.setattr(foresight, "_RIVAL_DRAWS", 1)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few draws, where the words of a band are asked and not its width."""
    monkeypatch.setattr(foresight, "_DRAWS", 2)
    monkeypatch.setattr(foresight, "_FEWEST", 2)


@pytest.fixture(scope="session")
def published_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One run of people's data."""
    root = tmp_path_factory.mktemp("published")
    folder, home = lay_out(root / "people", kind="real", cap=10.0), home_at(root / "home")
    register_job(str(folder), home)
    ingest_job(str(folder), home)
    return root, run_job(str(folder / "private.toml"), home)["run"]


@pytest.fixture
def office(published_once: tuple[Path, str], tmp_path: Path) -> Office:
    """A copy of it for a test."""
    return Office(shutil.copytree(published_once[0], tmp_path / "office"), published_once[1])


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the program runs beside another numpy, and draws its pages otherwise."""
    now, drawn = run.maker(), run_page.render_html
    monkeypatch.setattr(run, "maker", lambda: {**now, "numpy": "99.0"})
    monkeypatch.setattr(run_page, "render_html", lambda *a: drawn(*a) + "<!-- newer -->")
