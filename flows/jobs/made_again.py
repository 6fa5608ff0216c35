"""Make a run's files again from card, recipe, release and ledger, and compare: nothing in the folder is trusted.

What a difference means depends on who made the files: under the same program and machine it is an edit, under another
the two cannot be compared (:mod:`pipeline.ledger.publication`).
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from flows.config.home import Home
from flows.config.recipe import Setting, load_recipe, nightly_counter
from flows.jobs.proof import Vouched
from flows.jobs.run import PAGES, MadeRun, compose, made_by
from pipeline.declaration import code, toml
from pipeline.declaration.card import AnyCard, CardError
from pipeline.facts.promise import SimulatedLog
from pipeline.files import copy_file, json_text, write_file
from pipeline.learners.learner import Adaptive, RunPlan
from pipeline.ledger import attempts, chain, looks
from pipeline.ledger.account import card_hash, reserve_for
from pipeline.ledger.publication import NO_FILE, file_digests, maker, other_maker
from pipeline.ledger.verify import Check
from pipeline.privacy.release_file import describe, describe_mechanism, read_release, sha256_file
from pipeline.transaction.drawing import key_of
from pipeline.transaction.transaction import Curated, Recovered
from reports.page import NOT_DRAWN

_CHARGE = "sensitivities, scales and cost, recomputed from the card's layout and the recipe"
_LATER_QUERIES = "what later stages asked, recomputed from the answers before them"
_AGAIN = "made again from card, recipe and release"
# the other files are made of these; the ledger vouches for them
_INPUTS = ("release.parquet", "recipe.toml")
# errors of a folder that makes no sense
BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, CardError)


def made_again(folder: Path, card: AnyCard, held: Vouched) -> Iterator[Check]:
    """Recompute the charge, then make every file again."""
    stated = held.body.get("card_hash")
    if stated is not None and stated != card_hash(card):
        yield Check(_AGAIN, None, "not comparable: the card has changed since; give that of then")
        return
    if (reason := foreign_code(folder, held)) is not None:
        yield Check(_AGAIN, None, f"not comparable: {reason}")
        return
    older = held.older(maker())
    try:
        recipe = load_recipe(folder / "recipe.toml")
        now = made_by(card, recipe)
        older = held.older(now)
        setting = Setting(recipe, card, Home(folder.parent.parent), reserve_for(held.entries, card))
        gate = None if held.intent is None else attempts.passed_gate(held.entries, held.intent)
        # a release that passed no gate was drawn by a version that had none, with the whole budget
        plan = setting.plan if gate is None else setting.guarded.plan
        problem = _gate_problem(setting, gate, held) or _charge_problem(folder, setting, plan, held)
    except BROKEN as e:
        yield judged(_CHARGE, f"the recipe is none for this card ({_short(e)})", older)
        return
    yield judged(_CHARGE, problem, older)
    if problem is not None:
        return
    other = older or other_maker(held.body.get("made_by"), now)
    yield judged(_LATER_QUERIES, _queries_problem(folder, plan), other)
    with tempfile.TemporaryDirectory() as place:
        try:
            _compose(folder, setting, plan, held, gate, Path(place))
        except BROKEN as e:
            yield judged(_AGAIN, f"nothing can be learnt from this release ({_short(e)})", other)
            return
        for fresh in sorted(p for p in Path(place).iterdir() if p.name not in _INPUTS):
            difference = _difference(folder / fresh.name, fresh, same_maker=other is None)
            one_machine = "not comparable: pictures were drawn on one machine only"
            undrawn = one_machine if difference and _half_drawn(folder, fresh) else None
            yield judged(f"{fresh.name}, {_AGAIN}", difference, other or undrawn)
        yield judged("the files of a run and nothing else", _extra_file(folder, Path(place)), other)


def judged(what: str, problem: str | None, other: str | None) -> Check:
    """Check of something that was made again.

    ``other``: why a difference says nothing, in words: another program or machine made the run; None: it is an edit.
    """
    if problem is None:
        return Check(what, ok=True)
    return Check(what, False, problem) if other is None else Check(what, None, other)


def _short(e: Exception) -> str:
    return f"{type(e).__name__}: {str(e)[:160]}"


def foreign_code(folder: Path, held: Vouched) -> str | None:
    """Reason not to run a recipe's code, or None: it is run only if the home's ledger vouches for the recipe."""
    try:
        named = [word for word in _words(toml.read_toml(folder / "recipe.toml")) if code.is_plugin(word)]
    except (OSError, CardError):
        return None
    vouched = held.body.get("files", {}).get("recipe.toml")
    if not named or (held.own and vouched == sha256_file(folder / "recipe.toml")):
        return None
    return f"the recipe names code of its own ({named[0][:60]}), and no ledger here vouches for it: it was not run"


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _words(part)
    elif isinstance(value, list):
        for part in value:
            yield from _words(part)


def _gate_problem(s: Setting, gate: attempts.Passed | None, held: Vouched) -> str | None:
    """The difference between the gate in the ledger and that of card and recipe, or None."""
    if gate is None:
        return None
    expected, released = s.guarded.gate, [{**describe_mechanism(m), "delta_slack": None} for m in gate.mechanisms]
    if expected is None or [{**m, "delta_slack": None} for m in expected.spec()] != released:
        return f"entry {gate.commit.seq} is of another gate than card and recipe ask for"
    paid = next(e for e in held.entries if e.seq == gate.commit.body["intent"])
    # a counter names no snapshot
    own = held.intent is not None and held.intent.body.get("snapshot", paid.body["snapshot"]) == paid.body["snapshot"]
    return None if own else f"entry {gate.commit.seq} is the gate of another snapshot"


def _charge_problem(folder: Path, s: Setting, plan: RunPlan, held: Vouched) -> str | None:
    """The difference between ledger and folder and the release of card and recipe, if not smaller; else None."""
    release, intent = read_release(folder), held.intent
    # sums of a regression are kept step by step, whatever the card says of its tables
    if release.dynamics not in (s.card.domain.dynamics, "per_step"):
        return f"release.json says {release.dynamics}, the card {s.card.domain.dynamics}"
    if (release.dataset, release.data_kind) != (s.card.name, s.card.kind):
        return f"release.json is of {release.dataset} ({release.data_kind}), the card of {s.card.name} ({s.card.kind})"
    if s.recipe.nightly is not None:
        if intent is None or "counter" not in intent.body:
            return "the recipe declares a counter, and the ledger knows none of this run"
        counter = nightly_counter(s, s.guarded if "gate" in intent.body else None)
        # whatever was in use that night: nothing of it is in the key
        counter = replace(counter, play=intent.body["counter"].get("play"))
        now, since = intent.body["counter"]["night"], intent.body["counter"]["since"]
        charge = counter.intent_fields(now, since)
        key = counter.step_key(now)
    else:
        _, charge = plan.charge()
        snapshot = _snapshot(held, folder)
        key = key_of(s.card, snapshot, plan) if snapshot is not None else None
    if "mechanisms" in charge:
        expected = {m["table"]: m for m in charge["mechanisms"]}
        if set(expected) != {m.table for m in release.mechanisms}:
            return f"card and recipe ask for {sorted(expected)}"
        for m in release.mechanisms:
            least = expected[m.table]
            if m.l2_squared < least["l2_squared"] or m.l1 < least["l1"]:
                return f"table {m.table}: one person moves it by {least['l2_squared']} squared, not {m.l2_squared}"
            if list(m.shape) != least["shape"] or m.unit != least["unit"]:
                return f"table {m.table}: shape {least['shape']} in {least['unit']}, by the card"
    if intent is None:
        return None
    # an entry that does not say what joining costs is charged in full for it
    charge = {k: v for k, v in charge.items() if k != "rho_add_remove" or k in intent.body}
    differ = [k for k, v in charge.items() if json.loads(chain.canonical(v)) != intent.body.get(k)]
    if differ:
        return f"entry {intent.seq} was charged for other {', '.join(differ)} than card and recipe ask for"
    if key != intent.body["run_key"]:
        return f"entry {intent.seq} is of another snapshot, domain or recipe"
    return looks.look_problem(held.entries, intent, release.look)


def _queries_problem(folder: Path, plan: RunPlan) -> str | None:
    """The difference between a release's later queries and those that follow from its answers, or None."""
    try:
        release = read_release(folder)
        queries = plan.recompute_derived(release) if isinstance(plan, Adaptive) else {}
    except BROKEN as e:
        return f"nothing can be asked after these answers ({_short(e)})"
    if set(queries) != set(release.derived):
        return f"these are {', '.join(sorted(queries)) or 'none'}; the release has {', '.join(sorted(release.derived))}"
    wrong = [name for name, x in queries.items() if not np.array_equal(x, release.derived[name])]
    return f"{wrong[0]} is another" if wrong else None


