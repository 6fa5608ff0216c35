"""What a run of a committed release does: nothing but read it back, and check that it is the one that was committed."""

from __future__ import annotations

from pipeline.declaration.card import AnyCard
from pipeline.ledger.chain import BudgetError, Entry
from pipeline.ledger.gates import passed_gate
from pipeline.logs.store import Snapshot
from pipeline.privacy.release_file import read_release, sha256_file
from pipeline.transaction.place import folder_of, read_attempt
from pipeline.transaction.recovery import fits
from pipeline.transaction.transaction import Curated, OpenLineage


def replay(lineage: OpenLineage, card: AnyCard, commit: Entry, snapshot: Snapshot | None) -> Curated:
    """The committed release as it lies in the store, checked against its entries; nothing is drawn or charged.

    Parameters
    ----------
    lineage
        From :func:`open_lineage`.
    card
        Whose release it is.
    commit
        The COMMIT of its key.
    snapshot
        What it was drawn from; None for a step of a continual release, whatever its data are by now.

    Raises
    ------
    BudgetError
        If the release is gone, damaged, or not what its entries say.
    """
    key, ledger = commit.body["run_key"], lineage.ledger
    folder = folder_of(lineage.store, lineage.name, key, exact=False)
    if not folder.exists():
        raise BudgetError(
            f"{card.name}: the release that entry {commit.seq} committed is not in this store: another store drew "
            f"it, or it was lost. Copy its folder {folder.name} here; it is never drawn again"
        )
    try:
        release, drawn = read_release(folder), read_attempt(folder)
    except ValueError as e:
        raise BudgetError(f"{card.name}: the committed release is damaged ({e}); restore the store") from None
    if sha256_file(folder / "release.parquet") != commit.body["release_sha256"]:
        raise BudgetError(
            f"{card.name}: the stored release does not match its COMMIT (entry {commit.seq}): it was edited"
        )
    entries = ledger.entries()
    intent = next(e for e in entries if e.seq == commit.body["intent"])
    told = (release.dataset, release.data_kind, release.noise, release.sampler)
    charged = (card.name, card.kind, commit.body["noise"], commit.body["sampler"])
    if not fits(release, intent, commit) or told != charged:
        raise BudgetError(
            f"{card.name}: release.json does not match its ledger entries {intent.seq} and {commit.seq}: edited"
        )
    stale = snapshot is not None and drawn.data_digest != snapshot.data_digest
    gate = passed_gate(entries, intent)
    return Curated(release, folder, key, intent, commit, True, stale, lineage.recovered, gate)
