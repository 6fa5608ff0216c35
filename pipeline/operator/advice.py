"""Warnings of an inspection: what was seen, what it means, what to do.  All thresholds stand here.

And a proposed card: its keys with a reason beside each, and what was seen, which no file holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.declaration.card import Card
from pipeline.declaration.toml import CardError
from pipeline.files import whole_file, write_file
from pipeline.operator.facts import Examined, Warned
from pipeline.operator.inspection import DROWNED, FEW
from pipeline.privacy.budget import largest_delta

# share of the usable cells that may drown in the noise at a quarter of the cap before a word is due
THIN = 0.1
# a state whose most frequent action has more of its visits than this has no second action to learn about
NEARLY_ALL = 0.95
# people counted may differ from people declared by this share
FAR = 0.1


def advice(facts: Examined, card: Card) -> list[Warned]:
    """Warnings that matter, gravest first.

    Parameters
    ----------
    facts
        Of :func:`~pipeline.operator.inspection.inspect_tables`, with those of
        :func:`~pipeline.operator.hidden_state.hidden_state` under ``hidden_state``.
    card
        Its delta is looked at.

    Returns
    -------
    ``code`` (stable), ``what``, ``means``, ``do``.
    """
    found = [
        _hidden_state(facts),
        _nearly_deterministic(facts),
        _thin_support(facts),
        _people(facts),
        _delta(facts, card),
        _several_episodes(facts),
        _constant_state(facts),
        _constant_reward(facts),
    ]
    return [w for w in found if w is not None]


def warning(code: str, what: str, means: str, do: str) -> Warned:
    """A warning: a stable code, what was seen, what it means, what to do."""
    return {"code": code, "what": what, "means": means, "do": do}


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def _hidden_state(facts: Examined) -> Warned | None:
    checked = facts["hidden_state"]
    loud = [t for t in checked["tests"] if t["speaks"]]
    if not loud:
        return None
    worst = max(loud, key=lambda t: t["difference"])
    return warning(
        "hidden_state",
        f"who logged this saw more than the card's states: within {_listed(sorted({t['state'] for t in loud}))} the "
        f"action depends on {_listed(sorted({t['column'] for t in loud}))}. At {worst['column']} {worst['at']} the "
        f"actions differ from those of the whole state by {worst['difference']:.0%} (total variation beyond chance; "
        f"{len(loud)} of {len(checked['tests'])} tests speak at {checked['significance']:g} overall)",
        "confounding: an action given to those who were worse off looks bad, whatever it does. More data does not "
        "help, and the value of a policy learnt here may be wrong by more than its interval says",
        "make the states as fine as what the deciders saw (more bins, more labels), or log under a rule that looks at "
        "the card's states only (a trial); else declare markov = 'aggregated' and do not act on small differences",
    )


def _nearly_deterministic(facts: Examined) -> Warned | None:
    rows = facts["coverage"]["table"]
    sure = [r for r in rows if r["visits"] >= FEW and r["actions_allowed"] > 1 and (r["top_share"] or 0.0) > NEARLY_ALL]
    if not sure:
        return None
    named = [f"{r['state']}{'' if r['step'] is None else ' at step ' + str(r['step'])}" for r in sure]
    return warning(
        "nearly_deterministic",
        f"in {len(sure)} of {len(rows)} rows of the table one action has more than {NEARLY_ALL:.0%} of the visits: "
        f"{_listed(named)}",
        "the log cannot tell what else would have happened there; the policy will keep current practice or guess",
        "nothing in this log mends it: log some variation, coarsen the states, or expect no advice there",
    )


def _thin_support(facts: Examined) -> Warned | None:
    whole, quarter = facts["noise"]
    if quarter["share_of_cells"] <= THIN:
        return None
    seen = facts["coverage"]
    return warning(
        "thin_support",
        f"{quarter['cells_drowned']:,} cells ({quarter['share_of_cells']:.0%} of those whose state occurs) would drown "
        f"at ρ = {quarter['rho']:g}: fewer visits than {DROWNED:g} × {quarter['deviation_of_visits']:.3g}, the noise's "
        f"standard deviation. At the whole cap, ρ = {whole['rho']:g}, {whole['cells_drowned']:,} would. They hold "
        f"{quarter['share_of_visits']:.1%} of the visits; {seen['never_seen']:,} of all {seen['cells']:,} cells were "
        "never seen",
        "there the release cannot be told from an empty cell, so the policy abstains or leans on its bounds",
        "fewer bins or actions, dynamics = 'stationary' if the world does not change with the step, a shorter horizon, "
        "or a larger share of the cap in one run",
    )


def _people(facts: Examined) -> Warned | None:
    people = facts["people"]
    share = people["counted_over_declared"]
    if abs(share - 1) <= FAR:
        return None
    return warning(
        "people_declared",
        f"{people['counted']:,} people are in the snapshot, users_public declares {people['declared']:,}",
        "every formula uses the declared number; where it is far off, widths, the meaning of delta and what `plan` "
        "expects are off as well"
        + (". Too many people for the declaration usually means one person has several ids" if share > 1 else ""),
        "look whether rules dropped people (above) or files are missing; if the declaration itself is wrong, correct "
        "it from public knowledge, not from this count, and `register --amend`",
    )


def _delta(facts: Examined, card: Card) -> Warned | None:
    fewest = min(facts["people"]["declared"], max(1, facts["people"]["counted"]))
    most = largest_delta(fewest)
    if card.budget.delta <= most:
        return None
    return warning(
        "delta",
        f"delta = {card.budget.delta:g} for {fewest:,} people",
        "with such a delta, publishing somebody's row outright would count as private; the promise means nothing",
        f"set budget.delta to at most {most:.1g}, and `register --amend`",
    )


def _several_episodes(facts: Examined) -> Warned | None:
    people = facts["people"]
    dropped, above = people["episodes_dropped_by_cap"], people["above_cap"]
    if not dropped and not people["with_several_episodes"]:
        return None
    gone = (
        "the quarantine was purged, so what the cap dropped is unknown"
        if dropped is None
        else f"the cap of {people['cap_of_episodes']} dropped {dropped:,} episodes of {above:,} people"
    )
    return warning(
        "several_episodes",
        f"{people['with_several_episodes']:,} people have more than one episode in the snapshot (at most "
        f"{people['most_episodes_kept']}); {gone}",
        "one person's episodes are one record: m of them may cost up to m² of the budget, and the dropped ones teach "
        "nothing",
        "weigh unit.episodes_per_user by `plan`: a small cap costs episodes, a large one noise",
    )


def _constant_state(facts: Examined) -> Warned | None:
    visited = [b["state"] for b in facts["behaviour"] if b["visits"]]
    if len(visited) != 1 or len(facts["behaviour"]) == 1:
        return None
    return warning(
        "constant_state",
        f"every row is in the state {visited[0]}",
        "the states tell nothing apart: wrong column, wrong bins, or labels that all became one",
        "check domain.states against the files",
    )


def _constant_reward(facts: Examined) -> Warned | None:
    reward = facts["reward"]
    if reward is None or reward["lowest"] != reward["highest"]:
        return None
    return warning(
        "constant_reward",
        f"every reward is {reward['lowest']:g}",
        "all policies look alike: wrong column, or a range and lattice that swallow the differences",
        "check reward.range, reward.steps and source.columns.reward",
    )


_HEAD = "# Proposed from the log by `reticent draft`: change what an expert would set, and say so in [provenance]."


@dataclass(frozen=True)
class Said:
    """One key of the proposal.

    Parameters
    ----------
    key
        As the card has it, with its table.
    value
        As TOML.
    why
        What stands beside it in the card: no counts.
    seen
        What the operator is told: counts too.
    """

    key: str
    value: str
    why: str
    seen: str = ""


@dataclass(frozen=True)
class Draft:
    """A proposed card.

    Parameters
    ----------
    said
        Its keys, in order.
    notes
        What the operator should look at before anything else.
    """

    said: Sequence[Said] = field(repr=False)
    notes: Sequence[str] = ()

    @property
    def toml(self) -> str:
        """The card's text."""
        lines = [_HEAD, "schema_version = 2"]
        table = ""
        for one in self.said:
            head, _, key = one.key.rpartition(".")
            if head != table:
                lines += ["", f"[{head}]"]
                table = head
            lines.append(f"{key} = {one.value}" + (f"  # {one.why}" if one.why else ""))
        return "\n".join(lines) + "\n"

    @property
    def seen(self) -> list[tuple[str, str]]:
        """What was seen in the log, by key: raw facts, for the operator's eyes only."""
        return [(one.key, one.seen) for one in self.said if one.seen]

    def save(self, path: str | Path) -> Path:
        """Write the card.

        Parameters
        ----------
        path
            Of a file that is not there yet.

        Raises
        ------
        CardError
            If it is.
        """
        try:
            with whole_file(Path(path), over=False, alone=False) as fresh:
                write_file(fresh, self.toml)
        except FileExistsError:
            raise CardError(f"{path} exists; name another file, or take it away") from None
        return Path(path)

    def __repr__(self) -> str:
        """The card, and what was seen."""
        return "\n".join([self.toml, *(f"{key}: {seen}" for key, seen in self.seen), *self.notes])
