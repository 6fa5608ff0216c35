"""A policy's files, by kind of policy: written, read back, shown, exported, and looked up for one decision.

``policy.json`` gives the meaning of the numbers in the Parquet files beside it.  *Over declared states*: a table of
decisions with labels, a plain object a cell for programs, runs of equal steps for people.  *Linear gains*: in logged
units.  *Linear over observations*: shown on public observations, evaluated at any.  Beside them the policy's facts in
report.json, its true value, and its view on the page.

Reads the run's folder only: released values and declarations.  ``docs/operate.md`` has the columns and the escaping.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.agents.support import practice
from pipeline.arrays import AnyArray, Array, Bools, Integers
from pipeline.declaration.card import Card, CardError, LqCard
from pipeline.declaration.domain import States
from pipeline.facts.learnt import Decisions, Gains, PolicyFacts, PolicyView, Truth, Weights
from pipeline.facts.promise import DeclaredVector, Dump, vector_facts
from pipeline.files import json_text, write_file
from pipeline.ledger.chain import Body
from pipeline.mdp.policy import Policy
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import read_release, sha256_file

if TYPE_CHECKING:
    from pipeline.agents.linear_backup import Backup
    from pipeline.facts.report import Report
    from pipeline.mdp.features import ObservedMap

# a spreadsheet may evaluate a cell that begins so, or a part of it behind a character that it takes for a separator
_FORMULA = r"[=+\-@\uFF1D\uFE66\uFF0B\uFE62\uFF0D\uFE63\uFF20\uFE6B]"
_BLANK = r"[\s'\x00-\x1f\u00ad\u200b-\u200f\u2060\ufeff]*"
_START = rf"(?={_BLANK}{_FORMULA}|'*[\t\r\n])"
_INSIDE = rf"(?<=[,;|\t\r\n\"])(?={_BLANK}{_FORMULA})"
_ESCAPE = re.compile(rf"\A{_START}|{_INSIDE}")
_UNESCAPE = re.compile(rf"\A'{_START}|(?<=[,;|\t\r\n\"])'(?={_BLANK}{_FORMULA})")
ABOUT = ("run", "policy_sha256", "guarantee")


@dataclass(frozen=True)
class PolicyFiles:
    """The content of a policy's files, written once; pages are drawn from the values, never from the files.

    ``tables``: stem of each Parquet file -> its columns ``(rows,)``.
    """

    labels: Body
    tables: Mapping[str, Mapping[str, AnyArray]]

    @property
    def digest(self) -> str:
        """Sha256 of all columns: the policy itself, whatever wrote the files."""
        values = {stem: {name: x.tolist() for name, x in columns.items()} for stem, columns in self.tables.items()}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> tuple[str, ...]:
        """Write all files.

        Returns the stems of the Parquet files, whose digests the certificate lists.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        for stem, columns in self.tables.items():
            out = io.BytesIO()
            pq.write_table(pa.table(dict(columns)), out, compression="zstd")
            write_file(folder / f"{stem}.parquet", out.getvalue())
        write_file(folder / "policy.json", json_text(self.labels))
        return tuple(self.tables)


