"""Kill -9 at every step of a night.  ``python -P -m tests.campaigns.night_crashes`` rewrites its rows.

Night 3 of a counter of real people is killed just before and just after everything that leaves a trace: INTENT, the
draw, each file, the rename, COMMIT.  After each kill the night is tried again, and the next one follows.  What was
charged must cover what the sampler itself wrote down before it drew; no row that was committed may change; and every
sum must be read off the committed rows.  ``--sample N``: N steps of each counter, spread
evenly over all, and nothing is rewritten.
"""

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from flows.config.recipe import nightly_counter, setting
from pipeline.ledger.steps import committed_steps, mispriced
from pipeline.privacy.continual import squared_weights
from pipeline.privacy.release_file import read_release
from pipeline.transaction.continual_step import KeptSteps
from pipeline.transaction.transaction import folder_of
from tests.campaigns.crash_world import arm, charged, child, commits_once, foresee, told, witness_draws
from tests.campaigns.resumed import Case, resumed, sampled, tally
from tests.flows.nights import Shop, customers

NIGHTS, DUE = 8, (2, 3)
# a counter as the rows name it: its kind, and what else stands under [nightly] and below it
COUNTERS = {
    "tree": ("tree", ""),
    "toeplitz": ("toeplitz", ""),
    "toeplitz, window and drift": (
        "toeplitz",
        'window = 2\ndrift = 0.1\n[promote]\nstatus = "modelled"\n[play]\nshare = 0.5',
    ),
}


class World:
    """A shop after night 1, with night 3 delivered, put back before every kill."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, kind: str) -> None:
        self.kind, self.patch, self.folder, self.now = kind, patch, folder, folder / "now"
        self.witness, self.steps = self.now / "witness", self.now / "steps"
        counter, more = COUNTERS[kind]
        self.shop = Shop(self.now, patch, counter=counter, nights=NIGHTS, cap=100.0, nightly=more)
        # whoever forks must not have counted before: the reader's threads do not survive it
        assert child(self._before) == 0
        foresee((folder / "modules").read_text().split())
        self.shop.on(3)
        self.nightly = nightly_counter(setting(self.shop.recipe, self.shop.home))
        self.whole = self.charged()
        shutil.copytree(self.now, folder / "kept")

    def _before(self) -> None:
        self._begin()
        (self.folder / "modules").write_text("\n".join(sys.modules))

    def _begin(self) -> None:
        self.shop.append(1, customers(0, 40))
        self.shop.on(3)
        self.shop.deliver(customers(40, 40))

    def restore(self) -> None:
        shutil.rmtree(self.now)
        shutil.copytree(self.folder / "kept", self.now)

    def night(self, before: Callable[[], object] = lambda: None) -> int:
        """Night 3 in a process of its own, after ``before``."""

        def inside() -> None:
            witness_draws(self.witness, "drawn")
            before()
            self.shop.append(3)

        return child(inside, told)

    def charged(self) -> Fraction:
        return charged(self.shop.ledger.entries())

    def drawn(self) -> int:
        """How often the rows of night 3 were drawn."""
        return len(self.witness.read_text().split()) if self.witness.exists() else 0

    def broken(self) -> list[str]:
        """Every promise that does not hold now, in words."""
        ledger, found = self.shop.ledger, []
        if problem := ledger.problem():
            return [problem]
        again = squared_weights([r for t in DUE for r in self.nightly.counter.rows(t)])
        # a night's own table is drawn anew whole, and paid for by itself
        own = () if self.nightly.played is None else self.nightly.played.mechanisms
        alone = sum((m.rho for m in own if m.rho is not None), Fraction(0))
        part = (self.whole - alone) * Fraction(again, self.nightly.counter.cost) + alone
        if self.charged() < self.whole + max(0, self.drawn() - 1) * part:
            found.append("more was drawn than charged")
        if mispriced(ledger.entries(), "shop", self.nightly.key) is not None:
            found.append("a redraw was not priced")
        return found if commits_once(ledger.entries()) else [*found, "a night has two COMMITs"]

    def settled(self) -> list[str]:
        """What the night that followed a kill, and the next, must have put in order."""
        found = self.broken()
        entries = self.shop.ledger.entries()
        nights = committed_steps(entries, "shop", self.nightly.key)
        if [n.t for n in nights] != [1, 3]:
            return [*found, f"committed nights are {[n.t for n in nights]}"]
        names = {p.name for p in self.shop.kept.iterdir()}
        stands = {f"{kind}-{n.t:05d}.{n.attempt}.npy" for n in nights for kind in ("leaf", "seen", "rows")}
        stands |= {f"note-{n.t:05d}.{n.attempt}.json" for n in nights}
        if not stands <= names:
            found.append("a committed file is gone")
        if child(lambda: self.shop.append(4, customers(80, 40))) != 0:
            return [*found, "the next night failed"]
        if {p.name for p in self.shop.kept.glob("*-0000[13].*")} != stands:
            found.append("a died attempt's file is left")
        nights = committed_steps(self.shop.ledger.entries(), "shop", self.nightly.key)
        folder = folder_of(self.shop.home.store, "shop", nights[-1].commit.body["run_key"], exact=False)
        release = read_release(folder)
        kept = KeptSteps(self.shop.kept, self.nightly.counter, nights, self.nightly.size)
        total = np.rint(self.nightly.counter.total(4, kept.rows)).astype(np.int64)
        running = [release.tables[m.table].reshape(-1) for m in self.nightly.sums.mechanisms]
        if not np.array_equal(total, np.concatenate(running)):
            found.append("a sum is not read off the committed rows")
        if len(np.concatenate([np.load(p) for p in self.shop.kept.glob("seen-*")])) != 120:
            found.append("somebody was counted twice, or not at all")
        return found


def kill(world: World, at: int) -> Case:
    """Kill night 3 at one step, look, let it be done, look."""
    world.restore()
    code = world.night(lambda: arm(at, world.steps))
    found = [] if code == -signal.SIGKILL else [f"not killed: {code}"]
    label = world.steps.read_text().splitlines()[-1]
    found += world.broken()
    if world.night() != 0:
        found.append("the night that followed failed")
    else:
        found += world.settled()
    again = world.drawn() > 1
    return {
        "counter": world.kind,
        "kills": 1,
        "drawn again": int(again),
        "of them paid for again": int(again and world.charged() > world.whole),
        "violations": int(bool(found)),
        "first": f"{label}: {found[0]}" if found else "",
    }


def kills(kind: str, sample: int | None) -> list[Case]:
    """Kill night 3 at every step, or at ``sample`` of them."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        world = World(Path(folder), patch, kind)
        assert world.night(lambda: arm(None, world.steps)) == 0
        count = len(world.steps.read_text().splitlines())
        most = min(sample or count, count)
        doing = {f"{kind}, step {at}": at for at in (1 + i * count // most for i in range(most))}
        return resumed("night_crashes", list(doing), lambda key: kill(world, doing[key]))


def main(sample: int | None) -> tuple[str, list[Case]]:
    return "night_crashes", tally((case for kind in COUNTERS for case in kills(kind, sample)), "counter")


if __name__ == "__main__":
    sys.exit(sampled(main))