def _snapshot(held: Vouched, folder: Path) -> int | None:
    """Snapshot by the ledger; by the report for exact tables without an entry."""
    if held.intent is not None:
        return held.intent.body.get("snapshot")
    if held.publication is not None:
        return held.publication.body["snapshot"]
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))["dataset"]["snapshot"]


def _compose(folder: Path, s: Setting, plan: RunPlan, held: Vouched, gate: attempts.Passed | None, place: Path) -> None:
    """All files of the run, in another place."""
    release, snapshot = read_release(folder), _snapshot(held, folder)
    key = str(held.commit.body["run_key"]) if held.commit is not None else key_of(s.card, snapshot or 0, plan)
    curated = Curated(release, folder, key, held.intent, held.commit, True, False, Recovered(), gate)
    copy_file(folder / "release.parquet", place / "release.parquet")
    write_file(place / "release.json", json_text(describe(release)))
    seen = held.body.get("seen", held.commit.seq if held.commit is not None else len(held.entries))
    entries = [e for e in held.entries if e.seq <= seen]
    made = held.body.get("made")
    # the ledger sorts its keys, a report does not
    log = made and SimulatedLog.model_validate({key: made[key] for key in SimulatedLog.model_fields})
    compose(MadeRun(s.card, s.recipe, snapshot, curated), plan.learn(release), entries, place, log)


