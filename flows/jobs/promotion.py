"""The run in use, and the recipe's rule by which another takes its place, from released facts.

``runs/current`` is a symbolic link that is moved in one step, and what it pointed to before.  Where the run in use did
worse than current practice it leads nowhere: practice serves, and no rule promotes a run that still holds nights from
before that date.  A share of the people may meet a policy, by a hash that ``policy.json`` carries; the others keep
current practice.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from flows.config.home import Home
from flows.config.recipe import Promote, Setting, names_run
from pipeline.declaration.numbers import number
from pipeline.declaration.toml import CardError, Name
from pipeline.facts.answers import Comparison, Promotion, RunAnswer
from pipeline.facts.learnt import Gains, Status
from pipeline.facts.promise import DeclaredTables, Dump, present
from pipeline.facts.report import contradictory, read_report
from pipeline.facts.verdict import Verdict
from pipeline.files import DISK, json_text, remove_file, whole_file, write_file
from pipeline.learners.policy_files import PolicyFiles, StoredDecisions, StoredObserved, read_stored, read_view
from pipeline.ledger.chain import Entry, canonical_hash
from pipeline.ledger.publication import publications
from pipeline.statistics.played import Allocation
from pipeline.transaction.transaction import one_at_a_time
from reports.page import percent
from reports.run.answer import sentence
from reports.run.comparison import GainsSide, TableSide, compare_runs

# a stronger status has the larger number
_CERTAIN: dict[Status, int] = {"estimate": 0, "modelled": 0, "bound": 1, "evaluated": 2, "proved": 3}


@dataclass(frozen=True)
class Alias:
    """A named pointer to one run of a home.

    Raises CardError if it is no such name, or one that a run has or may have.
    """

    runs: Path
    name: str = "current"

    def __post_init__(self) -> None:
        try:
            TypeAdapter(Name).validate_python(self.name)
        except ValidationError:
            raise CardError(
                f"{self.name[:60]!r} names no pointer: small letters, digits, _ and -, at most 63 of them"
            ) from None
        if names_run(self.name) or ((self.runs / self.name).is_dir() and not (self.runs / self.name).is_symlink()):
            raise CardError(f"{self.name!r} is a run's name, and none for a pointer to one; take another")

    def now(self) -> str | None:
        """Name of the run in use, or None.

        Raises CardError if the pointer leads to anything but a name beside it, which would be no run of this home.
        """
        path = self.runs / self.name
        target = _target(path)
        if target is not None and target != Path(target).name:
            raise CardError(
                f"{path} leads to {target}: a pointer that `promote` made leads to a run beside it alone, so somebody "
                "changed it. Remove it, and promote the run that should be in use"
            )
        return target

    @property
    def rejected(self) -> frozenset[str]:
        """Runs that were rolled back; no rule promotes them again."""
        return frozenset(self._record()["rejected"])

    @property
    def practice_since(self) -> date | None:
        """The date on which the run in use did worse than practice, which serves since; None where a run is in use."""
        since = self._record().get("practice_since")
        return None if since is None or self.now() is not None else date.fromisoformat(since)

    def withdraw(self, day: date) -> None:
        """Let practice serve, and reject the run in use: it did worse than practice on ``day``."""
        with one_at_a_time(self.runs):
            record, now = self._record(), self.now()
            if now is None:
                return
            # recorded first: killed in between, the run in use is rejected and in place, and the night is tried again
            self._write_record([], [*(r for r in record["rejected"] if r != now), now], day)
            remove_file(self.runs / self.name)
            DISK.sync(self.runs)

    def promote(self, run: str) -> None:
        """Point to ``run``.

        Raises CardError if there is no such run.
        """
        if not (self.runs / run / "report.json").is_file():
            raise CardError(f"{run}: no run of that name in {self.runs}")
        with one_at_a_time(self.runs):
            record = self._record()
            past = [r for r in self._past(record) if r != run]
            # promoted by hand, a run that was rejected is trusted again
            self._write_record([*past, run], [r for r in record["rejected"] if r != run])
            self._point(run)

    def roll_back(self) -> str:
        """Point to the run before the one in use, and reject the latter; returns the name of the run now in use.

        Raises CardError if there is none, or it is gone.
        """
        with one_at_a_time(self.runs):
            record = self._record()
            past = self._past(record)
            if len(past) < 2:
                raise CardError(f"{self.runs / self.name}: no earlier run to go back to")
            *before, gone = past
            if not (self.runs / before[-1] / "report.json").is_file():
                raise CardError(f"{before[-1]}: the run before is gone from {self.runs}; promote another by name")
            # pointed first: killed in between, the history still ends with the run that was in use
            self._point(before[-1])
            self._write_record(before, [*(r for r in record["rejected"] if r != gone), gone])
            return before[-1]

    def _past(self, record: Dump) -> list[str]:
        """Runs in use so far, the present one last, without an entry that a kill between two writes left behind."""
        now, past = self.now(), record["history"]
        if now is None:
            return []
        return past[: past.index(now) + 1] if now in past else [now]

    def _record(self) -> Dump:
        if not is_pointer(self.runs / self.name):
            return {"history": [], "rejected": []}
        return json.loads(_history_of(self.runs / self.name).read_text(encoding="utf-8"))

    def _write_record(
        self, history: Sequence[str], rejected: Sequence[str], practice_since: date | None = None
    ) -> None:
        record: Dump = {"schema_version": 1, "history": list(history), "rejected": list(rejected)}
        if practice_since is not None:
            record["practice_since"] = practice_since.isoformat()
        with whole_file(_history_of(self.runs / self.name)) as fresh:
            write_file(fresh, json_text(record))

    def _point(self, run: str) -> None:
        fresh = self.runs / f".{self.name}.new"
        remove_file(fresh)
        try:
            DISK.point(fresh, run)
        except OSError:
            # a file system without links: the name as text
            write_file(fresh, f"{run}\n")
            DISK.sync(fresh)
        DISK.move(fresh, self.runs / self.name)
        DISK.sync(self.runs)


def _history_of(pointer: Path) -> Path:
    return pointer.with_name(f".{pointer.name}.json")


def is_pointer(path: Path) -> bool:
    """Whether a path among the runs is a pointer that was made here: its history is written before it points."""
    # anyone who can put a link in the place of a run can write a history beside it too
    # a name longer than a file system allows is no pointer's, and no error
    return not names_run(path.name) and os.path.isfile(_history_of(path))  # noqa: PTH113


def practice_serves(runs: Path, name: str) -> date | None:
    """Date since which practice serves in place of a run; None where it does not, or the name is of no pointer."""
    if not name or Path(name).name != name or not is_pointer(runs / name):
        return None
    return Alias(runs, name).practice_since


def redirected(runs: Path) -> str | None:
    """The first pointer of a home that leads elsewhere than to a run beside it, in words, or None."""
    for history in sorted(runs.glob(".*.json")):
        name = history.name.removeprefix(".").removesuffix(".json")
        if is_pointer(runs / name) and _target(runs / name) is not None:
            try:
                Alias(runs, name).now()
            except CardError as e:
                return str(e)
    return None


def _target(path: Path) -> str | None:
    """Content of a pointer, unchecked; None where there is none."""
    if path.is_symlink():
        return str(path.readlink())
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


def play_of(folder: Path) -> Allocation:
    """Share of the people who meet the policy of a run: by its file, or all."""
    play = json.loads((folder / "policy.json").read_text(encoding="utf-8")).get("play")
    return {"id": folder.name, "share": 1.0} if play is None else {"id": play["id"], "share": play["share"]}


def side_of(folder: Path) -> TableSide | GainsSide:
    """A run's folder as one side of a comparison."""
    report, stored = read_report(folder), read_stored(folder)
    if isinstance(stored, StoredDecisions) and isinstance(data := report.dataset, DeclaredTables):
        return TableSide(report, data, stored.policy, stored.tied)
    if isinstance(stored, StoredObserved) and isinstance(data := report.dataset, DeclaredTables):
        states, shown = {"live_states": list(stored.labels["states"])}, stored.shown_at
        return TableSide(report, data.model_copy(update=states), shown.policy, shown.tied)
    view = read_view(report, folder)
    assert isinstance(view, Gains)
    return GainsSide(report, view)


