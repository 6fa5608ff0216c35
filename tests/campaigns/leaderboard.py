"""Who looks at answers and then chooses: is "better" said without a condition?

A world in which no action does anything.  An analyst puts up sixty cards whose vetoes leave one action a state, drawn
at random; the same people evaluate each of them.  Then the *vote*: one card more, with the action in each state for
which the published gains speak.  Its gain is that of chance in these very people.  The same card is put to *fresh
people* too.  *taught*: a release is published of all who may teach, and the card of the first evaluation takes from it,
state by state, the action that paid more.  With a *reserve*, those who judge did not teach.

*rule off* is what the intervals alone would say.  All of it runs through plan, layouts, ledger and verdict of the
product, in memory; coverage of the estimator is taken to be measured at this size.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.facts.promise import Joint, declared
from pipeline.facts.verdict import Confounding, Verdict, decide
from pipeline.learners.held_out import HeldOutRun, LearntHeldOut, judged
from pipeline.learners.offline_agents import plan_run
from pipeline.learners.tabular import TabularRun
from pipeline.learners.tabular_evaluation import STAGE, TabularEvaluation
from pipeline.learners.terms import Evaluate, Privacy, Terms, recipe_identity
from pipeline.ledger.account import reserve_of
from pipeline.ledger.chain import Entry
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.looks import RECIPE, judged_before, look_told
from pipeline.logs.aggregate import count_rows
from pipeline.logs.parts import Split, part_key
from pipeline.logs.store import CANONICAL
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.layout import ExactSums
from pipeline.transaction.drawing import key_of
from tests.conftest import card_dict
from tests.made_up import add_scores

CLEARED = Confounding(status="checked", why="nothing is hidden here", strength=None)
SEED, RHO = 20261123, 10.0
JUDGES, STATES, LOOKS = 30_000, 300, 60
SHARE = Fraction(1, 2)
Actions = NDArray[np.int64]
Identity = Callable[[Card, Terms], str]


@dataclass(frozen=True)
class Said:
    """What a page says of a policy that is just as good as practice."""

    verdict: Verdict
    fresh: bool

    @property
    def better(self) -> bool:
        """Whether it is called better at all."""
        return self.verdict.answer == "better"

    @property
    def certain(self) -> bool:
        """Without a condition."""
        said = self.verdict.improvement
        return self.better and said is not None and said.status == "evaluated"


@dataclass(frozen=True)
class Size:
    """People who judge (as many teach), states, and random cards before the vote."""

    judges: int = JUDGES
    states: int = STATES
    looks: int = LOOKS


WHOLE = Size()


def log_of(size: Size, rng: np.random.Generator) -> pl.DataFrame:
    """Two steps of each person: any state, any action, and a reward that follows from neither."""
    n, L = round(size.judges / float(SHARE)), size.states
    state = rng.integers(L, size=(n, 2))
    following = np.stack([state[:, 1], np.full(n, L)], axis=1)
    user = rng.integers(2**62)
    told = {
        "user_id": np.repeat([f"{user}-{i}" for i in range(n)], 2),
        "episode_id": np.repeat(np.arange(n), 2),
        "step": np.tile([0, 1], n),
        "state": state.ravel(),
        "action": rng.integers(2, size=2 * n),
        "reward": rng.integers(2, size=2 * n).astype(float),
        "next_state": following.ravel(),
        "terminated": np.tile([False, True], n),
        "truncated": np.zeros(2 * n, dtype=bool),
    }
    rows = pl.DataFrame({name: pl.Series(values, dtype=CANONICAL[name]) for name, values in told.items()})
    return rows.with_columns(pl.lit(None, pl.Float64).alias("behavior_prob")).sort("user_id", "episode_id", "step")


def card_of(name: str, size: Size, actions: Actions | None, reserve: float) -> Card:
    """A card whose vetoes leave one action a state."""
    states = [f"s{i}" for i in range(size.states)]
    domain = {
        "horizon": 2,
        "states": {"column": "state", "labels": states, "ends": ["end"]},
        "actions": {"column": "action", "labels": ["a", "b"]},
        "dynamics": "stationary",
        "vetoes": [] if actions is None else [(s, "ba"[a]) for s, a in zip(states, actions, strict=True)],
    }
    people = round(size.judges / float(SHARE))
    unit = {"user": "user_id", "users_public": people}
    budget = {"rho": 9000.0, "reserve": reserve}
    return Card.model_validate(card_dict(name=name, domain=domain, unit=unit, budget=budget))


class Clinic:
    """A log, its ledger, and an analyst who sees what is published of it."""

    def __init__(self, name: str, size: Size, ledger: Ledger, seed: int, reserve: float, identity: Identity) -> None:
        self.name, self.size, self.ledger, self.reserve, self.identity = name, size, ledger, reserve, identity
        self.rng = np.random.default_rng((SEED, seed, *name.encode()))
        self.noise = SeededNoise(np.random.SeedSequence((SEED, seed, *name.encode(), 1)))
        rows, card = log_of(size, self.rng), self.card(None)
        ledger.register(card)
        key = part_key(str(seed).encode(), name)
        self.taught, self.judges = Split(SHARE, key, reserve_of(ledger.entries(), name)).cut(rows)
        self._whole = Split(Fraction(0), key, reserve_of(ledger.entries(), name)).cut(rows)[0]
        self._sums = count_rows(self.taught, card)
        self.edition = 0

    def card(self, actions: Actions | None) -> Card:
        """Of the log, with the analyst's vetoes."""
        return card_of(self.name, self.size, actions, self.reserve)

    def _intent(self, card: Card, terms: Terms, plan: TabularRun | HeldOutRun) -> tuple[Entry, int]:
        """As a run is charged, each on an edition of its own."""
        self.edition += 1
        rho, told = plan.charge()
        assert rho is not None
        key, told = key_of(card, self.edition, plan), {**told, RECIPE: self.identity(card, terms)}
        look = look_told(self.ledger.entries(), self.name, key, told)
        return self.ledger.intent(self.name, key, rho, {"snapshot": self.edition, **told, **look}), look.get("look", 1)

    def _drawn(self, card: Card, plan: TabularRun, sums: dict[str, NDArray[np.int64]]):
        exact = ExactSums(card.name, "synthetic", card.domain.dynamics, sums)
        return plan.privatizer.draw(exact, self.noise)

    def publish(self) -> Actions:
        """A release of all who may teach; by state, the action that paid more in it."""
        card = self.card(None)
        terms = Terms("plain", "dp-apvi", Privacy(rho=RHO, release="two_tables"), reserve=Fraction(self.reserve))
        plan = plan_run(card, terms)
        assert isinstance(plan, TabularRun)
        self._intent(card, terms, plan)
        release = self._drawn(card, plan, count_rows(self._whole, card))
        visits, paid = release.tables["n_sa"], release.tables["r_sa"]
        return np.asarray((paid / np.maximum(visits, 1)).reshape(self.size.states, 2).argmax(-1))

    def ask(self, actions: Actions) -> tuple[float, Said, Said]:
        """The published gain of a card, what the page says, and what it would say without the ledger's rule."""
        card = self.card(actions)
        terms = Terms(
            "vetoes",
            "dp-apvi",
            Privacy(rho=RHO, release="two_tables"),
            evaluate=Evaluate(people=float(SHARE)),
            reserve=Fraction(self.reserve),
        )
        run = plan_run(card, terms)
        assert isinstance(run, HeldOutRun) and isinstance(run.plan, TabularRun)
        e = run.evaluation
        assert isinstance(e, TabularEvaluation)
        intent, look = self._intent(card, terms, run)
        learnt = run.plan.learn(self._drawn(card, run.plan, self._sums))
        scores = e.scores(learnt)
        answers = e.told(scores, e.sums[STAGE].draw(add_scores(card, e.layout, scores, [self.judges]), self.noise))
        _, found = e.measure(learnt, answers, float(run.share), look)
        held = LearntHeldOut(learnt, replace(found, calibrated=True), Joint.model_validate(run.charge()[1]["joint"]))

        def page(why: str | None) -> Said:
            # as if the checks of hidden traits had cleared it: what is left is who judges
            return Said(decide(judged(held, why).facts().evaluation, declared(card, 1), RHO, CLEARED), why is None)

        return found.improvement.estimate, page(judged_before(self.ledger.entries(), intent)), page(None)


