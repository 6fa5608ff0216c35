"""(c): the ``--json`` object of every verb, asked in one order, of one copy of the golden home, with the clock stopped.

What the home has committed is replayed, so values are compared.  Where noise is fresh only the shape is: ``<number>``
stands for a number.  ``<home>`` and ``<root>`` stand for folders, ``<time>`` and ``<hash>`` for what no clock stops.
"""

import json
import math
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import settle
from tests.goldens import content
from tests.goldens.adapter import Said, clock, reticent, shipped_study
from tests.goldens.places import ROOT, copied

TODAY = datetime(2024, 1, 5, 4, tzinfo=UTC)
COUNT, LINEAR, CONTROL = "count-46cb716e1c", "linear-b354a19fdb", "control-0fe3879882"
EXACT = "exact-7f650f5fcd-simulation-not-private"
COMPARE = """[study]
name = "golden"
[[cells]]
worlds = [{ name = "riverswim_homogeneous", states = 3 }]
episodes = [10]
agents = ["uniform", { name = "behaviour", of = "uniform" }, "best-constant"]
[[cells]]
worlds = [{ name = "riverswim_homogeneous", states = 3 }]
episodes = [10]
agents = [{ name = "no-data", of = "dp-ucbvi-jdp" }, { name = "no-data", of = "dp-apvi" }]
epsilon = [1.0]
delta = 1e-6
runs = 2
[[cells]]
worlds = [{ name = "riverswim_homogeneous", states = 3 }]
episodes = { first = 10, last = 100, per_decade = 1 }
agents = ["apvi", "ucbvi", "dp-apvi", "dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle"]
epsilon = [1.0]
delta = 1e-6
runs = 2
[[claims]]
words = "privacy is never free of charge"
metric = "needed"
of = { private = true }
comparison = "at least"
than = { agent = "plain" }
"""
SIMULATE = """[recipe]
name = "golden"
agent = "dp-ucbvi-jdp"
[privacy]
epsilon = 1.0
delta = 1e-5
[world]
name = "riverswim_homogeneous"
states = 3
[runs]
episodes = 100
runs = 2
"""
# numbers that stay numbers where noise is fresh
KNOWN = (
    "schema_version", "draws", "claimed_rho", "claimed_epsilon", "claimed_delta", "confidence", "rho", "epsilon",
    "delta", "spent_rho", "remaining_rho", "night", "nights", "exit", "charged_rho", "cost", "total", "violates",
    "horizon", "users_public", "episodes_per_user",
)  # fmt: skip


class Desk:
    """A copy of the golden home, and everything that was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.home, self.made = copied(folder / "home"), folder / "made"
        self.made.mkdir()
        self.shelf = self.home / "shelf"
        self.runs = sorted(p.name for p in (self.home / "runs").iterdir() if p.is_dir())
        self.answers: dict[str, Any] = {}
        self._places = {str(folder): "<home>", str(ROOT): "<root>"}

    def ask(self, name: str, *args: object, fresh: bool = False, hashes: bool = False, times: bool = False) -> Said:
        """Ask, and keep the answer; ``fresh``: its noise is, so its shape is kept."""
        said = reticent(*args, home=self.home, shelf=self.shelf)
        if said.answer is None:
            self.keep(name, {"exit": said.code, "answer": None, "err": said.err})
            return said
        answer = content.steady(said.answer, self._places, hashes=fresh or hashes, times=times)
        self.keep(name, {"exit": said.code, "answer": shape(answer) if fresh else answer})
        return said

    def keep(self, name: str, value: Any) -> None:
        self.answers[name] = value


def shape(value: Any, key: str = "") -> Any:
    """Numbers become ``<number>``, but those of :data:`KNOWN` keys; of a long list of alike values one stays.

    Settings that differ between two runs are listed only where they do: drawn numbers may fall alike, so they go.
    """
    if isinstance(value, dict):
        lists = {k: v for k, v in value.items() if key == "settings" and isinstance(v, list)}
        drawn = {k for k, v in lists.items() if all(isinstance(x, int | float) for x in v)}
        return {k: shape(v, k) for k, v in value.items() if k not in drawn}
    if isinstance(value, list):
        found = [shape(v, key) for v in value]
        alike = len(found) > 1 and all(v == found[0] for v in found)
        return [found[0], "..."] if alike else found
    if isinstance(value, int | float) and not isinstance(value, bool) and key not in KNOWN:
        return "<number>"
    return value


def all_answers(folder: Path) -> dict[str, Any]:
    """Every verb's, by a name of the question."""
    desk = Desk(folder)
    with clock(TODAY):
        for part in (_read, _policies, _plans, _replays, _operator, _simulations, _wrong, _fresh):
            part(desk)
    return desk.answers


def _read(d: Desk) -> None:
    d.ask("ledger show", "ledger", "show")
    d.ask("ledger verify", "ledger", "verify")
    d.ask("ledger head", "ledger", "head")
    for run in d.runs:
        d.ask(f"ledger verify {run}", "ledger", "verify", run)
    d.ask("ledger export", "ledger", "export", d.made / "all.json")
    entries = json.loads((d.made / "all.json").read_text(encoding="utf-8"))
    d.keep("ledger export: the file", entries)
    tree = [r for r in d.runs if r.startswith("tree")]
    d.ask("compare-runs of two nights", "compare-runs", tree[0], tree[1])
    d.ask("compare-runs of exact and private", "compare-runs", EXACT, COUNT)
    d.ask("compare-runs of a controller with itself", "compare-runs", CONTROL, CONTROL)


