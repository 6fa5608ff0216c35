"""The documentation site: builds without a warning, reads from disk, keeps to its limits."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
import yaml

from tests.house import epsilon
from tests.reports.browser import CHROMIUM, browser

ROOT = Path(__file__).parents[1]
NAV = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def words(*pages: Path) -> int:
    """Words as a reader counts them: signs alone are none."""
    return sum(bool(re.search(r"\w", word)) for page in pages for word in page.read_text(encoding="utf-8").split())


def test_the_site_has_thirteen_entries_and_every_page_stands_below_one():
    below = [
        page for entry in NAV for pages in entry.values() for page in ([pages] if isinstance(pages, str) else pages)
    ]
    assert len(NAV) == 13
    assert sorted(below) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in PAGES)


def test_the_documents_are_short():
    assert words(*PAGES) <= 40_000
    readme = ROOT / "README.md"
    assert words(readme) <= 800
    assert len(readme.read_text(encoding="utf-8").partition("\n## ")[0].split()) <= 170


def test_what_an_epsilon_means_is_computed():
    page = epsilon.PAGE.read_text(encoding="utf-8")
    found = epsilon.ROWS.search(page)
    assert found is not None and found[2] == epsilon.rows()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("gallery"))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    (folder / "docs" / "gallery").mkdir()
    for name in re.findall(r"gallery/(\w+)\.html", (folder / "docs" / "report.md").read_text()):
        (folder / "docs" / "gallery" / f"{name}.html").write_text("<html>a report page</html>")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "out")]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


@pytest.mark.slow
@pytest.mark.service
@needs_chromium
def test_search_works_from_disk_and_nothing_is_fetched(site: Path, tab):
    tab.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
    tab.visit((site / "index.html").as_uri())
    tab.wait("document.querySelector('.md-search__form').getBoundingClientRect().width > 100")
    box = "document.querySelector('[data-md-component=search-query]')"
    tab.ask(f"{box}.focus()")
    tab.ask(f"{box}.value = 'erased'; {box}.dispatchEvent(new Event('keyup', {{bubbles: true}}))")
    tab.wait("document.querySelectorAll('.md-search-result__item').length > 0")
    asked = [told["request"]["url"] for told in tab.said("Network.requestWillBeSent")]
    assert asked and all(url.startswith(("file:", "data:")) for url in asked), asked


@pytest.mark.slow
@pytest.mark.service
@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 900, 1400])
def test_a_page_fits_its_screen(site: Path, tab, width: int, dark: bool):
    for page in ("index", "privacy", "faq", "card"):
        tab.open(site / f"{page}.html", width=width, height=900, dark=dark)
        assert tab.ask("document.documentElement.scrollWidth") <= width, page
