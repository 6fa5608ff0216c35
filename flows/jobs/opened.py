"""A run that is there: its folder found, the evidence for it, and what it says as values."""

from __future__ import annotations

import html
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from flows.config.home import CardLike, Home, card_at
from flows.jobs.book import Book, Signed, sign_job
from flows.jobs.opened_policy import Form, Policy, WrittenPolicy, write_whole
from flows.jobs.promotion import Alias, compared, is_pointer
from flows.jobs.proof import Entries, Proof, refuse_changed, require_verified, verify_run_job
from pipeline.declaration.card import AnyCard, CardError
from pipeline.declaration.lineage import catalogs
from pipeline.learners.offline_agents import read_stored
from pipeline.ledger.chain import read_export
from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.verify import read_certificate
from reports.facts.answers import Comparison, RunAnswer
from reports.facts.learnt import ValueFacts
from reports.facts.promise import Guarantee
from reports.facts.report import Certificate, Report, read_report
from reports.facts.verdict import Improvement, Verdict
from reports.run.answer import headline

T = TypeVar("T")
_HEIGHT = 720


def find_run(home: Home, run: str) -> Path:
    """A run's folder by path, full name, unique beginning, or the name of a pointer such as ``current``.

    Raises
    ------
    CardError
        If there is none, or several, or a link that is no pointer stands in the place of one.
    """
    # only what is a path from here leaves the home's runs
    with suppress(OSError):
        for link in (Path(run), home.runs / run) if run else ():
            if link.is_symlink() and not is_pointer(link):
                raise CardError(
                    f"{link} holds {link.readlink().name}, not {link.name}: it is a link, and no pointer that "
                    "`promote` made. Name the run itself; if that one should be here, `reticent run` its recipe again"
                )
        if run and (Path(run) / "report.json").is_file():
            return Path(run).resolve()
    there = [p for p in sorted(home.runs.glob("*")) if not p.is_symlink() and (p / "report.json").is_file()]
    full = run
    with suppress(CardError):
        full = Alias(home.runs, run).now() or run
    found = [p for p in there if p.name == full] or [p for p in there if run and p.name.startswith(run)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(p.name for p in there) or "none"
    raise CardError(
        f"{'several runs begin' if found else 'no run begins'} with {run!r} in {home.runs}; there are: {known}"
    )


@dataclass(frozen=True)
class Page:
    """The page of a run: a notebook shows it whole, a prompt says where it is.

    Parameters
    ----------
    file
        ``report.html``: one file that loads nothing from anywhere.
    facts
        What it says, as values.
    """

    file: Path
    facts: Report

    def _repr_html_(self) -> str:
        # a page of its own: its styles must not meet the notebook's
        text = html.escape(self.file.read_text(encoding="utf-8"), quote=True)
        style = f"width: 100%; height: {_HEIGHT}px; border: 1px solid #ccc"
        return f'<iframe sandbox style="{style}" srcdoc="{text}"></iframe>'

    def __repr__(self) -> str:
        """Answer, guarantee, value and place, a line each."""
        value = self.facts.value
        ends = f"{value.lower:.4g} to {'?' if value.upper is None else f'{value.upper:.4g}'}"
        said = self.facts.verdict
        answer = "" if said is None else f"{headline(self.facts, said)}. {said.why}\n"
        return f"{answer}{self.facts.guarantee.sentence}\nvalue {ends} ({value.status})\n{self.file}"


@dataclass(frozen=True)
class Run:
    """A published run: what it promises, what it found, and what to do with it.

    Parameters
    ----------
    home, folder
        Where it was made, and its folder.
    card
        Of its dataset, where it is known: a real one names the ledger.
    answer
        What ``run --json`` prints, where this process made the run.
    """

    home: Home = field(repr=False)
    folder: Path
    card: CardLike | None = field(default=None, repr=False)
    answer: RunAnswer | None = field(default=None, repr=False)

    @property
    def said(self) -> RunAnswer:
        """What ``run --json`` prints; CardError of a run that another process made."""
        if self.answer is None:
            raise CardError(f"{self.name} was opened, not made here: what was left of the budget then is in its report")
        return self.answer

    @property
    def name(self) -> str:
        """Of the run."""
        return self.folder.name

    @cached_property
    def facts(self) -> Report:
        """All of ``report.json``.

        Raises
        ------
        CardError
            If it is missing or damaged.
        """
        return _or_card_error(lambda: read_report(self.folder))

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one person."""
        return self.facts.guarantee

    @property
    def value(self) -> ValueFacts:
        """The interval of the policy's value, and whether it is a bound, measured, or modelled (``status``)."""
        return self.facts.value

    @property
    def verdict(self) -> Verdict | None:
        """Is the policy better than current practice; None in a run that does not say."""
        return self.facts.verdict

    @property
    def improvement(self) -> Improvement | None:
        """By how much the policy improves on current practice, with its interval; None until that was evaluated."""
        return None if self.verdict is None else self.verdict.improvement

    @cached_property
    def certificate(self) -> Certificate:
        """What an auditor reads: every mechanism, every assumption, the ledger's entry."""
        return _or_card_error(lambda: Certificate.model_validate(read_certificate(self.folder)))

    @cached_property
    def policy(self) -> Policy:
        """The policy, with labels.

        Raises
        ------
        BudgetError
            If a file of the folder is not the one that the ledger vouches for.
        """
        refuse_changed(self.folder, *self.evidence())
        return Policy(read_stored(self.folder))

    @property
    def report(self) -> Page:
        """The page."""
        return Page(self.folder / "report.html", self.facts)

    def evidence(self, exported: Path | None = None) -> tuple[Entries, AnyCard | None]:
        """How to read the ledger that charged it, and the card of its dataset, as far as they are at hand.

        Parameters
        ----------
        exported
            A file that ``ledger export`` wrote, in place of the ledger.
        """
        shelf = self.home.shelf
        if self.card is not None:
            card = card_at(self.card, shelf)
        else:
            # a card of the catalog that has the run's dataset
            name = _or_card_error(lambda: read_certificate(self.folder)).get("dataset")
            shipped = [c / name / "card.toml" for c in catalogs(shelf) if isinstance(name, str) and name.isidentifier()]
            card = next((card_at(path, shelf) for path in shipped if path.is_file()), None)
        if exported is not None:
            return lambda: read_export(exported), card
        where = self.home.root / "ledger.db" if card is None else self.home.ledger_of(card)
        return lambda: open_ledger(where, create=False).entries(), card

    def compare(self, newer: Run) -> Comparison:
        """Decisions or gains that differ, intervals, budget and settings; reads the two folders alone.

        Parameters
        ----------
        newer
            The run that this one is compared with.
        """
        return compared(self.folder, newer.folder)

    def sign(self, by: str, note: str | None = None) -> Signed:
        """Sign off the run, if it verifies: who, when and for which certificate, as an entry of the chain.

        Parameters
        ----------
        by, note
            Who answers for it, and a line beside the name.

        Raises
        ------
        BudgetError
            If it does not verify.
        """
        return sign_job(Book(self.home, self.card).kept, self.folder, by, note, self.evidence()[1])

    def export_policy(self, to: str | Path, form: Form | None = None, *, force: bool = False) -> WrittenPolicy:
        """Write the policy of a run that verifies, with labels, as CSV that no spreadsheet evaluates, or as JSON.

        Parameters
        ----------
        to, form
            File to write, and its format; None: by the file's suffix, else CSV.
        force
            Replace the file if it exists.

        Raises
        ------
        CardError
            If the file exists, or the place takes no file.
        BudgetError
            If the run does not verify.
        """
        proof, file = require_verified(self.folder, *self.evidence()), self.policy.stored
        path = Path(to)
        chosen = form or ("json" if path.suffix.lower() == ".json" else "csv")
        write_whole(path, file.as_json() if chosen == "json" else file.as_csv(), force=force)
        return {
            "run": file.of.run,
            "file": str(path.resolve()),
            "format": chosen,
            "policy_sha256": file.of.sha256,
            "vouched": proof.vouched,
        }

    def verify(self, *, ledger: Path | None = None, trusted: frozenset[str] = frozenset()) -> Proof:
        """What ``ledger verify RUN`` says: the certificate recomputed, every file compared, and made again.

        Parameters
        ----------
        ledger
            A file that ``ledger export`` wrote, in place of the ledger.
        trusted
            Public keys one of which must have signed.
        """
        return verify_run_job(self.folder, *self.evidence(ledger), trusted, own=ledger is None)


def _or_card_error(read: Callable[[], T]) -> T:
    """What is read of a run's folder, which may be missing or damaged."""
    try:
        return read()
    except ValueError as e:
        raise CardError(str(e)) from None
