"""A published run: finding its folder, the evidence for it, and its results as values.

A published policy in use: one decision, a table, a file for other programs.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from flows.config.home import CardLike, Home, card_at
from pipeline.arrays import Array, Integers
from pipeline.declaration import lineage, toml
from pipeline.declaration.card import AnyCard, CardError
from pipeline.facts import answers, learnt
from pipeline.facts.promise import Dump, Guarantee
from pipeline.facts.report import Certificate, Report, read_report
from pipeline.facts.verdict import Improvement, Verdict
from pipeline.files import whole_file, write_file
from pipeline.learners import policy_files
from pipeline.ledger.chain import read_export
from pipeline.ledger.ledger import open_ledger

if TYPE_CHECKING:
    import polars as pl

    from flows.jobs.proof import Entries, Proof


T = TypeVar("T")
_HEIGHT = 720


def _is_run(folder: Path) -> bool:
    """Whether a folder is that of a run; one that lost a file is, so that who opens it says which."""
    return any((folder / name).is_file() for name in ("report.json", "certificate.json"))


def find_run(home: Home, run: str) -> Path:
    """A run's folder by path, full name, unique beginning, or the name of a pointer such as ``current``.

    Raises CardError if there is none, or several, or a link that is no pointer to a run beside it stands in the place
    of one; or practice serves.
    """
    from flows.jobs.promotion import Alias, is_pointer, practice_serves

    # only a path from the working directory leads out of the home's runs
    with suppress(OSError):
        for link in (Path(run), home.runs / run) if run else ():
            if link.is_symlink() and is_pointer(link):
                Alias(link.parent, link.name).now()
            elif link.is_symlink():
                raise CardError(
                    f"{link} holds {link.readlink().name}, not {link.name}: it is a link, and no pointer that "
                    "`promote` made. Name the run itself; if that one should be here, `reticent run` its recipe again"
                )
        if run and _is_run(Path(run)):
            return Path(run).resolve()
    if (since := practice_serves(home.runs, run)) is not None:
        raise CardError(
            f"{run}: no run is in use. The last one did worse than current practice on {since}: keep current practice"
        )
    runs = [p for p in sorted(home.runs.glob("*")) if not p.is_symlink() and _is_run(p)]
    full = run
    with suppress(OSError):
        if Path(run).name == run and is_pointer(home.runs / run):
            full = Alias(home.runs, run).now() or run
    matches = [p for p in runs if p.name == full] or [p for p in runs if run and p.name.startswith(run)]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(p.name for p in runs) or "none"
    raise CardError(
        f"{'several runs begin' if matches else 'no run begins'} with {run!r} in {home.runs}; there are: {names}"
    )


@dataclass(frozen=True)
class RunPage:
    """The page of a run: a notebook shows it whole, a prompt says where it is."""

    file: Path
    facts: Report

    def _repr_html_(self) -> str:
        # a page of its own: its styles must not meet the notebook's
        text = html.escape(self.file.read_text(encoding="utf-8"), quote=True)
        style = f"width: 100%; height: {_HEIGHT}px; border: 1px solid #ccc"
        return f'<iframe sandbox style="{style}" srcdoc="{text}"></iframe>'

    def __repr__(self) -> str:
        """Answer, guarantee, value and place, a line each."""
        from reports.run.answer import headline, reason

        value = self.facts.value
        ends = f"{value.lower:.4g} to {'?' if value.upper is None else f'{value.upper:.4g}'}"
        verdict = self.facts.verdict
        answer = "" if verdict is None else f"{headline(self.facts, verdict)}. {reason(verdict)}\n"
        return f"{answer}{self.facts.guarantee.sentence}\nvalue {ends} ({value.status})\n{self.file}"


@dataclass(frozen=True)
class Run:
    """A published run: its guarantee, results and policy."""

    home: Home = field(repr=False)
    folder: Path
    card: CardLike | None = field(default=None, repr=False)
    answer: answers.RunAnswer | None = field(default=None, repr=False)

    @property
    def said(self) -> answers.RunAnswer:
        """The answer of ``run --json``; CardError of a run that another process made."""
        if self.answer is None:
            raise CardError(f"{self.name} was opened, not made here: what was left of the budget then is in its report")
        return self.answer

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.folder.name

    @cached_property
    def facts(self) -> Report:
        """All of ``report.json``.

        Raises CardError if it is missing or damaged.
        """
        return _or_card_error(lambda: read_report(self.folder))

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee to one person."""
        return self.facts.guarantee

    @property
    def value(self) -> learnt.ValueFacts:
        """The interval of the policy's value, and whether it is a bound, measured, or modelled (``status``)."""
        return self.facts.value

    @property
    def verdict(self) -> Verdict | None:
        """Whether the policy is better than current practice; None in a run without a verdict."""
        return self.facts.verdict

    @property
    def improvement(self) -> Improvement | None:
        """Improvement of the policy on current practice, with its interval; None until that was evaluated."""
        return None if self.verdict is None else self.verdict.improvement

    @cached_property
    def certificate(self) -> Certificate:
        """The certificate, for auditors: every mechanism, every assumption, the ledger's entry."""
        from pipeline.ledger.verify import read_certificate

        return _or_card_error(lambda: Certificate.model_validate(read_certificate(self.folder)))

    @cached_property
    def policy(self) -> RunPolicy:
        """The policy, with labels.

        Raises BudgetError if a file of the folder is not the one that the ledger vouches for.
        """
        from flows.jobs.proof import refuse_changed

        refuse_changed(self.folder, *self.evidence())
        return RunPolicy(policy_files.read_stored(self.folder))

    @property
    def report(self) -> RunPage:
        """The page."""
        return RunPage(self.folder / "report.html", self.facts)

    def evidence(self, exported: Path | None = None) -> tuple[Entries, AnyCard | None]:
        """A reader of the ledger that charged the run, and the card of its dataset, None where none is at hand."""
        from pipeline.ledger.verify import read_certificate

        shelf = self.home.shelf
        if self.card is not None:
            card = card_at(self.card, shelf)
        else:
            # a card of the catalog that has the run's dataset, whatever its folder is called; its namesake first
            name = _or_card_error(lambda: read_certificate(self.folder)).get("dataset")
            shipped = [path for c in lineage.catalogs(shelf) for path in sorted(c.glob("*/card.toml"))]
            shipped.sort(key=lambda path: path.parent.name != name)
            card = next((card_at(path, shelf) for path in shipped if _dataset_of(path) == name), None)
        if exported is not None:
            return lambda: read_export(exported), card
        return lambda: open_ledger(self.home.ledger_of(card), create=False).entries(), card

    def compare(self, newer: Run) -> answers.Comparison:
        """Decisions or gains that differ, intervals, budget and settings; reads the two folders alone."""
        from flows.jobs.promotion import compared

        return compared(self.folder, newer.folder)

    def sign(self, by: str, note: str | None = None) -> Dump:
        """Sign off the run, if it verifies: who, when and for which certificate, as an entry of the chain.

        Raises BudgetError if it does not verify.
        """
        from flows.jobs.book import Book, sign_job

        return sign_job(Book(self.home, self.card).chain, self.folder, by, note, self.evidence()[1])

    def export_policy(self, to: str | Path, form: Literal["csv", "json"] | None = None, *, force: bool = False) -> Dump:
        """Write the policy of a run that verifies, with labels, as CSV that no spreadsheet evaluates, or as JSON.

        ``to``, ``form``: file to write, and its format; None: by the file's suffix, else CSV.
        Raises CardError if the file exists, or the place takes no file.
        Raises BudgetError if the run does not verify.
        """
        from flows.jobs.proof import require_verified

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
        """Verify the run as ``ledger verify RUN`` does: recompute the certificate, compare and make again every file.

        ``trusted``: public keys one of which must have signed.
        """
        from flows.jobs.proof import verify_run_job

        return verify_run_job(self.folder, *self.evidence(ledger), trusted, own=ledger is None)