@dataclass(frozen=True)
class Exported:
    """The run of an exported policy.

    ``play``: the people who meet it, as in ``policy.json``; None: all.
    """

    run: str
    guarantee: str
    sha256: str
    play: Body | None = None

    @property
    def head(self) -> dict[str, object]:
        """The keys with which an exported JSON object begins."""
        play = {} if self.play is None else {"play": self.play}
        return {"schema_version": 1, **dict(zip(ABOUT, (self.run, self.sha256, self.guarantee), strict=True)), **play}

    def csv(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
        """RFC 4180 with a header, each row followed by its run."""
        about = [escape(x) for x in (self.run, self.sha256, self.guarantee)]
        out = io.StringIO(newline="")
        writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
        writer.writerow([*columns, *ABOUT])
        writer.writerows((*row, *about) for row in rows)
        return out.getvalue()

    def json(self, content: Mapping[str, object]) -> str:
        """One object: the run of the policy, then its content."""
        return json.dumps({**self.head, **content}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def refuse_records(wrong: Bools, what: str, hint: str) -> None:
    """Refuse records that have no answer, by number.

    ``wrong``: ``(N,)``.
    Raises CardError if one is.
    """
    if wrong.any():
        numbers = (np.flatnonzero(wrong)[:5] + 1).tolist()
        more = f" and {int(wrong.sum()) - 5} more" if wrong.sum() > 5 else ""
        where = "" if len(wrong) == 1 else f"record {', '.join(map(str, numbers))}{more}: "
        raise CardError(f"{where}{what}; {hint}")


def refuse_steps(steps: Integers, last: int) -> None:
    """Refuse steps outside 0 … ``last``; see :func:`refuse_records`."""
    refuse_records((steps < 0) | (steps > last), "no step of the policy", f"steps count from 0 to {last}")


def refuse_observations(observations: Array, names: Sequence[str]) -> None:
    """Refuse rows that are not p finite numbers, one a name; see :func:`refuse_records`."""
    if observations.ndim != 2 or observations.shape[1] != len(names):
        raise CardError(f"an observation has {len(names)} numbers; give {', '.join(names)}")
    missing = np.asarray(~np.isfinite(observations).all(axis=1))
    refuse_records(missing, "not a finite observation", f"give {', '.join(names)}")


@dataclass(frozen=True)
class Codec:
    """Readers of the files of one kind of policy."""

    stems: tuple[str, ...]
    view: Callable[[PolicyFiles, Report, Callable[[], Release]], PolicyView]
    stored: Callable[[PolicyFiles, Body, Exported], StoredPolicy]


def columns_by_step(values: Array) -> dict[str, AnyArray]:
    """``step, index, weight``: the numbers of each step in a row.

    ``values``: ``(H, size)``.
    """
    H, size = values.shape
    return {
        "step": np.repeat(np.arange(H, dtype=np.int32), size),
        "index": np.tile(np.arange(size, dtype=np.int32), H),
        "weight": values.reshape(-1),
    }


def escape(text: str) -> str:
    """Put an apostrophe before whatever a spreadsheet might evaluate, and before an apostrophe that stands there."""
    return _ESCAPE.sub("'", text)


def unescape(text: str) -> str:
    """The label that :func:`escape` was given."""
    return _UNESCAPE.sub("", text)


# value in ``policy.json`` for states without a row
ELSEWHERE = "current practice"
# states without any recommendation that a line names
_NAMED = 8
# the kind of an online agent's policy
PLAYED = "played"

Labels = tuple[list[str], list[str]]


def decision_columns(policy: Policy) -> dict[str, AnyArray]:
    """``step, state, action, probability`` of the positive probabilities; where it abstains there is no row."""
    step, state, action = np.nonzero(policy.probabilities)
    return {
        "step": step.astype(np.int32),
        "state": state.astype(np.int32),
        "action": action.astype(np.int32),
        "probability": policy.probabilities[step, state, action],
    }


def decision_labels(card: Card, states: Sequence[str] | None = None) -> Body:
    """Fields of ``policy.json`` for a table of decisions."""
    d = card.domain
    return {
        "schema_version": 1,
        "horizon": d.horizon,
        "states": d.live_states if states is None else list(states),
        "ends": list(d.states.ends),
        "actions": d.action_labels,
        "vetoes": [[str(s), str(a)] for s, a in d.vetoes],
        # declared, so that a raw value can be looked up where no card is at hand
        "state_column": d.states.model_dump(mode="json", exclude={"features"}),
        **_written(card),
        "elsewhere": ELSEWHERE,
    }


def _written(card: Card) -> Body:
    """How the log writes the numbers of the state's bins; nothing where it writes them as everybody does."""
    bins, source = card.domain.states.bins, card.source
    units = None if bins is None or not isinstance(bins.by, str) else (source.units or {}).get(bins.by)
    if bins is None or (source.numbers is None and units is None):
        return {}
    return {"written": {"numbers": source.numbers, "units": units}}


def decision_files(card: Card, policy: Policy) -> PolicyFiles:
    """Files of a policy that is a table of decisions."""
    return PolicyFiles(decision_labels(card), {"policy": decision_columns(policy)})


def played_files(card: Card, policy: Policy, visits: Array) -> PolicyFiles:
    """Files of an online agent's policy, with the visits of each (step, state, action).

    ``visits`` ``(H, L, A)``: share of the users, in the known world.
    """
    columns = decision_columns(policy)
    seen = visits[columns["step"], columns["state"], columns["action"]]
    return PolicyFiles({**decision_labels(card), "kind": PLAYED}, {"policy": columns | {"visits": seen}})


def policy_of(files: PolicyFiles) -> Policy:
    """The policy state by state."""
    labels, rows = files.labels, files.tables.get("decisions", files.tables["policy"])
    shape = labels["horizon"], len(labels["states"]), len(labels["actions"])
    probabilities = np.zeros(shape)
    probabilities[rows["step"], rows["state"], rows["action"]] = rows["probability"]
    abstains = np.asarray((probabilities == 0).all(-1), dtype=bool)
    # folders of version 0.1 list them, and hold a stand-in there
    for h, s in labels.get("abstains", []):
        abstains[h, s] = True
    return Policy(probabilities, abstains)


def tied_cells(tied: Sequence[Sequence[int]], shape: tuple[int, ...]) -> Bools:
    """``(H, L)``: cells in which several actions were equally good."""
    cells = np.zeros(shape, dtype=bool)
    cells[tuple(np.array(tied, dtype=np.int64).reshape(-1, 2).T)] = True
    return cells


def decision_facts(policy: Policy, tied: Bools) -> PolicyFacts:
    """The ``policy`` of report.json.

    ``policy``, ``tied``: as emitted, and ``(H, L)`` where several actions were equally good.
    """
    return PolicyFacts(
        tie_share=float(tied.mean()),
        abstain_share=float(policy.abstains.mean()),
        tied=[(int(h), int(s)) for h, s in np.argwhere(tied)],
    )


def total_assumed(card: Card) -> list[str]:
    """Assumptions of a value where the card declares a total; none where it declares none."""
    total = card.reward.total
    if total is None:
        return []
    return [f"no episode pays more than {total:g} in all, whatever is done (declared: reward.total)"]


def process_assumed(card: Card) -> str:
    """Assumption of a value on the states: Markov as declared, or of their bins alone."""
    if card.domain.markov == "aggregated":
        return "the binned process only: the bins hide part of the state, so the true process may differ"
    return "the declared states carry all that matters for what comes next (Markov, declared)"


def tabular_truth(card: Card, world: str, behaviour: str, policy: Policy) -> Truth:
    """True values in a world of states and actions."""
    from pipeline.worlds.catalog import load_world
    from pipeline.worlds.world import truth

    return Truth.model_validate(truth(card, load_world(world, card.folder), behaviour, policy))


def counts_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Decisions:
    """A policy beside released evidence and released practice."""
    (labels, policy, tied), counts = _read(files, report), release()
    evidence = np.maximum(counts.tables["n_sas"].sum(-1), 0).astype(np.float64)
    return Decisions(*labels, policy, tied, evidence, practice(counts))


def played_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Decisions:
    """A policy beside its visits in the known world."""
    labels, policy, tied = _read(files, report)
    rows, visits = files.tables["policy"], np.zeros(policy.probabilities.shape)
    visits[rows["step"], rows["state"], rows["action"]] = rows["visits"]
    return Decisions(*labels, policy, tied, visits)


def step_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Decisions:
    """Rows beside each state and action are evidence; a cap by both makes no frequency of practice of them."""
    labels, policy = (files.labels["states"], files.labels["actions"]), policy_of(files)
    evidence = np.maximum(release().tables["q_count"], 0).astype(np.float64)
    return Decisions(*labels, policy, np.zeros(policy.abstains.shape, dtype=bool), evidence)


def linear_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Decisions:
    """A policy beside the rows that released Gram matrices hold of each pair, and the weights of Q: all in its files.

    Weights of each step stand before the upper triangle of its inverse Gram matrix by rows; features are integers.
    """
    labels, policy, tied = _read(files, report)
    integers = np.array(files.labels["features"]["integers"])
    w, inverses = _weights(files, integers.shape[-1])
    phi = integers.astype(np.float64) * files.labels["unit"]
    from pipeline.agents.linear_backup import evidence_of

    evidence = np.stack([evidence_of(phi, x) for x in inverses])
    named = Weights(_feature_names(labels, integers), w * files.labels["reward_unit"])
    return Decisions(*labels, policy, tied, evidence, weights=named)


def _weights(files: PolicyFiles, d: int) -> tuple[Array, Array]:
    """Weights ``(H, d)`` and inverse Gram matrices ``(H, d, d)``, of which the upper triangle is stored, by rows."""
    stored, (i, j) = files.tables["policy"]["weight"].reshape(files.labels["horizon"], -1), np.triu_indices(d)
    inverses = np.zeros((len(stored), d, d))
    inverses[:, i, j] = inverses[:, j, i] = stored[:, d:]
    return stored[:, :d], inverses


def _feature_names(labels: Labels, integers: Integers) -> list[str]:
    names = [f"feature {i}" for i in range(integers.shape[-1])]
    for i in range(len(names)):
        # a feature of a single pair is named after that pair
        if len(pairs := np.argwhere(integers[:, :, i])) == 1:
            s, a = pairs[0]
            names[i] = f"{labels[0][s]} / {labels[1][a]}"
    return names


def _read(files: PolicyFiles, report: Report) -> tuple[Labels, Policy, Bools]:
    policy, facts = policy_of(files), report.model_dump()
    labels = files.labels["states"], facts["dataset"]["actions"]
    return labels, policy, tied_cells(facts["policy"]["tied"], policy.abstains.shape)


KEEP = "keep current practice: not enough evidence"
# where evidence may speak for an action that the card vetoes
KEEP_ALLOWED = f"{KEEP} for an action that is not vetoed"
OVER = "nothing to decide: the episode has ended"
USE, NEVER = "use", "never: vetoed"
COLUMNS = ("step", "state", "action", "probability", "advice", "abstains", "tie", "vetoed")


@dataclass(frozen=True)
class StoredDecisions:
    """A policy read back from a run's folder.

    ``tied`` ``(H, L)``: bool: several actions were equally good, the one shown was drawn among them.
    ``vetoed`` ``(L, A)``: bool.
    """

    of: Exported
    policy: Policy
    labels: Body
    tied: Bools
    vetoed: Bools

    def shown(self) -> tuple[list[dict[str, Any]], list[str]]:
        cells = self.cells()
        return cells, _lines(cells, len(self.labels["states"]))

    def cells(self) -> list[dict[str, Any]]:
        """The likeliest action of every cell, step by step; no action where the policy abstains."""
        p, abstains, actions = self.policy.probabilities, self.policy.abstains, self.labels["actions"]
        return [
            {
                "step": h,
                "state": state,
                "abstains": bool(abstains[h, s]),
                "action": None if abstains[h, s] else actions[int(p[h, s].argmax())],
                "probability": None if abstains[h, s] else float(p[h, s].max()),
                "tie": bool(self.tied[h, s]),
            }
            for h in range(len(p))
            for s, state in enumerate(self.labels["states"])
        ]

    def as_csv(self) -> str:
        """Rows of the policy, numbers in their shortest exact form."""
        rows = self.rows()
        texts: dict[Any, Any] = {x: escape(x) for column in rows.values() for x in set(column) if isinstance(x, str)}
        texts |= {True: "true", False: "false"}
        escaped = {
            name: [texts.get(x, x) for x in column] if name not in ("step", "probability") else column
            for name, column in rows.items()
        }
        return self.of.csv(COLUMNS, zip(*escaped.values(), strict=True))

    def as_json(self) -> str:
        rows = self.rows()
        content = {
            "horizon": self.labels["horizon"],
            "states": self.labels["states"],
            "actions": self.labels["actions"],
            "vetoes": [[str(s), str(a)] for s, a in self.labels["vetoes"]],
            "rows": [dict(zip(COLUMNS, row, strict=True)) for row in zip(*rows.values(), strict=True)],
        }
        return self.of.json(content)

    def rows(self) -> dict[str, list[Any]]:
        """Columns of :data:`COLUMNS`, sorted by step, state and action as declared.

        An action with positive probability has a row; so has a vetoed one, with probability 0.  A state in which the
        policy abstains has one row without action, beside its vetoes.
        """
        p, abstains = self.policy.probabilities, self.policy.abstains
        keep = np.where(self.vetoed.any(1), KEEP_ALLOWED, KEEP)
        shown = (p > 0) & ~abstains[..., None] & ~self.vetoed
        empty = np.zeros((*abstains.shape, 1), dtype=bool)
        # the row of an abstention comes before those of actions
        kind = np.concatenate([abstains[..., None], shown | np.broadcast_to(self.vetoed, p.shape)], axis=-1)
        step, state, action = np.nonzero(kind)
        names = np.array(["", *self.labels["actions"]], dtype=object)
        veto = np.concatenate([empty, np.broadcast_to(self.vetoed, p.shape)], axis=-1)[step, state, action]
        keeps = action == 0
        probability = np.concatenate([empty, np.where(shown, p, 0.0)], axis=-1)[step, state, action].astype(object)
        chosen = names[action]
        chosen[keeps] = probability[keeps] = None
        return {
            "step": step.tolist(),
            "state": np.array(self.labels["states"], dtype=object)[state].tolist(),
            "action": chosen.tolist(),
            "probability": probability.tolist(),
            "advice": np.where(keeps, keep[state], np.where(veto, NEVER, USE)).tolist(),
            "abstains": abstains[step, state].tolist(),
            "tie": self.tied[step, state].tolist(),
            "vetoed": veto.tolist(),
        }

    def _indices(self, values: Sequence[str | None], *, raw: bool) -> Integers:
        """Index of each state among live states and ends.

        Raises CardError which records name no declared state, by number; and the labels that are known.
        """
        labels = [*self.labels["states"], *self.labels["ends"]]
        if raw:
            if "state_column" not in self.labels:
                raise CardError(
                    f"{self.of.run}: this folder does not say how raw values are read; `reticent run` its recipe again "
                    "(a committed release is replayed at no cost)"
                )
            from pipeline.logs.decode import as_written, index_states

            written = as_written(values, **self.labels.get("written", {}))
            index = index_states(written, States.model_validate(self.labels["state_column"]))
        else:
            position = {label: i for i, label in enumerate(labels)}
            index = np.fromiter((position.get(x, -1) for x in values), dtype=np.int64, count=len(values))
        refuse_records(index < 0, "no declared state", f"states of {self.of.run}: {', '.join(map(repr, labels))}")
        return index

    def decide(
        self, values: Sequence[str | None], steps: Integers, *, raw: bool, sample: bool
    ) -> tuple[list[Dump], Integers]:
        """The distinct decisions, and the index of each record's decision.

        ``values``, ``steps`` ``(N,)``: declared labels, or with ``raw`` values of the log's column; from 0.
        ``sample``: draw an action where several have positive probability, from the operating system's randomness.
        Returns the decisions, and ``(N,)`` indices among them.  A decision has ``step``, ``state``, ``advice``,
        ``action``, ``abstains``, ``tie``, ``actions`` with their ``probability`` and ``vetoed``; its action is None
        where it keeps practice, or where one is to be drawn.
        Raises CardError if a step or a state is none of the policy's; records are named by number.
        """
        refuse_steps(steps, self.labels["horizon"] - 1)
        states = self._indices(values, raw=raw)
        drawn, live = np.full(len(states), -1), states < len(self.labels["states"])
        if sample:
            drawn[live] = _draw(self.policy.probabilities[steps[live], states[live]])
        keys, which = np.unique(np.stack([steps, states, drawn], axis=1), axis=0, return_inverse=True)
        return [self._decision(*map(int, key)) for key in keys], which.reshape(-1)

    def _decision(self, step: int, state: int, drawn: int) -> Dump:
        states, actions = self.labels["states"], self.labels["actions"]
        label = [*states, *self.labels["ends"]][state]
        decision: Dump = {"step": step, "state": label, "advice": OVER, "action": None, "abstains": False, "tie": False}
        decision |= {"actions": [], "vetoed": []}
        if state >= len(states):
            return decision
        decision["vetoed"] = [a for a, is_vetoed in zip(actions, self.vetoed[state], strict=True) if is_vetoed]
        if self.policy.abstains[step, state]:
            decision["advice"], decision["abstains"] = KEEP_ALLOWED if decision["vetoed"] else KEEP, True
            return decision
        p = self.policy.probabilities[step, state]
        positive = np.flatnonzero((p > 0) & ~self.vetoed[state]).tolist()
        chosen = drawn if drawn >= 0 else positive[0] if len(positive) == 1 else None
        decision["action"] = None if chosen is None else actions[chosen]
        decision["advice"] = "one of several: draw with --sample" if chosen is None else f"use {actions[chosen]}"
        decision["tie"] = bool(self.tied[step, state])
        decision["actions"] = [{"action": actions[a], "probability": float(p[a])} for a in positive]
        return decision


def _lines(cells: Sequence[Mapping[str, Any]], states: int) -> list[str]:
    """State by state, equal neighbouring steps on one line; states without any recommendation together on the last."""
    lines, silent = ["steps    state                    action"], list[str]()
    for s in range(states):
        of_state = cells[s::states]
        if all(cell["abstains"] for cell in of_state):
            silent.append(of_state[0]["state"])
            continue
        for (action, tie), run in groupby(of_state, key=lambda cell: (cell["action"], cell["tie"])):
            steps = [cell["step"] for cell in run]
            when = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
            done = action or "– keep current practice (not enough evidence)"
            lines.append(f"{when:8} {of_state[0]['state']:24} {done}" + ("   (tie: others are as good)" if tie else ""))
    if silent:
        named = ", ".join(silent[:_NAMED]) + (f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else "")
        lines.append(f"elsewhere, in {len(silent)} of {states} states, keep current practice: {named}")
    return lines


def stored_decisions(files: PolicyFiles, report: Body, of: Exported) -> StoredDecisions:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    labels, policy = files.labels, policy_of(files)
    pairs = [[str(s), str(a)] for s, a in labels["vetoes"]]
    vetoed = np.array([[[s, a] in pairs for a in labels["actions"]] for s in labels["states"]])
    return StoredDecisions(of, policy, labels, tied_cells(report["policy"]["tied"], policy.abstains.shape), vetoed)


def _draw(p: Array) -> Integers:
    """One column a row of ``p (N, A)``."""
    uniform = (np.frombuffer(os.urandom(8 * len(p)), dtype="<u8") >> 11) * 2.0**-53
    running = p.cumsum(axis=1)
    # the last running sum, not 1: rounding must not lead past the end
    return (running <= uniform[:, None] * running[:, -1:]).sum(axis=1)


GAINS = "linear_quadratic"
GAIN_COLUMNS = ("step", "control", "observed", "gain")


def gain_files(card: LqCard, gains: Array, bounds: Sequence[float]) -> PolicyFiles:
    """The files of a linear controller.

    ``gains`` ``(H, d, n)``: of scaled observations.
    ``bounds``: lengths to which x, u and next x were clipped before they were summed: the release depends on them.
    """
    H, _, n = gains.shape
    labels = {
        "schema_version": 1,
        "kind": GAINS,
        "horizon": H,
        "observation": vector_facts(card.domain.observation).model_dump(),
        "action": vector_facts(card.domain.action).model_dump(),
        "weights": f"index = control * {n} + coordinate: the gains K_h of each step, row by row",
        "rule": "divide each observed number by its scale; u = K_h x; shorten u to the action's radius where it is "
        "longer; multiply each control by its scale",
        "bounds": list(bounds),
    }
    return PolicyFiles(labels, {"policy": columns_by_step(gains.reshape(H, -1))})


def gains_of(files: PolicyFiles) -> Array:
    """The gains ``(H, d, n)`` of scaled observations."""
    labels = files.labels
    shape = labels["horizon"], len(labels["action"]["names"]), len(labels["observation"]["names"])
    return files.tables["policy"]["weight"].reshape(shape)


def gains_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Gains:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    return Gains(files.labels["observation"]["names"], files.labels["action"]["names"], gains_of(files))


@dataclass(frozen=True)
class StoredGains:
    """A controller read back from a run's folder.

    ``observation``, ``action``: names, scales and radius of the n observed numbers and of the d controls.
    ``gains`` ``(H, d, n)``: of scaled observations.
    """

    of: Exported
    observation: DeclaredVector
    action: DeclaredVector
    gains: Array

    @property
    def logged(self) -> Array:
        """The gains from observations as logged to controls as logged."""
        return self.gains * np.array(self.action.scale)[:, None] / np.array(self.observation.scale)

    def rows(self) -> list[dict[str, Any]]:
        """One row a step, control and observed number, in logged units."""
        K, controls, observed = self.logged, self.action.names, self.observation.names
        return [
            {"step": h, "control": controls[i], "observed": observed[j], "gain": float(K[h, i, j])}
            for h, i, j in np.ndindex(K.shape)
        ]

    def shown(self) -> tuple[list[dict[str, Any]], list[str]]:
        rows = self.rows()
        lines = [f"{r['step']:>4}  {r['control']:20} {r['observed']:20} {r['gain']:.6g}" for r in rows]
        return rows, ["step  control              observed             gain", *lines]

    def as_csv(self) -> str:
        rows = self.rows()
        return self.of.csv(
            GAIN_COLUMNS, [(r["step"], escape(r["control"]), escape(r["observed"]), r["gain"]) for r in rows]
        )

    def as_json(self) -> str:
        """Gains in logged units, with the rule that shortens a control."""
        content = {
            "kind": GAINS,
            "horizon": len(self.gains),
            "observation": self.observation.model_dump(),
            "action": self.action.model_dump(),
            "rule": "control = sum of gain x observed number, both as logged; then shortened where the control, "
            "divided by its scales, is longer than its radius",
            "rows": self.rows(),
        }
        return self.of.json(content)

    def act(self, observations: Array, steps: Integers) -> list[Dump]:
        """The control at each observation and step, as logged.

        ``observations``, ``steps`` ``(N, n)``: as logged, and ``(N,)`` from 0.
        Returns one a record; ``cut``: it was shortened, ``outside``: the observation is longer than declared.
        Raises CardError if a step is none of the policy's, or an observation is not finite; records are named by
        number.
        """
        action, declared = self.action, self.observation
        refuse_steps(steps, len(self.gains) - 1)
        refuse_observations(observations, declared.names)
        x = observations / np.array(declared.scale)
        u = np.einsum("rdn,rn->rd", self.gains[steps], x)
        length = np.linalg.norm(u, axis=1, keepdims=True)
        cut = length[:, 0] > action.radius
        outside = np.linalg.norm(x, axis=1) > declared.radius
        u = u * np.minimum(1.0, action.radius / np.maximum(length, action.radius)) * np.array(action.scale)
        # 0.0 + turns a minus zero into a zero
        columns = steps, observations, 0.0 + u, cut, outside
        return [
            {"step": h, "observation": x, "action": u, "advice": _advice(action.names, u), "cut": c, "outside": far}
            for h, x, u, c, far in zip(*(column.tolist() for column in columns), strict=True)
        ]


def stored_gains(files: PolicyFiles, report: Body, of: Exported) -> StoredGains:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    observation, action = (DeclaredVector.model_validate(files.labels[key]) for key in ("observation", "action"))
    return StoredGains(of, observation, action, gains_of(files))


def _advice(names: Sequence[str], u: Sequence[float]) -> str:
    return "use " + ", ".join(f"{name} = {value:.6g}" for name, value in zip(names, u, strict=True))


def parsed_observation(text: str, names: Sequence[str]) -> Array:
    """``0.5, -0.2`` as ``(1, n)``.

    Raises CardError if these are not n numbers.
    """
    try:
        observation = np.array([[float(x) for x in text.strip().strip("[]").split(",")]])
    except ValueError:
        observation = np.empty((1, 0))
    if observation.shape[1] != len(names):
        raise CardError(f"--observation: give {len(names)} numbers with commas: {', '.join(names)}")
    return observation


OBSERVED_KIND = "linear_observed"
# actions that an advice may name; older folders lack this key, and name any allowed action where one has evidence
ADVISED = "allowed actions that have more evidence than threshold themselves"


@dataclass(frozen=True)
class StoredObserved:
    """A policy over observations read back from a run's folder.

    ``observation``: names, centers, scales and radius of the observed numbers.
    """

    of: Exported
    shown_at: StoredDecisions
    observation: DeclaredVector
    features: ObservedMap
    backups: tuple[Backup, ...]
    labels: Body

    def shown(self) -> tuple[list[dict[str, Any]], list[str]]:
        return self.shown_at.shown()

    def as_csv(self) -> str:
        """Decisions at public observations."""
        return self.shown_at.as_csv()

    def as_json(self) -> str:
        """The decisions at public observations, and the weights that decide elsewhere."""
        weights = [{"w": b.w.tolist(), "inverse": b.inverse.tolist()} for b in self.backups]
        content = {**json.loads(self.shown_at.as_json()), "kind": OBSERVED_KIND, "weights": weights}
        fields = ("observation", "live_states", "features", "rule", "unit", "offset", "multiplier", "constant", "clip")
        content |= {key: self.labels[key] for key in fields}
        return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"

    def act(self, observations: Array, steps: Integers, states: Integers) -> list[Dump]:
        """The recommendation at each observation, as logged.

        ``observations``, ``steps``, ``states`` ``(N, p)``: as logged, ``(N,)`` from 0, and ``(N,)`` indices of live
        states.
        Returns one a record; ``outside``: the observation is longer than declared, so it was shortened before.
        Raises CardError if a step is none of the policy's, or an observation is not finite; records are named by
        number.
        """
        last, declared = len(self.backups) - 1, self.observation
        refuse_steps(steps, last)
        refuse_observations(observations, declared.names)
        x = (observations - np.array(declared.center or 0.0)) / np.array(declared.scale)
        outside = np.linalg.norm(x, axis=1) > declared.radius
        phi, advices = self.features.of_actions(x, states), list[Dump]()
        for i, h in enumerate(steps.tolist()):
            action, tie = self._best(self.backups[h], phi[i])
            advices.append(
                {
                    "step": h,
                    "observation": observations[i].tolist(),
                    "state": self.labels["live_states"][states[i]],
                    "action": action,
                    "advice": KEEP if action is None else f"use {action}",
                    "abstains": action is None,
                    "tie": tie,
                    "outside": bool(outside[i]),
                }
            )
        return advices

    def _best(self, backup: Backup, phi: Array) -> tuple[str | None, bool]:
        """The allowed action with the greatest clipped value, ties by the unclipped one, then by order; or None."""
        allowed = np.array([a not in self.labels["never"] for a in self.labels["actions"]])
        evidence = np.where(allowed, backup.evidence(phi), 0.0)
        if evidence.max() <= self.labels["threshold"]:
            return None, False
        Q, clipped = backup.q(phi)
        if self.labels.get("advised") == ADVISED:
            allowed &= evidence > self.labels["threshold"]
        best = np.where(allowed, clipped, -np.inf)
        first = best == best.max()
        return self.labels["actions"][int(np.where(first, Q, -np.inf).argmax())], bool(first.sum() > 1)

    def state_index(self, label: str | None) -> int:
        """Index of a live state by its label; the only one where none is given.

        Raises CardError if there is none of that label, or there are several and none is given.
        """
        states = self.labels["live_states"]
        if label is None and len(states) == 1:
            return 0
        if label not in states:
            raise CardError(f"policy act: --state must be one of {', '.join(map(repr, states))}")
        return states.index(label)


def stored_observed(files: PolicyFiles, report: Body, of: Exported) -> StoredObserved:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    labels = files.labels
    from pipeline.agents.linear_backup import Backup
    from pipeline.mdp.features import observed_map

    backups = list[Backup]()
    for h, (w, inverse) in enumerate(zip(*_weights(files, int(labels["dimension"])), strict=True)):
        low, high = labels["clip"][h]
        offset, multiplier, constant = (labels[key][h] for key in ("offset", "multiplier", "constant"))
        clip, unit = (low, high), labels["unit"]
        backups.append(Backup(w, inverse, offset, multiplier, constant, clip, unit, labels["lattice"]))
    vector = DeclaredVector.model_validate(labels["observation"])
    decisions = stored_decisions(files, report, of)
    return StoredObserved(of, decisions, vector, observed_map(labels["features"]["sample_of"]), tuple(backups), labels)


StoredPolicy = StoredDecisions | StoredGains | StoredObserved
"""A policy with labels, read back from a run's folder: shown, exported, or looked up for one decision.

``shown``: one plain object a row, and the same as lines of text; ``as_csv`` escapes texts, so that no spreadsheet
evaluates a cell; ``as_json`` is one object with the exact names.
"""

# by the ``kind`` of policy.json, which a table of decisions on counts does not have
_CODECS: Mapping[str | None, Codec] = {
    None: Codec(("policy",), counts_view, stored_decisions),
    PLAYED: Codec(("policy",), played_view, stored_decisions),
    "one_step": Codec(("policy",), step_view, stored_decisions),
    "linear": Codec(("policy", "decisions"), linear_view, stored_decisions),
    OBSERVED_KIND: Codec(("policy", "decisions"), linear_view, stored_observed),
    GAINS: Codec(("policy",), gains_view, stored_gains),
}


def _read_files(folder: Path) -> tuple[PolicyFiles, Codec]:
    """The policy's files, and their codec."""
    import pyarrow.parquet as pq

    labels = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    codec = _CODECS[labels.get("kind")]
    read = {stem: pq.read_table(folder / f"{stem}.parquet") for stem in codec.stems}
    tables = {stem: {c: t[c].to_numpy() for c in t.column_names} for stem, t in read.items()}
    return PolicyFiles(labels, tables), codec


def read_view(report: Report, folder: Path) -> PolicyView:
    """The policy of a run's folder as the page draws it.

    Raises OSError, ValueError, KeyError if a file is missing or damaged.
    """
    return view_of(_read_files(folder)[0], report, lambda: read_release(folder))


def view_of(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> PolicyView:
    """The policy in these files as the page draws it; a release is asked for where it shows more than they hold."""
    return _CODECS[files.labels.get("kind")].view(files, report, release)


def read_stored(folder: Path) -> StoredPolicy:
    """The policy of a run's folder with labels and guarantee.

    Raises CardError if a file of the folder is missing or damaged.
    """
    try:
        files, codec = _read_files(folder)
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        digest, play = sha256_file(folder / "policy.parquet"), files.labels.get("play")
        exported = Exported(folder.name, report["guarantee"]["sentence"], digest, play)
        return codec.stored(files, report, exported)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as e:
        raise CardError(
            f"{folder.name}: the run's policy cannot be read ({type(e).__name__}); `reticent run` its recipe again: "
            "a committed release is replayed at no cost"
        ) from None
