"""Documentation that fails the build when it lies."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from flows.cli import app
from tests.documents import rehearse, section
from tests.flows.verb import reticent

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def verbs() -> set[str]:
    group = typer.main.get_command(app)
    found = set()
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        found |= {f"{name} {sub}" for sub in command.commands} if hasattr(command, "commands") else {name}
    return found


def table(text: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_verb_is_documented_and_every_documented_verb_exists():
    cells = " ".join(cell for _, cell in table(section("../README.md", "## Verbs")))
    documented = re.findall(r"`([^`]+)`", cells)
    assert len(documented) == len(set(documented)) and set(documented) == verbs()


def test_every_verb_has_help_and_a_json_flag():
    group = typer.main.get_command(app)
    for command in group.commands.values():  # type: ignore[attr-defined]
        for leaf in getattr(command, "commands", {"": command}).values():
            assert leaf.help, leaf.name
            assert any("--json" in p.opts for p in leaf.params), leaf.name
            assert all(p.help for p in leaf.params), [leaf.name, *(p.name for p in leaf.params if not p.help)]


def test_the_paper_map_names_files_that_exist_and_have_tests():
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    for algorithm, file, *_, state in table(section("research.md", "## Paper map")):
        if state in ("done", "simulated worlds"):
            path = ROOT / file.strip("`")
            assert path.is_file(), algorithm
            # as a module, or as an agent of a recipe
            assert [text for text in tests if path.stem in text or path.stem.replace("_", "-") in text], algorithm
        else:
            assert file == "–" and state == "planned", algorithm


HELPERS = """
__init__ pessimism linear_backup optimism lq_optimism count_bonus active_set absorbing_model against_behaviour support
doubly_robust observed_value suboptimality one_step_pooling one_step_value shrinkage lq_belief
"""


def test_all_agents_are_in_the_map():
    mapped = {row[1].strip("`") for row in table(section("research.md", "## Paper map"))}
    for path in (ROOT / "pipeline" / "agents").glob("*.py"):
        if path.stem not in HELPERS.split():
            assert str(path.relative_to(ROOT)) in mapped


def test_every_shell_line_parses_and_every_link_leads_somewhere():
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL):
        for line in block.strip().splitlines():
            assert shlex.split(line)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            # `make site` makes these pages; tests/test_site.py follows the links of the site
            if target.startswith("gallery/"):
                continue
            assert (page.parent / target).exists(), (page.name, target)


def test_the_card_table_has_every_key_of_card_and_recipe():
    from flows.config.recipe import RecipeHead
    from pipeline.declaration.card import Card, Reward
    from pipeline.declaration.domain import Cost, Domain, LinearQuadratic, Start, States, Vector
    from pipeline.declaration.lineage import Budget, Unit
    from pipeline.declaration.source import Columns, Source, VectorColumns, VectorSource
    from pipeline.learners.terms import Evaluate, Lq, Planner, Privacy

    text = (ROOT / "docs" / "card.md").read_text(encoding="utf-8")
    models = [Card, Unit, Domain, States, Reward, Source, Columns, Budget, RecipeHead, Privacy, Planner, Evaluate]
    models += [Lq, Cost, LinearQuadratic, Start, Vector, VectorColumns, VectorSource]
    nested = {"unit", "domain", "reward", "source", "tolerance", "budget", "column"}
    for model in models:
        for key in set(model.model_fields) - nested:
            assert re.search(rf"\b{key}\b", text), f"{model.__name__}.{key} is not in docs/card.md"


def masked(line: str) -> str:
    """A line of the shell with its numbers, and the places of files, left out."""
    return re.sub(r"\d[\d.,e-]*", "#", re.sub(r"\S*/(\.reticent/runs/\w+)-\S*", r"\1", line)).strip()


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_the_demo_prints_what_the_first_screen_shows(tmp_path):
    shown = re.search(r"```console\n\$ reticent demo\n(.*?)```", README, re.DOTALL)[1].splitlines()
    first, replayed = (reticent("demo", cwd=tmp_path) for _ in range(2))
    for said in (first, replayed):
        assert said.returncode == 0, said.stderr
    # a slow machine says how far it is
    printed = [line for line in (first.stderr + first.stdout).splitlines() if not line.startswith("demo: ")]
    assert [masked(line) for line in shown] == [masked(line) for line in printed if line.strip()]
    # a second demo replays the committed release and spends nothing
    assert replayed.stdout.replace("   (replayed: nothing was drawn)", "") == first.stdout != replayed.stdout


@pytest.mark.slow
def test_the_lines_of_the_first_screen_run_in_order(tmp_path):
    assert all("budget" in printed for printed in rehearse("../README.md", tmp_path))


def test_every_file_that_the_architecture_names_is_there_and_it_is_short():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 1500 and "](architecture.svg)" in text
    named = set(re.findall(r"`([\w/-]+/[\w/-]+(?:\.py)?)`", text))
    assert len(named) > 30
    assert [name for name in named if not any((ROOT / room / name).exists() for room in ("", "pipeline"))] == []


def test_no_page_names_a_path_of_a_machine():
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]:
        assert not re.search(r"/(work|tmp|home|root)/", page.read_text(encoding="utf-8")), page.name
