"""Losses are rounded up, and what is left down, where they are printed: terminal, page and Markdown."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from tests.flows.shop import lay_out
from tests.flows.verb import reticent


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each place prints, and the exact numbers; of budgets that the nearest number would make look smaller."""
    place = tmp_path_factory.mktemp("printed")
    shop = lay_out(place / "shop", cap=1.2346)
    recipe = shop / "private.toml"
    recipe.write_text(recipe.read_text().replace("rho = 1.0", "rho = 0.712341"))
    for verb in ("register", "ingest"):
        assert reticent(verb, shop / "card.toml", cwd=place).returncode == 0
    plan, run = (reticent(*verb, recipe, cwd=place) for verb in (("plan", "--no-quality"), ("run",)))
    assert (plan.returncode, run.returncode) == (0, 0), plan.stderr + run.stderr
    [folder] = (place / ".reticent" / "runs").glob("private-*")
    facts = json.loads((folder / "report.json").read_text())
    assert reticent("report", folder, cwd=place).returncode == 0
    html = unescape(re.sub("<[^>]+>", " ", (folder / "report.html").read_text()))
    said = {"plan": plan.stdout, "run": run.stdout, "page": html, "markdown": (folder / "report.md").read_text()}
    return said, facts


def near(text: str, sign: str, exact: float) -> list[float]:
    """The numbers behind a sign that stand for one exact number: within a hundredth of it."""
    found = [float(x.replace(",", "").rstrip(".")) for x in re.findall(rf"{sign} ?=? ?([\d,]*\d\.\d+)", text)]
    return [x for x in found if abs(x / exact - 1) < 0.01]


@pytest.mark.parametrize("place", ["plan", "run", "page", "markdown"])
def test_no_loss_is_printed_smaller_than_it_is_and_no_rest_larger(printed, place):
    said, facts = printed
    promise, ledger = facts["guarantee"], facts["ledger"]
    for sign, exact in (("ε", promise["epsilon"]), ("ρ", promise["rho"])):
        found = near(said[place], sign, exact)
        assert found and min(found) >= exact, (place, sign, exact, found)
    left = near(said[place], "(?:left|left after it|[Ll]eft for the life of shop: ρ =)", ledger["remaining_rho"])
    assert left and max(left) <= ledger["remaining_rho"], (place, ledger["remaining_rho"], left)


def test_to_the_nearest_each_of_these_would_have_been_wrong(printed):
    """The budget is chosen so that it shows: at 2 to 4 digits the nearest number lies on the other side."""
    promise, ledger = printed[1]["guarantee"], printed[1]["ledger"]
    assert float(f"{promise['epsilon']:.4g}") < promise["epsilon"] and float(f"{promise['rho']:.4g}") < promise["rho"]
    assert float(f"{ledger['remaining_rho']:.4g}") > ledger["remaining_rho"]
