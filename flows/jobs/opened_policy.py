"""A published policy as a person holds it: one decision, a table, a file for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import CardError
from pipeline.files import whole_file, write_file
from pipeline.learners.gains import Control, StoredGains, control
from pipeline.learners.observed_policy import Advice, StoredObserved
from pipeline.learners.policy_files import StoredPolicy, refuse_steps
from pipeline.learners.stored_decisions import Decision, StoredDecisions, decide, state_indices

if TYPE_CHECKING:
    import polars as pl

Form = Literal["csv", "json"]


class WrittenPolicy(TypedDict):
    """What ``policy export --json`` prints."""

    run: str
    file: str
    format: Form
    policy_sha256: str
    vouched: bool


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write a file at once or not at all; without ``force`` never over another.

    Raises
    ------
    CardError
        If the file exists and ``force`` is not set, or the place takes no file.
    """
    try:
        with whole_file(path, over=force, alone=False) as fresh:
            write_file(fresh, text)
    except FileExistsError:
        raise CardError(f"{path} exists; name another file, or replace it with --force") from None
    except OSError as e:
        raise CardError(f"{path}: cannot be written ({e.strerror}); name a file in a folder that exists") from None


# what is said of an observation
Told = Control | Advice


@dataclass(frozen=True)
class Policy:
    """The policy of a run whose files are those that the ledger vouches for, or that its certificate lists.

    Parameters
    ----------
    stored
        As it was read back from the run's folder.
    """

    stored: StoredPolicy = field(repr=False)

    def act(self, state: object, step: int, *, raw: bool = False, sample: bool = False) -> Decision | Told:
        """What to do in a state at a step.

        Parameters
        ----------
        state
            A declared label, or with ``raw`` a value as the log's column holds it; of a linear controller, or a policy
            over observations, the observed numbers, in the order of their names.
        step
            Counted from 0.
        raw, sample
            Whether the card's bins read the state; whether one of several actions is drawn.

        Returns
        -------
        The advice with its action; the action is None where the policy keeps current practice, or where one is to be
        drawn.

        Raises
        ------
        CardError
            If state or step is none of the policy's.
        """
        steps = np.array([step], dtype=np.int64)
        if isinstance(self.stored, StoredGains | StoredObserved):
            return self.observe(np.array([state], dtype=np.float64), steps)[0]
        return self.decide([None if state is None else str(state)], steps, raw=raw, sample=sample)[0][0]

    def observe(
        self, observations: NDArray[np.float64], steps: NDArray[np.int64], state: str | None = None
    ) -> Sequence[Told]:
        """What to do at observations ``(N, p)`` as logged and steps ``(N,)``, all in one declared state if any."""
        if isinstance(self.stored, StoredObserved):
            states = np.full(len(steps), self.stored.state_index(state))
            return self.stored.act(observations, steps, states)
        if not isinstance(self.stored, StoredGains) or state is not None:
            raise CardError(
                "policy act: --observation is of linear controllers, which have no --state, and of policies over "
                "observations; this policy has declared states: give --state"
            )
        return control(self.stored, observations, steps)

    def decide(
        self, states: Sequence[str | None], steps: NDArray[np.int64], *, raw: bool = False, sample: bool = False
    ) -> tuple[Sequence[Decision], NDArray[np.int64]]:
        """The distinct decisions for many states and steps ``(N,)``, and which of them each one has ``(N,)``."""
        if not isinstance(self.stored, StoredDecisions):
            raise CardError("policy act: this policy takes --observation, and draws nothing")
        refuse_steps(steps, self.stored.labels["horizon"] - 1)
        return decide(self.stored, state_indices(self.stored, states, raw=raw), steps, sample=sample)

    def to_polars(self) -> pl.DataFrame:
        """One row a step, state and action with labels (or a step, control and observed number): for other programs."""
        import polars as pl

        return pl.DataFrame(self.stored.shown()[0])

    def __repr__(self) -> str:
        """As ``policy show`` prints it."""
        return "\n".join(self.stored.shown()[1])