def _extra_file(folder: Path, place: Path) -> str | None:
    """A file of the folder that is none of a run's, in words, or None."""
    usual = {p.name for p in place.iterdir()} | {*_INPUTS, *PAGES}
    extra = [n for n, digest in file_digests(folder).items() if n not in usual or digest == NO_FILE]
    return f"{extra[0]} is none of them" if extra else None


def _half_drawn(folder: Path, fresh: Path) -> bool:
    """Whether one of two pages lacks pictures that the other has: then their bytes cannot be compared."""
    marker = NOT_DRAWN.encode()
    old = folder / fresh.name
    return fresh.suffix == ".html" and old.is_file() and (marker in old.read_bytes()) != (marker in fresh.read_bytes())


def _difference(old: Path, fresh: Path, *, same_maker: bool) -> str | None:
    """The difference of the folder's file from the fresh one, in words, or None."""
    if not old.is_file():
        return "it is gone"
    if old.read_bytes() == fresh.read_bytes():
        return None
    if fresh.suffix == ".parquet":
        try:
            equal = pq.read_table(old).equals(pq.read_table(fresh))
        except BROKEN:
            equal = False
        # another version of the library writes the same numbers in other bytes
        return None if equal and not same_maker else f"{'its bytes' if equal else 'its numbers'} are others"
    if fresh.suffix == ".json":
        try:
            content: Any = json.loads(old.read_text(encoding="utf-8"))
        except ValueError:
            return "it is no JSON"
        where = first_difference(content, json.loads(fresh.read_text(encoding="utf-8")))
        return "its layout is another" if where is None else f"{where} is another"
    return "its bytes are others"


def first_difference(a: Any, b: Any, at: str = "") -> str | None:
    """Path of the first value that differs in two JSON values, or None."""
    if isinstance(a, dict) and isinstance(b, dict):
        pairs = ((f"{at}/{k}", a.get(k, _Absent), b.get(k, _Absent)) for k in {**a, **b})
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = ((f"{at}/{i}", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True)))
    else:
        return None if type(a) is type(b) and a == b else at or "/"
    return next((path for where, x, y in pairs if (path := first_difference(x, y, where)) is not None), None)


class _Absent:
    """No value."""
