"""Families of hostile worlds: each draws a world in which a verdict may go wrong, and knows the truth exactly.

The families were written before, and without a look into, the code that estimates.  A world has *places*, which are
what drives it; a row shows the declared state of a place.  A person has a hidden *trait* that may move with each step.
Both are finite, so that the value of a policy over declared states, practice elsewhere, is a sum and no simulation.

======  =============  ==========================================================================
letter  shape          meaning
======  =============  ==========================================================================
law     (K,)           chance of a trait at a person's first step
keep    (K, K)         chance of the next trait
start   (K, U)         chance of the first place
next    (U, B)         places that a place may lead to
chance  (K, U, A, B)   chance of each of these
mean    (H, K, U, A)   mean reward, as a share of the range; a reward is a binomial share
pays    (H, U)         whether a reward is drawn at all, else it is 0
choice  (H, K, U, A)   practice
seen    (U,)           declared state of a place; states from S on end an episode
======  =============  ==========================================================================
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Range = tuple[float, float]

# a log of more rows is drawn of fewer people, so that a run stays near a second
ROWS = 1_200_000


@dataclass(frozen=True)
class Rows:
    """Logged steps of whole episodes, one a row; people are numbered in the order of their arrival."""

    user: Integers
    episode: Integers
    step: Integers
    state: Integers
    action: Integers
    reward: Array
    next_state: Integers


@dataclass(frozen=True)
class World:
    """A true world, the practice of its log, and what its card declares."""

    people: int
    rho: float
    episodes: int
    states: int
    law: Array
    keep: Array
    start: Array
    next: Integers
    chance: Array
    mean: Array
    pays: NDArray[np.bool_]
    choice: Array
    seen: Integers
    range: Range = (0.0, 1.0)
    steps: int = 1
    entering: Array | None = None
    by_arrival: bool = False
    recorded: bool = False
    alike: bool = False
    # of one step: chance ``(A, 2)`` to come again after an action that paid little or much; chance ``(A,)`` that
    # nobody ever hears of an outcome below the middle
    again: Array | None = None
    lost: Array | None = None
    # chance ``(A, 2)`` that an episode has no more rows after an action that paid little or much; it goes on unseen
    left: Array | None = None
    # the card counts one episode of a person, however many there are
    capped: bool = False

    @property
    def horizon(self) -> int:
        return len(self.mean)

    @property
    def actions(self) -> int:
        return self.choice.shape[3]

    @property
    def ends(self) -> int:
        """Number of declared states that end an episode."""
        return max(int(self.seen.max()) + 1 - self.states, 0)

    @property
    def shown(self) -> bool:
        """Whether a declared state shows all that drives the world: no trait, no place behind another."""
        return len(self.law) == 1 and len(np.unique(self.seen)) == len(self.seen)

    @property
    def final(self) -> bool:
        """Whether rewards come with the last step or the end of an episode alone."""
        return self.entering is not None or not self.pays[:-1].any()

    @cached_property
    def rewards(self) -> Array:
        """``(H, K, U, A)``: mean reward, in its unit."""
        if self.entering is not None:
            paid = np.einsum("kuab,ub->kua", self.chance, self.entering[self.seen[self.next]])
            return np.broadcast_to(paid * (self.seen < self.states)[:, None], self.mean.shape)
        low, high = self.range
        return np.where(self.pays[:, None, :, None], low + (high - low) * self.mean, 0.0)

    def _ahead(self, V: Array) -> Array:
        """``(K, U, A)``: expected value ahead, of values ``(K, U)``."""
        return np.einsum("kuab,kub->kua", self.chance, (self.keep @ V)[:, self.next], optimize=True)

    def acts(self, policy: Array | None, follows: NDArray[np.bool_] | None) -> Array:
        """Chances ``(H, K, U, A)`` of who follows a policy ``(H, S, A)`` where `follows`, and practice elsewhere."""
        if policy is None:
            return self.choice
        live = self.seen < self.states
        here = np.where(live, self.seen, 0)
        mask = live[None] & (True if follows is None else follows[:, here])
        return np.where(mask[:, None, :, None], policy[:, None, here], self.choice)

    def value(self, policy: Array | None = None, follows: NDArray[np.bool_] | None = None) -> float:
        """True mean reward of an episode; of practice without a policy."""
        acts = self.acts(policy, follows)
        V = np.zeros(self.start.shape)
        for h in reversed(range(self.horizon)):
            V = (acts[h] * (self.rewards[h] + self._ahead(V))).sum(-1)
        return float(self.law @ (self.start * V).sum(1))

    @cached_property
    def practised(self) -> float:
        return self.value()

    def gain(self, policy: Array, follows: NDArray[np.bool_] | None = None) -> float:
        """What a policy truly gains over practice in an episode."""
        return self.value(policy, follows) - self.practised

    @property
    def tolerance(self) -> float:
        """Gains up to this are rounding of the sums above."""
        return 1e-9 * self.horizon * (self.range[1] - self.range[0])

    @cached_property
    def best(self) -> tuple[Array, float] | None:
        """The best policy and its value, where the declared state shows all."""
        if not self.shown:
            return None
        V, table = np.zeros(self.start.shape), np.zeros((self.horizon, self.states, self.actions))
        here = self.seen[self.seen < self.states]
        for h in reversed(range(self.horizon)):
            Q = (self.rewards[h] + self._ahead(V))[0]
            table[h, here, Q.argmax(1)[self.seen < self.states]] = 1
            V = Q.max(1)[None]
        return table, float(self.start[0] @ V[0])

    @property
    def nothing_better(self) -> bool | None:
        """Whether no policy over declared states is better than practice; None where that is not known."""
        if self.alike:
            return True
        return None if self.best is None else self.best[1] - self.practised <= self.tolerance

    def naive(self, policy: Array) -> float:
        """Gain as a log without end shows it to who takes declared states, step by step, for all there is."""
        H, S, A, ends = self.horizon, self.states, self.actions, self.ends
        told, at = np.eye(S + ends)[self.seen], self.law[:, None] * self.start
        first = at.sum(0) @ told
        count, reward, moves = np.zeros((H, S, A)), np.zeros((H, S, A)), np.zeros((H, S, A, S + ends))
        for h in range(H):
            now = at[..., None] * self.choice[h]
            count[h], reward[h] = (np.einsum("kua,us->sa", w, told)[:S] for w in (now, now * self.rewards[h]))
            flow = now[..., None] * self.chance
            cell = np.minimum(self.seen, S - 1)[:, None, None] * A + np.arange(A)[:, None]
            to = cell.repeat(self.next.shape[1], 2), self.seen[self.next][:, None].repeat(A, 1)
            np.add.at(moves[h].reshape(S * A, -1), to, flow.sum(0) * (self.seen < S)[:, None, None])
            on = np.zeros((len(self.seen), len(self.law)))
            np.add.at(on, self.next[:, None].repeat(A, 1), np.moveaxis(flow, 0, -1))
            at = self.keep.T @ on.T
        sure = np.maximum(count, 1e-300)
        V, W = np.zeros(S + ends), np.zeros(S + ends)
        for h in reversed(range(H)):
            mine = count[h] / np.maximum(count[h].sum(-1, keepdims=True), 1e-300)
            # an action that nobody tried is shown by nothing: practice is followed there
            tried = np.where(count[h] > 0, policy[h], 0.0)
            lost = tried.sum(-1, keepdims=True)
            tried = np.where(lost > 0, tried / np.maximum(lost, 1e-300), mine)
            V[:S], W[:S] = (
                (p * (reward[h] / sure[h] + moves[h] / sure[h][..., None] @ v)).sum(-1)
                for p, v in ((tried, V), (mine, W))
            )
        return float(first @ (V - W))

    def sample(self, g: np.random.Generator) -> Rows:
        """Rows of all people.  A trait goes on from one episode of a person to the next."""
        n, H, S = self.people, self.horizon, self.states
        order = (np.arange(n) + 0.5) / n if self.by_arrival else g.random(n)
        trait = np.searchsorted(np.cumsum(self.law)[:-1], order, side="right")
        some = self.episodes > 1 and self.again is None
        theirs = g.integers(1, self.episodes, n, endpoint=True) if some else np.full(n, self.episodes)
        keep, start, chance, choice = (
            np.cumsum(x, -1)[..., :-1] for x in (self.keep, self.start, self.chance, self.choice)
        )
        low, high = self.range
        comes = np.ones(n, bool)
        parts: list[list[Integers | Array]] = []
        for episode in range(self.episodes):
            who = np.flatnonzero((theirs > episode) & comes)
            place = _pick(start, (trait[who],), g)
            for h in range(H):
                k = trait[who]
                a = _pick(choice, (h, k, place), g)
                if self.entering is None:
                    shares = g.binomial(self.steps, self.mean[h, k, place, a]) / self.steps
                    reward = np.where(self.pays[h, place], low + (high - low) * shares, 0.0)
                after = self.next[place, _pick(chance, (k, place, a), g)]
                if self.entering is not None:
                    reward = self.entering[self.seen[after]]
                steps = np.full_like(who, episode), np.full_like(who, h)
                parts.append([who, *steps, self.seen[place], a, reward, self.seen[after]])
                if self.again is not None:
                    comes[who] = g.random(len(who)) < self.again[a, (reward > (low + high) / 2).astype(int)]
                trait[who] = _pick(keep, (k,), g)
                goes_on = self.seen[after] < S
                who, place = who[goes_on], after[goes_on]
        return Rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _pick(cumulative: Array, at: tuple[Any, ...], g: np.random.Generator) -> Integers:
    """One draw a row of distributions whose cumulative chances, but the last, are `cumulative` at `at`."""
    table = cumulative[at]
    return (g.random((len(table), 1)) >= table).sum(1)


@dataclass(frozen=True)
class Twist:
    """Ranges that a family draws from; a range whose ends are one number is that number."""

    horizon: Range = (2, 12)
    states: Range = (3, 40)
    actions: Range = (2, 5)
    people: Range = (2_000, 100_000)
    rho: Range = (0.02, 3)
    episodes: Range = (1, 1)
    # what actions do: to rewards (share of the range), to the next place (log odds)
    effect: Range = (0.05, 0.3)
    push: Range = (0, 1)
    # chance that actions do nothing at all
    alike: float = 0.0
    # what a trait does: to choices (log odds), rewards (share), next and first places (log odds)
    trait: Range | None = None
    on_choice: Range = (0.7, 3)
    on_reward: Range = (0, 0)
    on_next: Range = (0, 0)
    on_start: Range = (0, 0)
    # what an action is worth more to one end of the trait than to the other (share of the range)
    interacts: Range = (0, 0)
    last_only: bool = False
    # rewards are moved in the second half of an episode alone
    late: bool = False
    memory: Range = (1, 1)
    # nobody has the trait at first, and who gets it keeps it; few have it; it turns sign with every step
    emerging: bool = False
    rare: bool = False
    turning: bool = False
    by_arrival: bool = False
    # places behind one declared state, and how long a person stays in the same kind of place
    fine: Range = (1, 1)
    stays: Range = (0.4, 0.95)
    # practice: soft, greedy (of any preference), seldom (the same, each other action in as few rows), optimal (ties
    # alone), nearly_optimal, harm_elsewhere
    practice: str = "soft"
    spread: Range = (0.2, 1.2)
    by_step: float = 0.25
    # what all rewards rise or fall by from the first step to the last (share of the range)
    ageing: Range = (0, 0)
    # share of states in which an action has chance 0, and what it is worth there more than others
    untried: Range = (0, 0)
    untried_effect: Range = (0, 0)
    rewards: str = "dense"
    reward_range: tuple[Range, ...] = ((0, 1), (0, 1), (-1, 1), (0, 10), (-3, 0))
    starts: str = "even"
    ending: float = 0.25
    recorded: float = 0.0
    # what is done, and what comes of it, decides who comes again; share of low outcomes of one action that are missing
    returning: bool = False
    losing: Range = (0, 0)
    # share of episodes whose rows stop with each step; up to so many times as many after some actions and outcomes
    leaving: Range = (0, 0)
    leaving_differs: Range = (1, 1)
    # of who comes again, the card counts one episode
    capped: bool = False


def _between(g: np.random.Generator, ends: Range) -> float:
    return float(g.uniform(*ends))


def _whole(g: np.random.Generator, ends: Range) -> int:
    """A whole number of a range, even on a scale of logarithms."""
    return int(np.clip(np.floor(np.exp(g.uniform(np.log(ends[0]), np.log(ends[1] + 1)))), *ends))


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def build(g: np.random.Generator, twist: Twist) -> World:
    """Draw a world of these ranges."""
    H, S, A = _whole(g, twist.horizon), _whole(g, twist.states), _whole(g, twist.actions)
    fine, episodes = _whole(g, twist.fine), _whole(g, twist.episodes)
    S = max(2, min(S, 300 // fine))
    entering = twist.rewards == "entering"
    ends = 2 if entering else int(H > 1 and g.random() < twist.ending)
    alike = g.random() < twist.alike
    effect, push = (0.0, 0.0) if alike else (_between(g, twist.effect), _between(g, twist.push))
    twins = twist.practice == "optimal"
    kinds = max(A // 2, 2) if twins else A

    # places: states times their fine kinds, then the ends
    U = S * fine
    seen = np.concatenate([np.arange(U) // fine, S + np.arange(ends)])
    kind = np.concatenate([np.arange(U) % fine, np.zeros(ends, int)])
    sign = np.where(fine > 1, 2 * kind / max(fine - 1, 1) - 1, 0.0)
    good = np.concatenate([g.normal(size=S).repeat(fine) + sign[:U], [1.5, -1.5][:ends]])

    # traits: spread over [-1, 1]
    K = 1 if twist.trait is None else _whole(g, twist.trait)
    z = np.linspace(-1, 1, K) if K > 1 else np.zeros(1)
    law = g.dirichlet(np.full(K, 4.0))
    if twist.rare and K > 1:
        law = np.append(_between(g, (0.9, 0.98)) * law[:-1] / law[:-1].sum(), 0.0)
        law[-1] = 1 - law.sum()
        z = np.append(np.zeros(K - 1), 1.0)
    memory = _between(g, twist.memory)
    keep = memory * np.eye(K) + (1 - memory) * law
    if twist.emerging and K > 1:
        onset = _between(g, (0.05, 0.3))
        keep = np.eye(K)
        keep[0] = np.append(1 - onset, onset * law[1:] / law[1:].sum())
        law = np.eye(K)[0]
    turns = (-1.0) ** np.arange(H) if twist.turning else np.ones(H)

    # where a place leads
    B = min(S, int(g.integers(2, 6, endpoint=True)))
    led = np.argsort(g.random((S, S)), axis=1)[:, :B].repeat(fine, 0)
    after = (led[..., None] * fine + np.arange(fine)).reshape(U, B * fine)
    after = np.concatenate([after, np.broadcast_to(U + np.arange(ends), (U, ends))], 1)
    base = g.normal(0, 0.7, (S, B)).repeat(fine, 0).repeat(fine, 1)
    if fine > 1:
        stays = _between(g, twist.stays)
        same = kind[:U, None] == kind[after[:, : B * fine]]
        base = base + np.log(stays * same + (1 - stays) / fine)
    leaves = np.log(_between(g, (0.01, 0.12)) * B * fine / max(ends, 1))
    logits = np.concatenate([base, np.full((U, ends), leaves)], 1)
    tilt = g.normal(size=(S, kinds)).repeat(fine, 0)
    trait_next = _between(g, twist.on_next)
    there = np.clip(good[after], -2, 2)
    chance = _softmax(
        logits[None, :, None]
        + push * tilt[None, :, :, None] * there[None, :, None]
        + trait_next * z[:, None, None, None] * there[None, :, None]
    )

    # where an episode starts
    weight = g.normal(size=S) if twist.starts == "even" else -g.uniform(1.2, 3) * np.log(1 + g.permutation(S))
    first = weight.repeat(fine) + _between(g, twist.on_start) * z[:, None] * np.clip(good[:U], -2, 2)
    start = np.concatenate([_softmax(first), np.zeros((K, ends))], 1)

    # what a step pays
    dev = g.uniform(-1, 1, (S, kinds)).repeat(fine, 0)
    missing = np.zeros((S, kinds), bool)
    if twist.untried[1] > 0:
        missing[np.arange(S), g.integers(0, kinds, S)] = g.random(S) < max(_between(g, twist.untried), 1 / S)
        missing[int(g.integers(S)), int(g.integers(kinds))] |= not missing.any()
    level = _between(g, (0.25, 0.75)) + _between(g, (0, 0.2)) * np.clip(good[:U], -1.5, 1.5)
    bonus = missing.repeat(fine, 0) * (0.0 if alike else _between(g, twist.untried_effect))
    hidden = _between(g, twist.on_reward) * z
    when = np.arange(H) >= (H - 1 if twist.last_only else H / 2 if twist.late else 0)
    # one order of actions for all states, or turned in some: what a trait pushes choices towards, and who gains by it
    order = np.linspace(-1, 1, kinds)[g.permutation(kinds)] * np.ones((S, 1))
    if g.random() < 0.3:
        order = order * g.choice([-1, 1], (S, 1))
    mean = (level[:, None] + effect * dev + bonus)[None, None] + ((when * turns)[:, None] * hidden)[:, :, None, None]
    mean = mean + (_between(g, twist.ageing) * np.linspace(-1, 1, H))[:, None, None, None]
    if twist.interacts[1] > 0 and not alike:
        turned = g.choice([-1, 1]) * _between(g, twist.interacts)
        mean = mean + turned * z[:, None, None] * order.repeat(fine, 0)
    mean = np.clip(mean, 0.02, 0.98)
    pays = np.ones((H, U), bool)
    if twist.rewards == "sparse":
        paying = g.random(S) < _between(g, (0.1, 0.4))
        paying[int(g.integers(S))] = True
        pays &= paying.repeat(fine)
    if twist.rewards == "final":
        pays[:-1] = False

    # ends lead to themselves and pay nothing
    here = U + np.arange(ends)
    after = np.concatenate([after, np.repeat(here[:, None], after.shape[1], 1)])
    chance = np.concatenate([chance, np.full((K, ends, kinds, after.shape[1]), 1 / after.shape[1])], 1)
    mean = np.concatenate([mean, np.zeros((H, K, ends, kinds))], 2)
    pays = np.concatenate([pays, np.zeros((H, ends), bool)], 1)

    if twins:
        # each action twice, so that practice may choose among the best and there is evidence to mislead
        chance, mean = chance.repeat(2, 2), mean.repeat(2, 3)
        missing = missing.repeat(2, 1)
    A = chance.shape[2]
    low, high = (0.0, 1.0) if entering else twist.reward_range[int(g.integers(len(twist.reward_range)))]
    cost = H * (1 + episodes) / 2
    people = _whole(g, (twist.people[0], max(twist.people[0], min(twist.people[1], ROWS / cost))))
    world = World(
        people=people,
        rho=float(np.exp(g.uniform(*np.log(twist.rho)))),
        episodes=episodes,
        states=S,
        law=law,
        keep=keep,
        start=start,
        next=after,
        chance=chance,
        mean=mean,
        pays=pays,
        choice=np.full((H, K, U + ends, A), 1 / A),
        seen=seen,
        range=(float(low), float(high)),
        # a step that pays nothing must lie on the card's lattice of rewards
        steps=int(g.choice([2, 2, 10, 40] if low < 0 < high else [1, 1, 2, 10, 40])),
        entering=np.concatenate([np.zeros(S), [1.0, 0.0]]) if entering else None,
        by_arrival=twist.by_arrival,
        recorded=bool(g.random() < twist.recorded),
        alike=alike,
    )
    choice = _practice(g, twist, world, turns[:, None] * z, sign, missing, order)
    world = replace(world, choice=np.concatenate([choice, world.choice[:, :, U:]], 2))
    if twist.returning:
        world = replace(world, again=g.uniform(0.05, 0.98, (A, 2)), capped=twist.capped)
    if twist.losing[1] > 0:
        world = replace(world, lost=_between(g, twist.losing) * np.eye(A)[int(g.integers(A))])
    if twist.leaving[1] > 0:
        most = _between(g, twist.leaving_differs)
        world = replace(world, left=np.minimum(_between(g, twist.leaving) * most ** g.random((A, 2)), 1))
    return world


def _practice(g: np.random.Generator, twist: Twist, world: World, z: Array, sign: Array,
              missing: NDArray[np.bool_], towards: Array) -> Array:  # fmt: skip
    """Chances ``(H, K, U, A)`` over the places that are no ends."""
    H, S, A, K = world.horizon, world.states, world.actions, len(world.law)
    U = len(world.seen) - world.ends
    fine = U // S
    liked = _between(g, twist.spread) * g.normal(size=(1, S, A))
    if g.random() < twist.by_step:
        liked = liked + _between(g, (0.2, 1)) * g.normal(size=(H, S, A))
    if twist.practice in ("optimal", "nearly_optimal", "harm_elsewhere"):
        best = world.best
        assert best is not None
        if twist.practice == "optimal":
            # the twin of a best action is as good
            pairs = best[0].reshape(H, S, A // 2, 2).sum(-1, keepdims=True).repeat(2, -1).reshape(H, S, A)
            chance = pairs * _softmax(liked)
            return np.broadcast_to(chance[:, None] / chance.sum(-1)[:, None, :, None], (H, K, U, A))
        rare = np.exp(g.uniform(*np.log((0.005, 0.05) if twist.practice == "nearly_optimal" else (0.05, 0.4))))
        return np.broadcast_to(((1 - rare) * best[0] + rare / A)[:, None], (H, K, U, A))
    hidden = z[:, :, None, None] * (0.0 if K == 1 else _between(g, twist.on_choice))
    kind = sign[:U, None] * (0.0 if fine == 1 else _between(g, twist.on_choice))
    logits = liked.repeat(fine, 1)[:, None] + (hidden + kind) * towards.repeat(fine, 0)
    logits = np.broadcast_to(logits, (H, K, U, A))
    if twist.practice == "greedy":
        rare = np.exp(g.uniform(*np.log((0.005, 0.05))))
        return (1 - rare) * np.eye(A)[logits.argmax(-1)] + rare / A
    if twist.practice == "seldom":
        rare = np.exp(g.uniform(*np.log((0.001, 0.01))))
        return (1 - rare * A) * np.eye(A)[logits.argmax(-1)] + rare
    return _softmax(np.where(missing.repeat(fine, 0), -np.inf, logits))


# a trait is worth a family in halves: one where actions do nothing, so that every "better" is false, one with effects
_TRAIT: dict[str, Any] = {"trait": (2, 5), "alike": 0.5, "effect": (0.01, 0.3)}
_REWARD: dict[str, Any] = {"on_reward": (0.05, 0.4)}
_NEXT: dict[str, Any] = {"on_next": (0.3, 2)}
_AR: dict[str, Any] = {"memory": (0.4, 0.9)}

TWISTS: dict[str, Twist] = {
    "open": Twist(effect=(0.15, 0.5)),
    "practice_optimal": Twist(practice="optimal", actions=(4, 6)),
    "actions_alike": Twist(alike=1.0),
    "trait_reward": Twist(**_TRAIT, **_REWARD),
    "trait_reward_moving": Twist(**_TRAIT, **_REWARD, **_AR),
    "trait_reward_fleeting": Twist(**_TRAIT, **_REWARD, memory=(0, 0.2)),
    "trait_reward_turning": Twist(**_TRAIT, **_REWARD, turning=True),
    "trait_emerging": Twist(**_TRAIT, **_REWARD, on_next=(0, 1), emerging=True),
    "trait_rare": Twist(**_TRAIT, on_reward=(0.2, 0.6), on_next=(0, 1), rare=True),
    "trait_next": Twist(**_TRAIT, **_NEXT),
    "trait_next_moving": Twist(**_TRAIT, **_NEXT, **_AR),
    "trait_both": Twist(**_TRAIT, **_REWARD, **_NEXT),
    "trait_both_moving": Twist(**_TRAIT, **_REWARD, **_NEXT, **_AR),
    "trait_weak": Twist(**{**_TRAIT, "on_choice": (0.1, 0.7)}, on_reward=(0.01, 0.08), on_next=(0, 0.3)),
    "trait_start": Twist(**_TRAIT, on_start=(0.5, 2)),
    "trait_habit": Twist(**_TRAIT),
    "trait_interacts": Twist(trait=(2, 5), effect=(0.01, 0.2), interacts=(0.05, 0.4), on_reward=(0, 0.2)),
    "trait_last": Twist(**_TRAIT, **_REWARD, last_only=True),
    "trait_final": Twist(**_TRAIT, **_REWARD, rewards="final"),
    "trait_sparse": Twist(**_TRAIT, **_REWARD, rewards="sparse"),
    "trait_entering": Twist(**_TRAIT, **_NEXT, rewards="entering"),
    "trait_greedy": Twist(**_TRAIT, **_REWARD, practice="greedy"),
    "trait_one_step": Twist(**_TRAIT, **_REWARD, horizon=(1, 1), states=(2, 100)),
    "trait_one_step_again": Twist(**_TRAIT, **_REWARD, horizon=(1, 1), states=(2, 100), episodes=(2, 5)),
    "trait_episodes": Twist(**_TRAIT, **_REWARD, episodes=(2, 5), horizon=(2, 6)),
    "aliased": Twist(fine=(2, 5), alike=0.5, effect=(0.01, 0.3), states=(2, 40)),
    "aliased_sparse": Twist(fine=(2, 5), alike=0.5, effect=(0.01, 0.3), states=(2, 40), rewards="sparse"),
    "untried_worse": Twist(untried=(0.1, 0.9), untried_effect=(-0.6, -0.2), actions=(3, 5)),
    "untried_better": Twist(untried=(0.1, 0.9), untried_effect=(0.2, 0.6), actions=(3, 5)),
    "greedy": Twist(practice="greedy"),
    "greedy_optimal": Twist(practice="nearly_optimal"),
    "tiny": Twist(effect=(0.002, 0.02), push=(0, 0.05)),
    "large": Twist(effect=(0.5, 1), push=(0.5, 3)),
    "negative": Twist(practice="harm_elsewhere", effect=(0.2, 0.6), reward_range=((-1, 0), (-5, 0), (-2, 1))),
    "heavy_starts": Twist(starts="heavy", states=(20, 300), effect=(0.02, 0.3)),
    "sparse": Twist(rewards="sparse", effect=(0.02, 0.4)),
    "final": Twist(rewards="final", effect=(0.02, 0.4)),
    "entering": Twist(rewards="entering"),
    "one_step": Twist(horizon=(1, 1), states=(2, 300), effect=(0.01, 0.3), episodes=(1, 3)),
    "ageing": Twist(ageing=(-0.3, 0.3), by_step=1.0, alike=0.5, effect=(0.01, 0.2)),
    "long": Twist(horizon=(20, 30), effect=(0.01, 0.2)),
    "few_states": Twist(states=(2, 3), horizon=(1, 30), effect=(0.01, 0.2)),
    "many_states": Twist(states=(100, 300), effect=(0.02, 0.4)),
    "episodes": Twist(episodes=(2, 6), horizon=(1, 6)),
    "drift": Twist(**_TRAIT, on_reward=(0, 0.3), on_next=(0, 1), by_arrival=True),
    "recorded": Twist(recorded=1.0, alike=0.3, effect=(0.01, 0.3), horizon=(1, 12)),
    "recorded_falsely": Twist(**_TRAIT, on_reward=(0, 0.4), on_next=(0, 1.5), recorded=1.0, horizon=(1, 12)),
}

# written when the others had been counted, of traits that leave little or nothing before the row that they move
MORE: dict[str, Twist] = {
    "trait_new": Twist(**_TRAIT, **_REWARD, memory=(0, 0)),
    "trait_new_next": Twist(**_TRAIT, **_NEXT, memory=(0, 0)),
    "trait_new_both": Twist(**_TRAIT, **_REWARD, **_NEXT, memory=(0, 0.1)),
    "trait_event": Twist(**_TRAIT, on_reward=(0.2, 0.8), rare=True, memory=(0, 0.1)),
    "trait_late": Twist(**_TRAIT, **_REWARD, late=True, memory=(0.2, 1)),
    "aliased_new": Twist(fine=(2, 5), stays=(0, 0.3), alike=0.5, effect=(0.01, 0.3), states=(2, 40)),
}

# written later, of logs that no trait makes misleading
_ONE: dict[str, Any] = {"horizon": (1, 1), "states": (2, 100), "effect": (0.01, 0.2)}
PLAIN: dict[str, Twist] = {
    "rule_changed": Twist(**{**_TRAIT, **_ONE}, **_REWARD, by_arrival=True, recorded=1.0),
    "outcomes_lost": Twist(**_ONE, alike=0.5, losing=(0.1, 0.9), recorded=1.0),
    "returning": Twist(**_ONE, alike=0.5, episodes=(4, 10), returning=True, recorded=0.5),
    "returning_capped": Twist(**_ONE, alike=0.5, episodes=(4, 10), returning=True, capped=True, recorded=0.5),
    "leaving": Twist(alike=0.5, leaving=(0.003, 0.1)),
    "seldom": Twist(practice="seldom", alike=0.5, effect=(0.01, 0.1), actions=(3, 60), states=(2, 10)),
    "led": Twist(push=(2, 5), states=(2, 12), horizon=(3, 10), effect=(0.01, 0.1), people=(20_000, 100_000)),
    "leaving_after": Twist(alike=0.5, leaving=(0.003, 0.05), leaving_differs=(2, 20)),
}


def _storm(g: np.random.Generator) -> World:
    """Anything at once: each twist of some other family, or not."""
    twist = Twist(horizon=(1, 30), states=(2, 300), alike=0.4, effect=(0.005, 0.5), push=(0, 2))
    usual = Twist()
    for other in TWISTS.values():
        if g.random() < 0.1 and not other.recorded and other.practice in ("soft", "greedy"):
            theirs = {f.name: getattr(other, f.name) for f in fields(Twist)}
            twist = replace(twist, **{k: v for k, v in theirs.items() if v != getattr(usual, k)})
    return build(g, twist)


def _of(twist: Twist) -> Callable[[np.random.Generator], World]:
    return lambda g: build(g, twist)


FAMILIES: dict[str, Callable[[np.random.Generator], World]] = {
    **{name: _of(twist) for name, twist in (TWISTS | MORE | PLAIN).items()},
    "storm": _storm,
}
