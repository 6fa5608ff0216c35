"""A linear controller on the page: what was learnt, its gains, the declared plant, and how well it was explored."""

# ruff: noqa: N806  (gains and matrices have their letters)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reports.check_sections import constants_table
from reports.facts.policy import Gains
from reports.format import clean, listing, number, percent, steps
from reports.lq_figures import gains_figure
from reports.opening import banner, budget_tile, loss_tile, truth_note, unit_tile
from reports.page import Opening, Section, Tile, table

Facts = Mapping[str, Any]
# gains this close are printed as one row
_SAME = 5e-4


def lq_opening(facts: Facts) -> Opening:
    """What was learnt, for whom, under which promise, how good it is, and what budget is left."""
    promise = facts["guarantee"]
    return Opening(
        title=f"A linear controller for {clean(facts['dataset']['name'])}",
        learnt=_learnt(facts),
        guarantee=clean(promise["sentence"]),
        tiles=(_value(facts), loss_tile(promise), budget_tile(facts), unit_tile(facts)),
        banner=banner(promise),
        claim=f"Claim made for the people in this log: {clean(promise['claim'])}." if promise.get("claim") else "",
    )


def _learnt(facts: Facts) -> str:
    data = facts["dataset"]
    log = "a synthetic log" if data["kind"] == "synthetic" else "a log"
    end = (
        "Its gains are not zero."
        if facts["policy"]["left_zero"]
        else "All its gains are zero: it does nothing, because the noise left nothing to learn from."
    )
    return (
        f"How strongly to set {listing(data['action']['names'])} by {listing(data['observation']['names'])} at each of "
        f"{number(data['horizon'])} steps, learnt by {clean(facts['agent'])} from {log} of "
        f"{number(data['users_public'])} people (declared). {end}"
    )


def _value(facts: Facts) -> Tile:
    value, zero = facts["value"], facts["model_baselines"]["zero"]
    notes = (
        "an estimate in the released model, not a guarantee",
        f"doing nothing: {number(zero['estimate'])} in the same model",
        "values are minus costs",
    )
    return Tile("Value of an episode", number(value["estimate"]), (*notes, *truth_note(facts)))


def gains_section(facts: Facts, view: Gains) -> Section:
    """The gains as a picture and as a table."""
    data = facts["dataset"]
    words = [
        "At each step, counted from 0, every control is a weighted sum of what is observed: u = K x. The weights are "
        "the gains. An observed number is divided by its scale first, a control is multiplied by its own at the end.",
        f"Controls longer than {number(data['action']['radius'])} are shortened to that length. The last gain is 0: "
        "nothing that the last control does is paid for. No gain is larger than "
        f"{number(facts['constants']['gamma'])}, so that no control is cut while observations stay in their ball.",
    ]
    if not facts["policy"]["left_zero"]:
        words.append("All gains are zero: this controller does nothing.")
    head = "Control | Steps | " + " | ".join(clean(name).replace("|", "/") for name in view.observation)
    rows = [row for control in range(len(view.action)) for row in _rows(view, control)]
    columns = head.split(" | ")[2:]
    gains = table(head, rows, "Gains; neighbouring steps that agree to three digits share a row", grouped=True)
    right = frozenset(range(2, 2 + len(columns)))
    scales = [
        (clean(name), kind, number(scale), number(vector["radius"]))
        for kind, vector in (("observed", data["observation"]), ("control", data["action"]))
        for name, scale in zip(vector["names"], vector["scale"], strict=True)
    ]
    units = table("Name | Is | Scale | Radius of the whole vector", scales, "Units, as declared", "Scale")
    return Section(
        "policy",
        "What the controller does",
        tuple(words),
        gains_figure(view),
        (type(gains)(gains.head, gains.rows, gains.caption, right, gains.grouped), units),
    )


def _rows(view: Gains, control: int) -> list[tuple[str, ...]]:
    K, first = view.gains[:, control], 0
    rows: list[tuple[str, ...]] = []
    for h in range(1, len(K) + 1):
        if h == len(K) or np.abs(K[h] - K[first]).max() > _SAME * max(1.0, float(np.abs(K).max())):
            rows.append((clean(view.action[control]), steps(first, h - 1), *(number(float(k)) for k in K[first])))
            first = h
    return rows


def plant_section(facts: Facts) -> Section:
    """What was declared; nothing here was counted."""
    data = facts["dataset"]
    norm = data["parameter_norm"]
    rows = [
        ("Dataset", f"{clean(data['name'])} ({clean(data['kind'])}), snapshot {number(data['snapshot'])}"),
        ("People", f"{number(data['users_public'])}, by {clean(data['user'])}"),
        ("Episodes a person", f"at most {number(data['episodes_per_user'])}"),
        ("A person in later batches", clean(data["recurs"])),
        ("Steps of an episode", number(data["horizon"])),
        ("Observed", f"{listing(data['observation']['names'])}, in a ball of {number(data['observation']['radius'])}"),
        ("Controls", f"{listing(data['action']['names'])}, in a ball of {number(data['action']['radius'])}"),
        ("Dynamics", "linear, unknown: next x = A x + B u + noise"),
        ("Mean of the first state", _numbers(data["start_declared"]["mean"])),
        ("Covariance of the noise", _matrix(data["noise_covariance"])),
        ("Largest norm of [A, B]", "not declared" if norm is None else number(norm)),
        ("Q: cost of x", _matrix(data["cost"]["Q"])),
        ("R: cost of u", _matrix(data["cost"]["R"])),
    ]
    return Section("data", "What was declared about the data", tables=(table("Declared | ", rows),))


def evidence_section(facts: Facts) -> Section:
    """How well the log explored the plant, as far as the release tells; the model; and every constant."""
    c, model = facts["constants"], facts["model"]
    words = (
        "The released Gram matrix says how much the log moved the plant in each direction of (x, u). "
        + (
            f"{number(c['raised'])} of {number(len(c['directions']))} directions lie below the noise floor "
            f"({number(c['floor'])}) and were not trusted."
            if c["raised"]
            else "Every direction stands above the noise floor."
        ),
        "Everything here is computed from the release; planning again with another ridge or floor costs nothing. "
        "Another cut, lattice or share is another release at its own price.",
    )
    total = sum(x for x in c["directions"] if x > 0)
    rows = [
        (str(i), number(x), percent(x / total) if x > 0 else "–", "no" if x < c["floor"] else "yes")
        for i, x in enumerate(c["directions"], start=1)
    ]
    words_of = "Sums of squares along each direction of (x, u), balls of radius 1: a row adds at most 2 in all"
    seen = table("Direction | Sum of squares | Share | Trusted", rows, words_of, "Sum of squares | Share")
    plant = table("Model | ", [("A", _matrix(model["A"])), ("B", _matrix(model["B"]))], "The estimated plant")
    listed = constants_table(c["policy"], f"Constants: preset “{clean(c['policy']['preset'])}”")
    return Section("evidence", "How well the plant was explored", words, tables=(seen, plant, listed))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(number(float(x)) for x in values)


def _matrix(rows: Sequence[Sequence[float]]) -> str:
    """A diagonal in one line, any other matrix row by row."""
    M = np.array(rows, dtype=np.float64)
    if M.shape[0] == M.shape[1] and not (M - np.diag(np.diag(M))).any():
        return f"diagonal {_numbers(np.diag(M).tolist())}"
    return "; ".join(_numbers(row) for row in rows)