def leaderboard(seed: int, size: Size = WHOLE, identity: Identity = recipe_identity) -> dict[str, Said]:
    """One analyst's whole story: what is said in the end, by name of what was done.

    Parameters
    ----------
    seed, size
        Of people, cards and noise.
    identity
        By what the ledger knows a recipe again; a broken twin may be put here.
    """
    with tempfile.TemporaryDirectory() as folder:
        ledger = open_ledger(Path(folder) / "ledger.db", create=True)
        clinic, fresh = (Clinic(name, size, ledger, seed, 0.5, identity) for name in ("clinic", "fresh"))
        cards = [clinic.rng.integers(2, size=size.states) for _ in range(size.looks)]
        gains = np.array([clinic.ask(actions)[0] for actions in cards])
        votes = ((2 * np.array(cards) - 1) * (gains - gains.mean())[:, None]).sum(0)
        vote = (votes > 0).astype(np.int64)
        found = {"vote": clinic.ask(vote), "vote, fresh people": fresh.ask(vote)}
        for name, reserve in (("taught", 0.0), ("taught, reserve", 0.5)):
            one = Clinic(name.replace(", ", "-"), size, ledger, seed, reserve, identity)
            found[name] = one.ask(one.publish())
    return {
        f"{name}{rule}": s for name, (_, *of) in found.items() for rule, s in zip(("", ", rule off"), of, strict=True)
    }
