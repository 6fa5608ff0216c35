"""Kill -9 at every step of every verb, twice.  ``python -P -m tests.campaigns.crashes`` rewrites its rows.

Registration, ingest, a run with Gaussian and one with Laplace noise, a run of a second edition, a promotion and two
kinds of purge are killed at their first step, their second and so on to their last, on SQLite and on PostgreSQL.  After
each kill the promises are checked; the verb is called again and killed at the same step, and they are checked; a call
that nobody kills follows, which must end right.  A run is killed at every step as well while it recovers what a killed
run left: a release that was renamed and not committed, and a draw half written.  Planning and figures are canned: they
keep no state.
``--sample N`` kills at N steps on SQLite alone, spread over all.
"""

import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path

from tests.campaigns.crash_world import Shop, arm, charged
from tests.campaigns.resumed import Case, resumed, sampled, tally
from tests.ledger.postgres import Server, postgres_server

ENGINES = ("sqlite", "postgresql")
_RECOVERED = ("uncommitted", "half written")


class Crashed(Shop):
    """The same, and a run of pure ε: another kind of noise has another way to say that it draws."""

    def verbs(self) -> dict[str, tuple[str, Callable[[], object]]]:
        return super().verbs() | {"run, pure": ("registered", lambda: self._run("pure"))}


def settled(shop: Shop) -> list[str]:
    """What a run that nobody killed must have put in order."""
    releases = shop.home.store / "shop" / "releases"
    left = [p.name for p in releases.glob("*.attempt-*")]
    entries = shop.ledger().entries("shop")
    keys = {e.body["run_key"][:24] for e in entries if e.kind == "COMMIT"}
    found = [f"left over: {name}" for name in left]
    if {p.name for p in releases.iterdir()} - set(left) != keys:
        found.append("store and COMMITs differ")
    if sum((p / "report.json").is_file() and not p.is_symlink() for p in shop.home.runs.glob("[!.]*")) != len(keys):
        found.append("nothing, or twice, published")
    if sum(e.kind == "PUBLISH" for e in entries) != len(keys):
        found.append("vouched for not once")
    return found


def call(shop: Shop, work: Callable[[], object], at: int | None = None) -> int:
    """A call, killed at step ``at``; its steps are written down."""
    return shop.call(work, lambda: arm(at, shop.steps))


def kill(shop: Shop, verb: str, begun: str, step: int) -> Case:
    """Kill a verb at one step, look, kill it there again, look, call it normally, look."""
    work = shop.verbs()[verb][1]
    shop.restore(begun)
    paid, before, there = stands(shop)
    code = call(shop, work, step)
    found = [] if code == -signal.SIGKILL else [f"not killed: {code}"]
    label, (more, drawn, committed) = shop.steps.read_text().splitlines()[-1], stands(shop)
    found += shop.broken(verb, settled=False)
    # a draw that died three times waits for its operator
    again = call(shop, work, step) if begun not in _RECOVERED else -signal.SIGKILL
    if again not in (0, -signal.SIGKILL):
        found.append(f"the second call ended with {again}")
    found += shop.broken(verb, settled=again == 0)
    if again != 0 and call(shop, work) != 0:
        found.append("the normal call failed")
    else:
        found += shop.broken(verb, settled=True) + (settled(shop) if verb.startswith("run") else [])
    return {
        "engine": shop.engine,
        "verb": verb,
        "from": begun,
        "steps": 1,
        # one where the second call had no such step
        "kills": 1 + (again != 0 and begun not in _RECOVERED),
        # by this call: a state may begin with a run of its own
        "killed between charge and COMMIT": int(more > paid and committed == there),
        "drawn again": int(stands(shop)[1] > drawn > before),
        "violations": int(bool(found)),
        "first": f"{label}: {found[0]}" if found else "",
    }


def stands(shop: Shop) -> tuple[Fraction, Fraction, int]:
    """What was charged, what was drawn, and how many COMMITs there are."""
    entries = shop.entries()
    return charged(entries), shop.drawn(), sum(e.kind == "COMMIT" for e in entries)


def _last(labels: list[str], label: str) -> int:
    """Where a label stands for the last time: the ledger says DRAW before the sum draws."""
    return len(labels) - 1 - labels[::-1].index(label)


def places(shop: Shop) -> list[tuple[str, str, int]]:
    """Every verb with the state it begins from and each of its steps."""
    begun, run = [(verb, start) for verb, (start, _) in shop.verbs().items()], shop.verbs()["run"][1]
    shop.restore("registered")
    assert call(shop, run) == 0
    labels = shop.steps.read_text().splitlines()
    # died between the release's rename and its COMMIT: the next run recovers it
    renamed = labels.index("before commit") + 1
    # died with a half-written draw: the next run deletes it and draws again
    half = labels.index("before create", _last(labels, "after draw")) + 1
    for name, at in zip(_RECOVERED, (renamed, half), strict=True):
        shop.restore("registered")
        assert call(shop, run, at) == -signal.SIGKILL
        left = [p.name for p in (shop.home.store / "shop" / "releases").iterdir()]
        assert [".attempt-" in n for n in left] == [name == _RECOVERED[1]], left
        shop.keep(name)
        begun.append(("run", name))
    found: list[tuple[str, str, int]] = []
    for verb, start in begun:
        shop.restore(start)
        assert call(shop, shop.verbs()[verb][1]) == 0, verb
        found += [(verb, start, step) for step in range(1, len(shop.steps.read_text().splitlines()) + 1)]
    return found


def campaign(shop: Shop, sample: int | None) -> list[Case]:
    """Kill at every step of every verb, or at ``sample`` of them spread evenly."""
    found = places(shop)
    if sample is not None:
        found = [found[i * len(found) // sample] for i in range(sample)]
    doing = {f"{shop.engine}, {verb} from {start}, step {step}": (verb, start, step) for verb, start, step in found}
    return resumed("crashes", list(doing), lambda key: kill(shop, *doing[key]))


def main(sample: int | None) -> tuple[str, list[Case]]:
    cases: list[Case] = []
    with ExitStack() as stack:
        for engine in ENGINES[:1] if sample else ENGINES:
            server: Server | None = stack.enter_context(postgres_server()) if engine == "postgresql" else None
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reticent-crashes-")))
            cases += campaign(Crashed(folder, server, anew=False), sample)
    return "crashes", tally(cases, "engine", "verb", "from")


if __name__ == "__main__":
    sys.exit(sampled(main))