def _dataset_of(card: Path) -> object:
    """Name of a card's dataset; None of a card that cannot be read, which is another's matter."""
    with suppress(CardError):
        return toml.read_toml(card).get("name")
    return None


def _or_card_error(read: Callable[[], T]) -> T:
    """Read a run's folder, which may be missing or damaged; CardError for ValueError."""
    try:
        return read()
    except ValueError as e:
        raise CardError(str(e)) from None


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write a file at once or not at all; without ``force`` never over another.

    Raises CardError if the file exists and ``force`` is not set, or the place takes no file.
    """
    try:
        with whole_file(path, over=force, alone=False) as fresh:
            write_file(fresh, text)
    except FileExistsError:
        raise CardError(f"{path} exists; name another file, or replace it with --force") from None
    except OSError as e:
        raise CardError(f"{path}: cannot be written ({e.strerror}); name a file in a folder that exists") from None


@dataclass(frozen=True)
class RunPolicy:
    """The policy of a run whose files are those that the ledger vouches for, or that its certificate lists."""

    stored: policy_files.StoredPolicy = field(repr=False)

    def act(
        self, state: object, step: int, *, raw: bool = False, sample: bool = False, person: str | None = None
    ) -> Mapping[str, Any]:
        """Decide in a state at a step.

        ``state``: A declared label, or with ``raw`` a value as the log's column holds it; of a linear controller, or a
        policy over observations, the observed numbers, in the order of their names.
        ``step``: counted from 0.
        ``person``: id of the person: needed where a share of the people meets the policy.
        Returns the advice with its action; the action is None where the policy keeps current practice, or where one is
        to be drawn.
        Raises CardError if state or step is none of the policy's.
        """
        steps = np.array([step], dtype=np.int64)
        if isinstance(self.stored, policy_files.StoredGains | policy_files.StoredObserved):
            decision = self.observe(np.array([state], dtype=np.float64), steps)[0]
        else:
            decision = self.decide([None if state is None else str(state)], steps, raw=raw, sample=sample)[0][0]
        return self.met_by(person, decision)

    def met_by(self, person: str | None, decision: Dump) -> Mapping[str, Any]:
        """A decision for one person: with its ``policy_id``, whether they meet the policy, and the propensity.

        Raises CardError if a share of the people meets the policy and no person is named, or all meet it and one is
        named.
        """
        from flows.jobs.promotion import PRACTICE
        from pipeline.logs.contribution_bounding import one_form
        from pipeline.statistics.played import meets

        play = self.stored.of.play
        if play is None:
            if person is not None:
                raise CardError(
                    f"{self.stored.of.run}: everybody meets this policy ([play] share is not set): name nobody"
                )
            return {**decision}
        # the form in which a night's sums know the person
        if not (known := one_form(person or "")):
            raise CardError(f"{self.stored.of.run}: {play['share']:g} of the people meet this policy: say who is there")
        if not meets(play, known):
            nothing = {"step": decision["step"], "advice": PRACTICE, "action": None}
            return {"policy_id": play["id"], "arm": "practice", "propensity": None, **nothing}
        action, listed = decision["action"], decision.get("actions")
        # decisions at observations are deterministic
        chances = [1.0] if listed is None else [c["probability"] for c in listed if c["action"] == action]
        chance = None if action is None else chances[0]
        return {"policy_id": play["id"], "arm": "policy", "propensity": chance, **decision}

    def observe(self, observations: Array, steps: Integers, state: str | None = None) -> Sequence[Dump]:
        """Decide at observations ``(N, p)`` as logged and steps ``(N,)``, all in one declared state if any."""
        if isinstance(self.stored, policy_files.StoredObserved):
            states = np.full(len(steps), self.stored.state_index(state))
            return self.stored.act(observations, steps, states)
        if not isinstance(self.stored, policy_files.StoredGains) or state is not None:
            raise CardError(
                "policy act: --observation is of linear controllers, which have no --state, and of policies over "
                "observations; this policy has declared states: give --state"
            )
        return self.stored.act(observations, steps)

    def decide(
        self, states: Sequence[str | None], steps: Integers, *, raw: bool = False, sample: bool = False
    ) -> tuple[Sequence[Dump], Integers]:
        """The distinct decisions for many states and steps ``(N,)``, and which of them each one has ``(N,)``."""
        if not isinstance(self.stored, policy_files.StoredDecisions):
            raise CardError("policy act: this policy takes --observation, and draws nothing")
        return self.stored.decide(states, steps, raw=raw, sample=sample)

    def to_polars(self) -> pl.DataFrame:
        """One row a step, state and action with labels (or a step, control and observed number): for other programs."""
        import polars as pl

        return pl.DataFrame(self.stored.shown()[0])

    def to_pandas(self) -> Any:
        """The same as :meth:`to_polars`, as a data frame of pandas.

        Raises CardError if pandas is not installed.
        """
        try:
            import pandas  # pyright: ignore[reportMissingImports,reportUnknownVariableType]
        except ImportError:
            raise CardError("to_pandas needs pandas: pip install pandas; or take to_polars") from None
        return pandas.DataFrame(self.stored.shown()[0])  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]

    def __repr__(self) -> str:
        """As ``policy show`` prints it."""
        return "\n".join(self.stored.shown()[1])