def compared(a: Path, b: Path) -> Comparison:
    """Changes from the run in folder ``a`` to that in ``b``.

    Raises CardError if they cannot be laid side by side.
    """
    try:
        return compare_runs(side_of(a), side_of(b))
    except ValueError as e:
        raise CardError(str(e)) from None
    except (LookupError, ArithmeticError) as e:
        raise CardError(contradictory(f"{a.name} or {b.name}", e)) from e


Sign = Callable[[str, str], int]
"""Takes a signer and a note; returns the number of the ledger's entry."""


@dataclass(frozen=True)
class Drift:
    """Result of a night's comparison of people under the run in use with those under practice.

    ``play``: id of the policy that they met; None: none of them met one, or all.
    ``called``: whether it did worse, by the rule.
    ``window``: how many nights the next runs hold; None: all.
    """

    day: date
    play: str | None
    called: bool
    window: int | None


def consider(
    rule: Promote | None, runs: Path, made: RunAnswer, sign: Sign, entries: Sequence[Entry], drift: Drift | None
) -> Promotion:
    """Compare a fresh run with the one in use and promote it where the rule allows.

    ``rule``: the recipe's; None compares and promotes nothing.
    ``entries``: of the ledger that vouches for the run.
    ``drift``: of a night that compares the run in use with practice.
    """
    run, verdict, pointer = made.run, made.verdict, Alias(runs, rule.pointer if rule is not None else "current")
    before = pointer.now()
    if drift is not None and drift.called and before is not None and play_of(runs / before)["id"] == drift.play:
        pointer.withdraw(drift.day)
    changes: Comparison | None = None
    held: list[str] = []
    if before is not None and before != run:
        try:
            changes = compared(runs / before, runs / run)
        except (CardError, OSError):
            held = [f"it cannot be compared with {before}, the run in use"]
    promoted, accepted = False, None
    if rule is None or before == run:
        held = []
    else:
        held += [] if drift is None else _worse_than_practice(drift, pointer.practice_since)
        held += reasons_to_hold(rule, made.value.status, verdict, changes)
        if run in pointer.rejected:
            held.append("it was rolled back before")
        # a clock that went back, or a date that is repeated by hand, replays an old release
        if before is not None and 0 < _released(entries, run) < _released(entries, before):
            held.append("its release is older than that of the run in use")
        promoted = not held
        if promoted and (verdict.conditional or (changes is not None and _by_word(verdict))):
            # before it is in use
            accepted = sign(f'[promote] accept = "{rule.accept}"', sentence(verdict))
        if promoted:
            pointer.promote(run)
    since = pointer.practice_since
    return Promotion(
        pointer=pointer.name,
        before=before,
        now=pointer.now(),
        promoted=promoted,
        held=held,
        # without the cells or gains themselves, which ``compare-runs`` lists
        changes=None if changes is None else changes.in_numbers(),
        **present(accepted=accepted, practice_since=None if since is None else since.isoformat()),
    )