def _policies(d: Desk) -> None:
    for run in (COUNT, LINEAR, CONTROL):
        what = run.split("-")[0]
        d.ask(f"policy show {what}", "policy", "show", run)
        for form in ("csv", "json"):
            file = d.made / f"{what}.{form}"
            d.ask(f"policy export {what} {form}", "policy", "export", run, "--to", file)
            d.keep(f"policy export {what} {form}: the file", file.read_text(encoding="utf-8").splitlines())
    for run in (COUNT, LINEAR):
        what = run.split("-")[0]
        d.ask(f"policy act {what}", "policy", "act", run, "--state", "mid", "--step", 1)
        d.ask(f"policy act {what} --raw", "policy", "act", run, "--state", "mid", "--step", 0, "--raw")
        d.ask(f"policy act {what}, no such state", "policy", "act", run, "--state", "nowhere", "--step", 0)
    d.ask("policy act control", "policy", "act", CONTROL, "--observation", "0.5, -0.2", "--step", 0)
    d.ask("policy act control, too far", "policy", "act", CONTROL, "--observation", "9, 9", "--step", 2)
    batch = d.made / "batch.csv"
    batch.write_text("state,step\nlow,0\nmid,1\nhigh,2\nlow,0\n", encoding="utf-8")
    d.ask("policy act --batch", "policy", "act", COUNT, "--batch", batch)
    batch.write_text("place,pace,step\n0.5,-0.2,0\n1.0,0.0,2\n", encoding="utf-8")
    d.ask("policy act control --batch", "policy", "act", CONTROL, "--batch", batch)


def _plans(d: Desk) -> None:
    for recipe in ("shop/count", "shop/linear", "plant/control", "tree/tree", "toeplitz/toeplitz"):
        d.ask(f"plan {recipe}", "plan", d.shelf / f"{recipe}.toml")
    d.ask("plan --people", "plan", d.shelf / "shop/count.toml", "--people", 2000)
    for recipe in ("shop/pure", "shop/exact", "shop/one_shot", "shop/paper_scales", "loop/loop", "plant/control_cut"):
        d.ask(f"plan --no-quality {recipe}", "plan", d.shelf / f"{recipe}.toml", "--no-quality")


def _replays(d: Desk) -> None:
    for recipe in ("shop/count", "shop/linear", "shop/exact", "plant/control"):
        d.ask(f"run {recipe}", "run", d.shelf / f"{recipe}.toml")
    nights = list[str]()
    for kind, day in (("tree", 3), ("toeplitz", 4)):
        said = d.ask(f"run {kind} --night", "run", d.shelf / kind / f"{kind}.toml", "--night", f"2024-01-0{day}")
        nights.append(said.answer["run"])
    d.ask("report", "report", COUNT)
    for run in (COUNT, LINEAR, EXACT, CONTROL, *nights):
        for file in ("report", "certificate"):
            facts = json.loads((d.home / "runs" / run / f"{file}.json").read_text(encoding="utf-8"))
            d.keep(f"{file}.json of {run}", facts)


def _operator(d: Desk) -> None:
    d.ask("promote", "promote", COUNT)
    d.ask("promote another", "promote", LINEAR)
    d.ask("promote --rollback", "promote", "--rollback")
    d.ask("register, unchanged", "register", d.shelf / "shop", hashes=True)
    card = d.shelf / "loop" / "card.toml"
    card.write_text(card.read_text(encoding="utf-8").replace("rho = 50.0", "rho = 0.5"), encoding="utf-8")
    d.ask("register --amend", "register", d.shelf / "loop", "--amend", hashes=True)
    d.ask("ledger sign", "ledger", "sign", CONTROL, "--by", "Golden Signer", hashes=True)
    d.ask("inspect shop", "inspect", d.shelf / "shop")
    d.ask("inspect plant", "inspect", d.shelf / "plant")
    d.ask("ingest, unchanged", "ingest", d.shelf / "shop")
    d.ask("ingest loop", "ingest", d.shelf / "loop")
    d.ask("store purge, shown", "store", "purge", d.shelf / "toeplitz", "--keep", 1)
    d.ask("store purge", "store", "purge", d.shelf / "toeplitz", "--keep", 1, "--yes")
    d.ask("ledger show, later", "ledger", "show")


def _simulations(d: Desk) -> None:
    for name, text, verb in (("simulate", SIMULATE, "simulate"), ("compare", COMPARE, "compare")):
        recipe = d.made / f"{name}.toml"
        recipe.write_text(text, encoding="utf-8")
        d.ask(name, verb, recipe)
    to = d.made / "swim"
    d.ask("simulate --logs", "simulate", "riverswim", "--logs", "--episodes", 20, "--to", to)
    d.keep("simulate --logs: the card", (to / "card.toml").read_text(encoding="utf-8").splitlines())
    d.keep("simulate --logs: the log", content.table(next(to.glob("*.parquet"))))
    to = d.made / "again"
    d.ask("simulate --from-run", "simulate", "--logs", "--from-run", COUNT, "--episodes", 20, "--to", to)
    d.keep("simulate --from-run: the log", content.table(next(to.glob("*.parquet"))))


