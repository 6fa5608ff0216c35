"""Each job once.  ``job(..., step)``: in the shell ``step`` calls the function, in a flow it runs it as a Prefect task.

No job knows Prefect or the screen; what it says goes through ``say``, what it yields is a plain dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from flows.publish import Published, publish_run
from flows.recipe import Recipe, load_recipe
from flows.shelf import Home, card_of_recipe, find_card, find_recipe
from pipeline.card import Card, CardError, load_card
from pipeline.curate import Curated, known_to_ledger, release_counts, run_key
from pipeline.ledger.certificate import spent_budget
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.logs.ingest import ingest
from pipeline.logs.store import Snapshot, latest
from pipeline.logs.tolerance import check_names
from pipeline.offline import Learnt, learn
from pipeline.privacy.budget import epsilon_from_rho, fraction_of
from pipeline.privacy.noise import NoiseSource, OsNoise
from pipeline.privacy.release import total_epsilon, total_rho
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.privatizers import CentralCounts, privatizer

T = TypeVar("T")


class Step(Protocol):
    """Runs one coarse unit of work under a name."""

    def __call__(self, name: str, work: Callable[[], T], /) -> T:
        """Run ``work`` once; a step that draws noise is never retried."""
        ...


def plain_step(name: str, work: Callable[[], T], /) -> T:
    """In the shell: just call it."""
    return work()


@dataclass(frozen=True)
class Setting:
    """A recipe, its card and where they live."""

    recipe: Recipe
    card: Card
    home: Home


def setting(recipe: str, home: Home) -> Setting:
    """Resolve a recipe by path or name, and its card."""
    path = find_recipe(recipe)
    loaded = load_recipe(path)
    return Setting(loaded, card_of_recipe(loaded.recipe.card, path, home.shelf), home)


def ledger_for(card: Card, home: Home) -> Ledger:
    """Open the ledger that charges this card; a synthetic card creates and registers itself, a real one never."""
    if card.kind == "synthetic":
        ledger = open_ledger(home.ledger_of(card), create=True)
        ledger.register(card)
        return ledger
    return open_ledger(home.ledger_of(card), create=False)


def register_job(card_name: str, home: Home, *, amend: bool = False) -> dict[str, Any]:
    """Create (or amend) the lineage in its ledger."""
    card = load_card(find_card(card_name, home.shelf))
    check_names(card)
    ledger = open_ledger(home.ledger_of(card), create=True)
    known_to_ledger(card.name, ledger, home.store)
    entry = ledger.register(card, amend=amend)
    account = ledger.account(card.name)
    return {
        "dataset": card.name,
        "ledger": ledger.where,
        "kind": card.kind,
        "entry": None if entry is None else entry.seq,
        "action": "unchanged" if entry is None else entry.kind.lower(),
        "cap_rho": float(account.cap),
        "spent_rho": float(account.spent),
        "delta": account.delta,
        "domain_hash": card.domain_hash(),
    }


def ingest_job(
    card_name: str, home: Home, step: Step = plain_step, progress: Callable[[int, int | None], None] | None = None
) -> dict[str, Any]:
    """Logs -> validated snapshot and quarantine; operator-only facts."""
    card = load_card(find_card(card_name, home.shelf))
    s = step("ingest", lambda: ingest(card, home.store, progress=progress))
    return {
        "dataset": s.dataset,
        "snapshot": s.number,
        "rows": s.rows,
        "users": s.users,
        "episodes": s.episodes,
        "quarantined": dict(s.quarantined),
        "partitions": s.partitions,
        "folder": str(s.folder),
    }


def _privatizer(s: Setting) -> CentralCounts:
    ask, people = s.recipe.ask(), s.card.unit.users_public
    if s.card.kind == "real" and ask.delta and ask.delta > 1 / (10 * people):
        raise CardError(
            f"{s.recipe.path.name}: privacy.delta = {ask.delta:g} is too large for {people} people; "
            f"at most {1 / (10 * people):g} means anything"
        )
    try:
        return privatizer(s.card, ask)
    except ValueError as e:
        raise CardError(f"{s.recipe.path.name}: [privacy]: {e}") from None


def plan_job(recipe: str, home: Home) -> dict[str, Any]:
    """What a run would spend and what is left; reads no rows and writes nothing but a synthetic registration."""
    s = setting(recipe, home)
    p = _privatizer(s)
    p.admit(OsNoise())
    rho = total_rho(p.mechanisms)
    ledger = ledger_for(s.card, home)
    ledger.require(s.card)
    account = ledger.account(s.card.name)
    newest = latest(home.store, s.card.name)
    replays = newest is not None and ledger.committed(s.card.name, run_key(s.card, newest, p)) is not None
    cost = Fraction(0) if replays or rho is None else rho
    spent = spent_budget(p.mechanisms, s.card.budget.delta)
    return {
        "dataset": s.card.name,
        "recipe": s.recipe.recipe.name,
        "agent": s.recipe.recipe.agent,
        "mechanisms": [describe_mechanism(m) for m in p.mechanisms],
        "rho": spent["rho"],
        "epsilon": spent["epsilon"],
        "delta": spent["delta"],
        "spent_before": float(account.spent),
        "remaining_after": float(account.remaining - cost),
        "cap_rho": float(account.cap),
        "epsilon_after": epsilon_from_rho(float(account.spent + cost), account.delta),
        "replays": replays,
        "allowed": account.spent + cost <= account.cap,
        "visits_per_cell_if_even": _even_visits(s.card),
        "noise_per_cell": {m.table: m.standard_deviation for m in p.mechanisms},
    }


def _even_visits(card: Card) -> float:
    """Declared steps a cell of n[h,s,a] if everybody stayed to the end and visited all cells alike: a yardstick."""
    d, u = card.domain, card.unit
    return (
        u.users_public * u.episodes_per_user * d.horizon / (d.table_steps * len(d.live_states) * len(d.action_labels))
    )


def run_job(
    recipe: str,
    home: Home,
    step: Step = plain_step,
    noise: NoiseSource | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """The offline job on the latest snapshot: release -> policy -> certificate -> report."""
    s = setting(recipe, home)
    source = noise or OsNoise()
    chosen = _privatizer(s)
    chosen.admit(source)
    _refuse_weaker(s, chosen)
    ledger = ledger_for(s.card, home)
    ledger.require(s.card)
    snapshot = _snapshot(s.card, home)
    say(f"releasing counts of snapshot {snapshot.number} of {s.card.name}")
    curated: Curated = step("release", lambda: release_counts(s.card, snapshot, chosen, ledger, home.store, source))
    if curated.replayed:
        say("this release is committed: replayed at no cost")
    if curated.stale:
        say("warning: the snapshot's bytes have changed since this release was drawn; the committed release stands")
    say("planning on the release")
    learnt: Learnt = step("plan", lambda: learn(s.card, s.recipe.settings(), curated.release))
    published: Published = step("report", lambda: publish_run(s.card, s.recipe, home, snapshot.number, curated, learnt))
    account = ledger.account(s.card.name)
    out: dict[str, Any] = {
        "run": published.name,
        "folder": str(published.folder),
        "report": str(published.folder / "report.html"),
        "replayed": curated.replayed,
        "ledger": {"spent_rho": float(account.spent), "remaining_rho": float(account.remaining)},
        "guarantee": published.facts["guarantee"],
        "value": published.facts["value"],
    }
    if "truth" in published.facts:
        out["truth"] = published.facts["truth"]
    return out


def _snapshot(card: Card, home: Home) -> Snapshot:
    found = latest(home.store, card.name)
    if found is None:
        raise CardError(f"{card.name}: no snapshot in {home.root}; run `reticent ingest` on its card first")
    if found.kind != card.kind:
        raise CardError(
            f"{card.name}: snapshot {found.number} was ingested as {found.kind}, the card now says {card.kind}; "
            "the kind of a dataset never changes"
        )
    if found.domain_hash != card.domain_hash():
        raise CardError(f"{card.name}: snapshot {found.number} was ingested under another domain; ingest again")
    return found


def _refuse_weaker(s: Setting, chosen: CentralCounts) -> None:
    """The paper's scales on a real dataset are refused where their true cost is more than was asked."""
    ask = s.recipe.ask()
    if s.card.kind != "real" or ask.calibration != "paper":
        return
    pure, rho = total_epsilon(chosen.mechanisms), total_rho(chosen.mechanisms)
    true, asked, unit = (pure, ask.epsilon, "ε") if ask.pure else (rho, ask.zcdp(), "ρ")
    if true is None or asked is None or true > fraction_of(asked):
        raise CardError(
            f"{s.card.name}: calibration = 'paper' would spend {unit} = {float(true or 0):.4g}, asked was {asked}; "
            "a real dataset needs calibration = 'tight'"
        )


def demo_job(
    home: Home,
    step: Step = plain_step,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Any]:
    """The main job on the shipped log: register, ingest, release, plan, report."""
    s = setting("demo", home)
    say(f"registering {s.card.name}")
    register_job(str(s.card.folder), home)
    say("ingesting the shipped log")
    ingest_job(str(s.card.folder), home, step, progress)
    return run_job("demo", home, step, say=say)