def _released(entries: Sequence[Entry], run: str) -> int:
    """Number of the entry that committed a run's release; 0 where this ledger committed none."""
    return max((e.body["commit"] or 0 for e in publications(entries, run)), default=0)


def _worse_than_practice(drift: Drift, since: date | None) -> list[str]:
    """Reasons to promote no run after a night on which the run in use did worse than practice."""
    since = since or (drift.day if drift.called else None)
    if since is None:
        return []
    # the first date whose run holds no night up to then
    until = None if drift.window is None else since + timedelta(days=drift.window)
    if until is not None and drift.day >= until:
        return []
    end = "until somebody promotes a run by name" if until is None else f"until {until}, when runs hold none of it"
    return [f"the run in use did worse than current practice on {since}: practice serves {end}"]


def reasons_to_hold(rule: Promote, status: Status, verdict: Verdict, changes: Comparison | None) -> list[str]:
    """Every condition of the rule that a fresh run breaks, in words.

    One that was evaluated must be better than current practice, whatever else the rule asks; on a condition only where
    the rule accepts that.

    ``changes``: against the run in use; where there is none only ``status`` and ``verdict`` count.
    """
    held: list[str] = []
    if _CERTAIN[status] < _CERTAIN[rule.status]:
        held.append(f"its value interval is {status}, the rule asks for {rule.status}")
    if verdict.answer != "not_evaluated" and not verdict.above_zero:
        held.append(f"its lower improvement over practice is not above 0 for certain: {sentence(verdict)}")
    elif verdict.conditional and rule.accept is None:
        held.append(
            f"it is {sentence(verdict)}: whoever answers for that says so in the recipe, "
            '[promote] accept = "unchecked", or promotes it by name'
        )
    if changes is None:
        return held
    if _by_word(verdict) and rule.accept is None:
        # the word was given before a run was in use
        held.append(
            "a run is in use and choices may follow it, while the operator says that one rule made all of them: "
            'whoever answers for that says so in the recipe, [promote] accept = "unchecked", or promotes it by name'
        )
    gain = changes.value.lower_gain
    if "dataset.name" in changes.settings:
        held.append("the run in use is of another dataset")
    if rule.lower_gain is not None and gain is None:
        held.append("one of the two claims no interval, and the rule asks for a gain of the lower value")
    elif rule.lower_gain is not None and gain is not None and gain < rule.lower_gain:
        held.append(f"its lower value moved by {number(gain, toward='down')}, the rule asks for {rule.lower_gain:g}")
    # under noise every gain moves, so how far they moved together is what the rule limits
    moved = None if changes.gains is None else changes.gains.change
    if changes.gains is not None and rule.most_changed is not None and (moved is None or moved > rule.most_changed):
        distance = "from nothing" if moved is None else f"by {percent(moved)} of their norm"
        held.append(f"its gains moved {distance}, the rule allows {percent(rule.most_changed)}")
    if (cells := changes.cells) is not None:
        old, new = changes.abstain_share or [0.0, 0.0]
        if rule.most_changed is not None and cells.share > rule.most_changed:
            held.append(f"{percent(cells.share)} of the cells changed, the rule allows {percent(rule.most_changed)}")
        if not rule.more_abstaining and new > old:
            held.append(f"it abstains in {percent(new)} of the cells, the run in use in {percent(old)}")
    return held


def _by_word(verdict: Verdict) -> bool:
    return verdict.confounding is not None and verdict.confounding.status == "declared"


RULE = (
    "sha256 of ID:PERSON in UTF-8; who has its first 8 bytes, as a big-endian integer, below share * 2^64 meets this "
    "policy, all others keep current practice"
)
PRACTICE = "keep current practice: this person does not meet the policy"


def shared(files: PolicyFiles, share: float) -> PolicyFiles:
    """The files of a policy, with the share of people who meet it."""
    policy_id = canonical_hash([files.labels, files.digest])[:16]
    return replace(files, labels={**files.labels, "play": {"id": policy_id, "share": share, "rule": RULE}})


def play_in_use(s: Setting, home: Home) -> Allocation | None:
    """Share of people who meet the run in use; None where the recipe compares nothing, or no run is in use."""
    if s.recipe.nightly is None or s.recipe.nightly.drift is None or s.recipe.promote is None:
        return None
    run = Alias(home.runs, s.recipe.promote.pointer).now()
    return None if run is None else play_of(home.runs / run)
