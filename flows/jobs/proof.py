"""Verification of a run: recompute its certificate, compare its files with the ledger, and make them again."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.jobs.run import PAGES, drawn_pages
from pipeline.declaration.card import AnyCard, CardError
from pipeline.facts.report import Report, contradictory
from pipeline.files import write_file
from pipeline.ledger import publication
from pipeline.ledger.chain import Body, BudgetError, Entry, NoLedgerError
from pipeline.ledger.verify import Check, read_certificate, read_json, verify_run
from pipeline.privacy.release_file import file_of, sha256_file

Entries = Callable[[], Sequence[Entry]]
_VOUCHED = "the ledger vouches for every file of the folder"
_NO_LEDGER = "no ledger of it is at hand"
_UNKNOWN = "no PUBLISH entry is of it: it was never published so, or its entry is in another ledger"
_SIGNED = "that entry is signed by a key that is trusted"


@dataclass(frozen=True)
class Proof:
    """Result of verifying a run."""

    run: str
    ok: bool
    problem: str | None
    vouched: bool
    checks: list[Check]


def verify_run_job(
    folder: Path,
    entries: Entries,
    card: AnyCard | None = None,
    trusted: frozenset[str] = frozenset(),
    *,
    own: bool = True,
) -> Proof:
    """Verify a run; a check that lacks its ledger or card is reported as not done.

    ``card``: of the dataset, supplied by the verifier; None: nothing is made again.
    ``trusted``: public keys one of which must have signed the run's entry; without any, those that the ledger
    registers.
    Raises CardError if there is no readable certificate.
    """
    try:
        proof = read_certificate(folder)
        chain = _chain(entries, proof["dataset"], folder)
        record = None if chain is None else _vouched(chain, proof, folder, trusted, own)
        checks = verify_run(folder, chain, None if record is None else record.older(publication.maker()))
        if checks[0].ok is not False:
            checks += _publication_checks(folder, proof, record, card, strict=bool(trusted))
    except (ValueError, LookupError, TypeError, AttributeError) as e:
        reason = str(e) if isinstance(e, ValueError) else f"its files make no sense ({type(e).__name__})"
        raise CardError(f"{folder.name}: {reason}") from None
    wrong = next((c for c in checks if c.ok is False), None)
    problem = None if wrong is None else f"{wrong.what}: {wrong.found}"
    vouched = any(c.what == _VOUCHED and c.ok for c in checks)
    return Proof(folder.name, wrong is None, problem, vouched, checks)


def _chain(entries: Entries, dataset: str, folder: Path) -> Sequence[Entry] | None:
    """The ledger that charged the run, or published one of its name; None where none is at hand, or another one is."""
    try:
        charged = entries()
    except NoLedgerError:
        return None
    of_run = publication.publications(charged, folder.name) or any(e.lineage == dataset for e in charged)
    return charged if of_run else None


def _commit(chain: Sequence[Entry], proof: Body) -> Entry | None:
    stated = proof["ledger"]
    if stated is None:
        return None
    return next((e for e in chain if (e.seq, e.hash) == (stated["entry"], stated["hash"])), None)


@dataclass(frozen=True)
class Vouched:
    """The ledger's entries on a run.

    ``publication``: its PUBLISH entry; ``changed``, ``unsigned``: where that names other files, and what is wrong with
    its signature.  ``own``: whether the ledger is the home's, and not an exported file.
    """

    entries: Sequence[Entry]
    intent: Entry | None = None
    commit: Entry | None = None
    publication: Entry | None = None
    changed: str | None = None
    unsigned: str | None = None
    own: bool = False

    @property
    def body(self) -> Body:
        """The body of PUBLISH; empty where there is none."""
        return {} if self.publication is None else self.publication.body

    def older(self, now: Mapping[str, str]) -> str | None:
        """Note that another version made these files; None where it did not, or no trusted key vouches for them."""
        sound = self.publication is not None and self.changed is None and self.unsigned is None
        return publication.older_version(self.body["made_by"], now) if sound else None


def _vouched(chain: Sequence[Entry], proof: Body, folder: Path, trusted: frozenset[str], own: bool) -> Vouched:
    commit, files = _commit(chain, proof), publication.file_digests(folder)
    intent = None if commit is None else next((e for e in chain if e.seq == commit.body.get("intent")), None)
    published = _published(chain, folder, files)
    if published is None:
        return Vouched(chain, intent, commit, own=own)
    keys = trusted or frozenset(publication.registered_keys([e for e in chain if e.seq < published.seq]))
    changed, unsigned = _problem(published, folder, files), publication.signature_problem(published, keys)
    return Vouched(chain, intent, commit, published, changed, unsigned, own)


def _publication_checks(
    folder: Path, proof: Body, record: Vouched | None, card: AnyCard | None, *, strict: bool
) -> Iterator[Check]:
    # making a run again loads most modules, and is rare
    from flows.jobs.made_again import made_again
    from flows.jobs.playing import is_played, played_again

    if card is not None and card.name != proof["dataset"]:
        yield Check("the run is of this card's dataset", False, f"it is of {proof['dataset']}, the card of {card.name}")
        return
    if record is None:
        yield Check(_VOUCHED, False if strict else None, _NO_LEDGER)
        return
    if record.publication is None:
        unvouched = publication.was_unvouched(record.entries, record.commit)
        reason = "not vouched: the run is older than such entries; `reticent run` its recipe again, at no cost"
        yield Check(_VOUCHED, None if unvouched and not strict else False, reason if unvouched else _UNKNOWN)
    else:
        yield Check(_VOUCHED, record.changed is None, record.changed or "")
        yield Check(_SIGNED, record.unsigned is None, record.unsigned or "")
    if is_played(folder):
        yield from played_again(folder, record)
    elif card is None:
        yield Check("the files, made again", None, "name the card with --card")
    else:
        yield from made_again(folder, card, record)


def _published(chain: Sequence[Entry], folder: Path, files: Mapping[str, str]) -> Entry | None:
    """The PUBLISH entry of a folder: under its own name, else under the one it claims, as a copy may be renamed."""
    names = folder.name, _name(folder)
    return next((e for n in names if (e := publication.publication_of(chain, n, files)) is not None), None)


def _problem(published: Entry, folder: Path, files: Mapping[str, str]) -> str | None:
    """The first difference of a folder from its entry, or None; another run in its place is called by its name."""
    wrong, run, claimed = publication.files_problem(published, files), published.body["run"], _name(folder)
    return wrong if wrong is None or claimed == run else f"it holds {claimed}, not {run}"


def _name(folder: Path) -> str:
    """Name of the run in its report, which differs from the folder's after a renaming."""
    name: Any = read_json(folder, "report.json").get("run")
    return name if isinstance(name, str) else folder.name