def _wrong(d: Desk) -> None:
    d.ask("no such recipe", "run", "nowhere")
    d.ask("no such run", "policy", "show", "nowhere")
    d.ask("a card is no recipe", "run", d.shelf / "shop" / "card.toml")
    d.ask("a night before the first", "run", d.shelf / "tree" / "tree.toml", "--night", "2023-12-31")
    d.ask("a night to come", "run", d.shelf / "tree" / "tree.toml", "--night", "2024-02-01")
    d.ask("beyond the budget", "run", d.shelf / "loop" / "loop.toml")
    wrong = d.shelf / "shop" / "wrong.toml"
    text = (d.shelf / "shop" / "count.toml").read_text(encoding="utf-8")
    wrong.write_text(text.replace("rho = 1.0", "rho = -1.0\nspeed = 3"), encoding="utf-8")
    d.ask("a wrong recipe", "run", wrong)
    broken = d.shelf / "broken"
    shutil.copytree(d.shelf / "loop", broken)
    card = (broken / "card.toml").read_text(encoding="utf-8").replace("golden_loop", "golden_broken")
    card += "\n[tolerance]\nunknown_label = 0.0\n"
    (broken / "card.toml").write_text(card, encoding="utf-8")
    log = (broken / "log.csv").read_text(encoding="utf-8")
    (broken / "log.csv").write_text(log.replace(",mid,", ",midway,"), encoding="utf-8")
    d.ask("a log that breaks its card", "ingest", broken)
    # the card of the loop with another horizon, under its own name
    card = card.replace("golden_broken", "golden_loop").replace("horizon = 3", "horizon = 4")
    (broken / "card.toml").write_text(card, encoding="utf-8")
    d.ask("a domain that changed", "register", broken)


def _fresh(d: Desk) -> None:
    """Last, as noise of the operating system is drawn."""
    for recipe in ("shop/count", "shop/linear", "plant/control", "tree/tree"):
        more = ["--table"] if recipe in ("shop/count", "tree/tree") else []
        d.ask(f"audit {recipe}", "audit", d.shelf / f"{recipe}.toml", "--draws", 100, *more, fresh=True)
    shutil.copyfile(d.shelf / "tree" / "night-4.csv", d.shelf / "tree" / "log.csv")
    d.ask("nightly of a counter", "nightly", d.shelf / "tree" / "tree.toml", fresh=True, times=True)
    monthly = d.shelf / "shop" / "monthly.toml"
    text = (d.shelf / "shop" / "count.toml").read_text(encoding="utf-8")
    monthly.write_text(f'{text}\n[schedule]\nrelease = "monthly"\n', encoding="utf-8")
    d.ask("nightly of a calendar", "nightly", monthly, fresh=True, times=True)
    d.ask("nightly --check", "nightly", monthly, "--check", fresh=True, times=True)
    d.ask("run, drawn anew", "run", d.shelf / "shop" / "asked.toml", fresh=True)
    d.ask("ledger verify, at the end", "ledger", "verify")


def slow_answers(folder: Path) -> dict[str, Any]:
    """Those that take longer: the demo, twice, and a study with all its claims on a shorter grid.

    The table of evidence ``papers`` has what its whole grid says.
    """
    desk = Desk(folder)
    # how many judge is told, to two digits, and what they say
    with clock(TODAY), pytest.MonkeyPatch.context() as patch:
        settle(patch)
        desk.ask("demo", "demo", fresh=True)
        desk.ask("demo, replayed", "demo", fresh=True)
        with shipped_study(_shorter("002-table-1", desk.made)):
            said = reticent("reproduce", "002-table-1", home=desk.home)
    rows = said.answer["rows"]
    means = {agent: math.fsum(r["mean"] for r in rows if r["agent"] == agent) for agent in {r["agent"] for r in rows}}
    files = [Path(file).name for file in said.answer["files"]]
    claims = said.answer["claims"]
    keys = sorted({key for row in rows for key in row})
    desk.keep("reproduce", {"rows": len(rows), "keys": keys, "means": means, "claims": claims, "files": files})
    return desk.answers


def _shorter(name: str, folder: Path) -> Path:
    """A shipped study at three of its six numbers of episodes, with two runs of ten."""
    text = (ROOT / "flows" / "recipes" / "papers" / f"{name}.toml").read_text(encoding="utf-8")
    grid, runs = "10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000", "\nruns = 10\n"
    if text.count(grid) != 3 or text.count(runs) != 3:
        raise ValueError(f"{name}: not the study that this golden knows")
    path = folder / f"{name}.toml"
    text = text.replace(grid, "10_000, 1_000_000, 10_000_000").replace(runs, "\nruns = 2\n")
    path.write_text(text, encoding="utf-8")
    return path
