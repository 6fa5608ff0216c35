"""What power cuts look at beside the verbs of a shop that is there: the first ingest, and the first night."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flows.jobs.intake import ingest_job
from flows.jobs.registration import register_job
from pipeline.ledger.people import key_file
from pipeline.ledger.steps import committed_steps
from tests.campaigns.crash_world import child
from tests.campaigns.night_crashes import World as Nights
from tests.campaigns.verbs import Shop
from tests.flows.nights import customers


class FirstIngest(Shop):
    """The shop's verbs, and the ingest that finds neither a store nor the key by which the ledger knows people."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.world.restore("registered")
        assert child(self._begin) == 0
        self.world.keep("not ingested")
        self.rows["first ingest"] = self.rows["ingest"]

    def _begin(self) -> None:
        self._unregister()
        key_file(str(self.world.now / "people" / "ledger.db"), self.world.home.store).unlink()
        register_job(self.card, self.world.home)

    def verbs(self) -> dict[str, tuple[str, Callable[[], object]]]:
        first = {"first ingest": ("not ingested", lambda: ingest_job(self.card, self.world.home))}
        return super().verbs() | first


class FirstNight(Nights):
    """A shop before its first night, which is delivered: the counter has no folder yet."""

    def _begin(self) -> None:
        self.shop.deliver(customers(0, 40))

    def settled(self) -> list[str]:
        found = self.broken()
        nights = committed_steps(self.shop.ledger.entries(), "shop", self.nightly.key)
        if [n.t for n in nights] != [1]:
            return [*found, f"committed nights are {[n.t for n in nights]}"]
        stands = {f"{kind}-00001.{nights[0].attempt}.npy" for kind in ("leaf", "seen", "rows")}
        return found if stands <= {p.name for p in self.shop.kept.iterdir()} else [*found, "a committed file is gone"]