def require_verified(folder: Path, entries: Entries, card: AnyCard | None = None) -> Proof:
    """Refuse a run that does not verify, or that no ledger at hand knows.

    Raises BudgetError if so.  A run that is older than PUBLISH passes, not vouched.
    """
    proof = verify_run_job(folder, entries, card)
    if not proof.ok:
        raise BudgetError(
            f"{folder.name} does not verify: {proof.problem}. Nothing was done; `reticent run` its recipe again "
            "publishes it anew, at no cost"
        )
    if any(c.found == _NO_LEDGER for c in proof.checks):
        raise BudgetError(
            f"{folder.name}: no ledger at hand knows this run; a real dataset has its own: name its card with --card"
        )
    if (claimed := _name(folder)) != folder.name:
        raise BudgetError(f"{folder.name} holds the files of {claimed}, under another name; nothing was done")
    return proof


def refuse_changed(folder: Path, entries: Entries, card: AnyCard | None = None) -> None:
    """Refuse a run whose files are not those that the ledger vouches for; without it, that its certificate lists.

    Raises BudgetError if so.
    Raises CardError if there is no readable certificate.
    """
    try:
        proof = read_certificate(folder)
        chain = _chain(entries, proof["dataset"], folder)
        files = publication.file_digests(folder)
        published = None if chain is None else _published(chain, folder, files)
        if published is not None:
            problem = _problem(published, folder, files)
        elif card is not None and card.name != proof["dataset"]:
            problem = f"it is of {proof['dataset']}, the card of {card.name}"
        elif chain is not None and not publication.was_unvouched(chain, _commit(chain, proof)):
            problem = _UNKNOWN
        else:
            stated = {file_of(kind): digest for kind, digest in proof["sha256"].items()}
            changed = [name for name, digest in stated.items() if sha256_file(folder / name) != digest]
            problem = f"{changed[0]} was changed" if changed else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise CardError(f"{folder.name}: no readable certificate.json ({type(e).__name__})") from None
    if problem is not None:
        raise BudgetError(f"{folder.name}: {problem}. `reticent run` its recipe again publishes it anew, at no cost")


def draw_pages(folder: Path, report: Report, entries: Entries) -> None:
    """Draw the pages of a run again, but replace none that the ledger vouches for.

    Raises CardError if no page can be made of the run's files.
    Raises BudgetError if this version would draw others, or no ledger at hand knows the run and other pages stand
    there; the folder stays as it is.
    """
    from pipeline.learners.policy_files import read_view

    chain = _chain(entries, report.dataset.name, folder)
    published = publication.publications(chain or (), folder.name) or publication.publications(chain or (), report.run)
    files = publication.file_digests(folder)
    if any(e.body["files"] == files for e in published):
        return
    try:
        pages = dict(zip(PAGES, drawn_pages(report, read_view(report, folder)), strict=True))
    except (OSError, ValueError, LookupError, ArithmeticError) as e:
        raise CardError(contradictory(folder.name, e)) from e
    drawn = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in pages.items()}
    if not published and drawn.items() <= files.items():
        return
    if chain is None:
        raise BudgetError(
            f"{folder.name}: these would be other pages than those that are there, and no ledger at hand vouches for "
            "report.json: name the home that made it with --home, or, of a real dataset, the card with --card"
        )
    if published and not any(drawn.items() <= e.body["files"].items() for e in published):
        raise BudgetError(
            f"{folder.name}: these would be other pages than those the ledger vouches for (entry {published[-1].seq}): "
            "drawn by another version, or report.json was changed. `reticent run` its recipe again publishes it anew"
        )
    if not published and not publication.was_unvouched(chain, _commit(chain, read_certificate(folder))):
        raise BudgetError(f"{folder.name}: {_UNKNOWN}")
    for name, text in pages.items():
        write_file(folder / name, text)
