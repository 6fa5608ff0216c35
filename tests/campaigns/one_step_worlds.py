"""Worlds on which one-step improvement is measured, each with the policy of its log; all states are declared."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from pipeline.declaration.card import Card
from pipeline.declaration.domain import StateFeatures
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import occupancies, optimal_values, policy_value, policy_values
from pipeline.worlds.catalog import load_world
from pipeline.worlds.simulated_logs import sample_people
from pipeline.worlds.world import binned_behaviour, binned_process
from tests.conftest import card_dict

Array = NDArray[np.float64]
ICU = Path(__file__).resolve().parents[2] / "datasets" / "icu_sepsis"


@dataclass(frozen=True)
class Logged:
    """A card, a process and practice ``(H, S, A)``; over the card's labels, or over what ``bins`` hide."""

    card: Card
    mdp: TabularMDP
    practice: Array
    bins: NDArray[np.int64] | None = None

    def sample(self, people, rng):
        """Canonical rows of people, whole ones in each frame; states are told by their bin where there are any."""
        card = self.card if self.bins is None else clinicians(people).card
        frames = sample_people(card, self.mdp, self.practice, people, rng)
        if self.bins is None:
            return frames
        told = [pl.Series(self.bins[f[c].to_numpy()]) for f in frames for c in ("state", "next_state")]
        return [f.with_columns(state=told[2 * i], next_state=told[2 * i + 1]) for i, f in enumerate(frames)]

    @cached_property
    def practised(self):
        return policy_value(self.mdp, self.practice)

    @cached_property
    def advantage(self):
        """``(L, A)``: what an action truly gains over practice, on average over the steps at which a state is met."""
        V, visits = policy_values(self.mdp, self.practice), occupancies(self.mdp, self.practice).sum(-1)
        A = np.stack([r + P @ v for r, P, v in zip(self.mdp.rewards, self.mdp.transitions, V[1:], strict=True)])
        off = (visits[..., None] * (A - V[:-1, :, None])).sum(0)
        return (off / np.maximum(visits.sum(0), 1e-300)[:, None])[: len(self.card.domain.live_states)]

    def worth(self, policy):
        """True value of a policy over what is declared, practice where it abstains."""
        H, S, A = self.mdp.shape
        L = len(self.card.domain.live_states)
        told = np.arange(S) if self.bins is None else self.bins
        live, p = told < L, np.full((H, S, A), 1 / A)
        here = told[live]
        kept = policy.abstains[:, here, None]
        p[:, live] = np.where(kept, self.practice[:, live], policy.probabilities[:, here])
        P, r = self.mdp.transitions, self.mdp.rewards
        if P.strides[0] or (p != p[0]).any():
            return policy_value(self.mdp, p)
        # all steps are alike: one table of them, not H
        ahead, paid = np.einsum("sa,sat->st", p[0], P[0], optimize=True), (p * r).sum(-1)
        V = np.zeros(S)
        for h in reversed(range(H)):
            V = paid[h] + ahead @ V
        return float(self.mdp.start @ V)


def _card(name, states, ends, actions, horizon, reward, people, features=None, *, per_step=False) -> Card:
    states, numbers = list(states), None
    if features is not None:
        columns = tuple(f"f{i}" for i in range(features.shape[1]))
        numbers = StateFeatures("states.parquet", tuple(states), columns, "0" * 64, features)
    domain = {
        "horizon": horizon,
        "states": {"column": "state", "labels": list(states), "ends": list(ends), "features": numbers},
        "actions": {"column": "action", "labels": [*map(str, actions)]},
        **({"dynamics": "per_step"} if per_step else {"dynamics": "stationary", "cell_cap": 4}),
    }
    unit = {"user": "user_id", "episodes_per_user": 1, "users_public": people}
    values = card_dict(name=name, domain=domain, reward=reward, unit=unit)
    if "on_entering" in reward:
        values["source"]["columns"].pop("reward")
    return Card.model_validate(values)


# of ICU-Sepsis: ends, actions, steps, reward
SURVIVES = {"range": [0.0, 1.0], "total": 1.0, "on_entering": {"survived": 1.0}}
SEPSIS = ["died", "survived", "end"], range(25), 20, SURVIVES


def clinicians(people: int) -> Logged:
    """ICU-Sepsis logged by its clinicians: 713 states, 25 actions, 47 public numbers a state."""
    world = load_world("icu_sepsis", ICU)
    with np.load(ICU / "world.npz") as z:
        features = z["state_cluster_centers"][:713].copy()
    card = _card("clinicians", map(str, range(713)), *SEPSIS, people, features)
    # labels are the raw states in their order, so that the process over them is the world itself
    return Logged(card, world.mdp(20), world.behaviours("clinician", 20))


def retention(people: int) -> Logged:
    """A shop's customers: months since the last order x orders so far x size of orders, and one of 6 offers a month.

    240 states; a customer lapses for good after the twelfth month without an order.  The shop is nearly greedy: it
    takes a softmax of the values that it knows, which are a fifth off.
    """
    R, F, M, A, H = 12, 5, 4, 6, 12
    rng = np.random.default_rng(20)
    cost, pull = np.array([0.0, 0.02, 0.04, 0.06, 0.09, 0.12]), np.array([0.0, 0.25, 0.4, 0.5, 0.9, 1.0])
    # what an offer does depends on who gets it
    taste = rng.normal(0, 0.5, (F, M, A)) * (np.arange(A) > 0)
    L = R * F * M
    P, r = np.zeros((L + 1, A, L + 1)), np.zeros((L + 1, A))
    for s in range(L):
        recency, rest = divmod(s, F * M)
        often, size = divmod(rest, M)
        logit = -1.2 - 0.25 * recency + 0.35 * often + pull + taste[often, size] - 0.15 * size
        buys = 1 / (1 + np.exp(-logit))
        r[s] = buys * (0.2 + 0.2 * size) - cost
        for target, chance in ((size, 0.7), (max(size - 1, 0), 0.15), (min(size + 1, M - 1), 0.15)):
            P[s, :, min(often + 1, F - 1) * M + target] += buys * chance
        P[s, :, L if recency == R - 1 else s + F * M] += 1 - buys
    P[L, :, L] = 1
    start = np.zeros(L + 1)
    start[: F * M] = 0.5 / (F * M)
    start[F * M : 4 * F * M] = 0.5 / (3 * F * M)
    mdp = TabularMDP(np.broadcast_to(P, (H, *P.shape)), np.broadcast_to(r, (H, *r.shape)), start)
    known = optimal_values(mdp)[0][0] + rng.normal(0, 0.05, (L + 1, A))
    soft = np.exp((known - known.max(1, keepdims=True)) / 0.04)
    practice = np.broadcast_to(soft / soft.sum(1, keepdims=True), (H, L + 1, A))
    recency, often, size = (x.ravel().astype(float) for x in np.indices((R, F, M)))
    features = np.stack([recency, often, size, recency * often, often * size, recency**2], axis=1)
    reward = {"range": [-0.15, 0.85], "steps": 20}
    states = [f"{int(a)}/{int(b)}/{int(c)}" for a, b, c in zip(recency, often, size, strict=True)]
    return Logged(_card("retention", states, ["lapsed"], range(A), H, reward, people, features), mdp, practice)


def lake(people: int) -> Logged:
    """Gymnasium's FrozenLake 8x8, 100 steps, logged by a mediocre policy: 4 actions in 10 are thrown at random."""
    world = load_world("gymnasium:FrozenLake8x8-v1", ICU)
    H = 100
    live = [label for s, label in enumerate(world.raw_labels) if s not in world.ends]
    ends = list(dict.fromkeys(world.ends.values()))
    reward = {"range": [0.0, 1.0], "steps": 1, "total": 1.0}
    card = _card("lake", dict.fromkeys(live), ends, world.actions, H, reward, people)
    behaviour = world.behaviours("near-optimal-0.4", H)
    # uniform choice visits whatever can be visited, so that its process is the world itself
    return Logged(card, binned_process(card, world, "uniform"), binned_behaviour(card, world, behaviour))


def binned(bins: int):
    """The clinicians' log with its states told by k-means bins only: what clinicians act on is hidden."""

    def world(people: int) -> Logged:
        whole = clinicians(people)
        numbers = whole.card.domain.state_features
        spread = (numbers - numbers.mean(0)) / np.maximum(numbers.std(0), 1e-12)
        centres, of = kmeans2(spread, bins, minit="++", rng=np.random.default_rng(bins))
        card = _card(f"clinicians{bins}", [f"b{i}" for i in range(bins)], *SEPSIS, people, centres)
        return Logged(card, whole.mdp, whole.practice, np.append(of, bins + np.arange(3)).astype(np.int64))

    return world


def _well(name, mdp, people, features=None, *, dense, **more) -> Card:
    """The card of a world with two ends, of which being well pays unless each step does."""
    (H, S, A), pays = mdp.shape, {"steps": 20} if dense else {"total": 1.0, "on_entering": {"well": 1.0}}
    labels = map(str, range(S - 2)), ["well", "ill"], range(A)
    return _card(name, *labels, H, {"range": [0.0, 1.0], **pays}, people, features, **more)


@dataclass(frozen=True)
class MadeUp:
    """A world drawn at random, with two ends, and the policy of its log: a softmax of noisy values.

    ``seed``: of the world.
    ``states``, ``actions``, ``steps``: its size.
    ``warmth``: of the softmax, in ranges of a step's reward: little is nearly greedy.
    ``dense``: whether every step pays, not only the good end.
    ``drift``: by how much chances and rewards turn over the steps; the card says stationary all the same.
    ``turns``: whether practice follows the drift: then what it does depends on a step that the state does not tell.
    ``inert``: whether all actions do the same: no policy is better than practice.
    ``told``: whether the card has numbers of states.
    ``far``: how unlikely a successor must be, beside the likeliest, to be left out.
    ``per_step``: whether the card says that each step has chances of its own.
    """

    seed: int
    states: int = 30
    actions: int = 4
    steps: int = 10
    warmth: float = 0.1
    dense: bool = False
    drift: float = 0.0
    turns: bool = False
    inert: bool = False
    told: bool = True
    far: float = 0.0
    per_step: bool = False

    def _mdp(self, rng) -> tuple[Array, TabularMDP]:
        """Numbers of states, and the process."""
        L, A, H = self.states, self.actions, self.steps
        leave = min(1.5 / H, 1.0)
        numbers = rng.normal(size=(L, 3))
        P = np.zeros((L + 2, A, L + 2))
        for a in range(A):
            near = np.exp(-0.5 * ((numbers[:, None] + 0.3 * rng.normal(size=3) - numbers) ** 2).sum(-1))
            near[near < self.far * near.max(1, keepdims=True)] = 0
            P[:L, a, :L] = (1 - leave) * near / near.sum(1, keepdims=True)
        good = 1 / (1 + np.exp(-(numbers @ rng.normal(size=3))[:, None] - 0.5 * rng.normal(size=(L, A))))
        P[:L, :, L], P[:L, :, L + 1] = leave * good, leave * (1 - good)
        P[L:, :, L:] = np.eye(2)[:, None]
        r = np.zeros((L + 2, A))
        r[:L] = rng.beta(2, 4, size=(L, A)) if self.dense else P[:L, :, L]
        start = np.append(np.full(L, 1 / L), [0, 0])
        if self.inert:
            P, r = (np.broadcast_to(x.mean(1, keepdims=True), x.shape) for x in (P, r))
        PH, rH = np.broadcast_to(P, (H, *P.shape)), np.broadcast_to(r, (H, *r.shape))
        if self.drift:
            # each step a little further towards another world of the same states
            part = self.drift * np.linspace(0, 1, H)[:, None, None, None]
            other = P[:, rng.permutation(A)]
            PH = (1 - part) * P + part * other
            rH = rH if self.dense else np.pad(PH[:, :L, :, L], ((0, 0), (0, 2), (0, 0)))
        return numbers, TabularMDP(PH, rH, start)

    def __call__(self, people: int) -> Logged:
        rng = np.random.default_rng(self.seed)
        numbers, mdp = self._mdp(rng)
        guess = optimal_values(mdp)[0] + rng.normal(0, 0.05, (self.states + 2, self.actions))
        guess = guess if self.turns else guess[:1]
        soft = np.exp((guess - guess.max(-1, keepdims=True)) / self.warmth)
        practice = np.broadcast_to(soft / soft.sum(-1, keepdims=True), mdp.shape)
        numbers = numbers if self.told else None
        card = _well(f"made-up-{self.seed}", mdp, people, numbers, dense=self.dense, per_step=self.per_step)
        return Logged(card, mdp, practice)


def contexts(seed, **more):
    """A log of one step an episode: contexts, actions, practice and what is paid are drawn from ranges."""
    rng = np.random.default_rng((seed, 1))
    states, actions = round(10 * 70 ** rng.random()), int(rng.integers(2, 11))
    warmth, (dense, told) = 0.02 * 15 ** rng.random(), rng.random(2) < 0.5
    return MadeUp(seed, states, actions, 1, warmth=warmth, dense=bool(dense), told=bool(told), **more)


def lasting(seed, **more):
    """A log of 21 to 100 steps an episode, the rest drawn from ranges."""
    rng = np.random.default_rng((seed, 1))
    states, actions = round(3 * 100 ** rng.random()), int(rng.integers(2, 9))
    steps = round(21 * (100 / 21) ** rng.random())
    warmth, (dense, told) = 0.02 * 15 ** rng.random(), rng.random(2) < 0.4
    return MadeUp(seed, states, actions, steps, warmth=warmth, dense=bool(dense), told=bool(told), **more)


def _led(rng, L, A):
    """Where actions lead ``(L, A, L)``, and what they pay ``(L, A)``: kinds by one who had not read the estimator."""
    kind = rng.choice(["groups", "random", "chain", "trap", "few"])
    many, within = min(L, int(rng.integers(2, 6))), rng.dirichlet(np.ones(L), (L, A))
    noise = rng.uniform(-0.1, 0.1, (L, A))
    if kind in ("groups", "trap"):
        # a trap's last action pays now, and leads to the group that pays little
        many = many if kind == "groups" else 2
        of = np.arange(L) % many
        to, pays = rng.dirichlet(np.ones(many), (many, A)), rng.uniform(0.2, 0.8, many)
        if kind == "trap":
            low = np.where(np.arange(A) < A - 1, 0.1, 0.7)
            to, pays = np.tile(np.stack([low, 1 - low], -1), (2, 1, 1)), np.array([0.25, 0.6])
            noise[:, -1] += 0.2
        sums = within @ np.eye(many)[of]
        return within / sums[:, :, of] * to[of][:, :, of], pays[of, None] + noise
    if kind == "chain":
        s, up = np.arange(L), np.linspace(0.2, 0.8, A)
        P = up[:, None] * np.eye(L)[np.minimum(s + 1, L - 1)][:, None]
        P = P + (1 - up)[:, None] * np.eye(L)[np.maximum(s - 1, 0)][:, None]
        return P, 0.15 + 0.7 * s[:, None] / L - np.linspace(0, 0.15, A)
    P = rng.dirichlet(np.full(L, rng.choice([0.05, 0.1])), (L, A))
    rare = rng.uniform(0.2, 0.5, (L, A)) + 0.45 * (np.arange(L) < 3)[:, None]
    return P, rare if kind == "few" else rng.random((L, A))


def leading(seed, stay):
    """A log in which actions decide who comes to which states; its size, practice and what is paid are drawn.

    ``stay``: chances between which that to be there still at the last step is drawn.
    """
    rng = np.random.default_rng((seed, 1))
    L, A, H = (round(a * (b / a) ** rng.random()) for a, b in ((2, 700), (2, 6), (2, 20)))
    to, pays = _led(rng, L, A)
    pays = np.clip(pays, 0, 1)
    leave = np.minimum((1 - rng.uniform(*stay) ** (1 / (H - 1))) * rng.uniform(0.5, 1.5, L), 0.95)
    well, dense = pays.mean(1), bool(rng.random() < 0.5)
    P, r = np.zeros((L + 2, A, L + 2)), np.zeros((L + 2, A))
    P[:L, :, :L] = (1 - leave)[:, None, None] * to
    P[:L, :, L], P[:L, :, L + 1] = ((leave * x)[:, None] for x in (well, 1 - well))
    P[L:, :, L:] = np.eye(2)[:, None]
    r[:L] = pays if dense else P[:L, :, L]
    practice = 0.9 * rng.dirichlet(np.full(A, 2.0), L + 2) + 0.1 / A
    start = np.append(rng.dirichlet(np.ones(L)), [0, 0])
    mdp = TabularMDP(*(np.broadcast_to(x, (H, *x.shape)) for x in (P, r)), start)

    def world(people: int) -> Logged:
        card = _well(f"leading-{seed}", mdp, people, dense=dense)
        return Logged(card, mdp, np.broadcast_to(practice, mdp.shape))

    return world


# how many worlds of one step are drawn, of more kinds, and of many steps
CONTEXTS, OTHERS, LASTING = 80, 50, 60
WORLDS = {
    "clinicians": clinicians,
    "retention": retention,
    "lake": lake,
    **{f"clinicians{k}": binned(k) for k in (16, 64, 256)},
    **{f"chain{k}": MadeUp(k) for k in range(1, 7)},
    # made after all constants were chosen: no figure of theirs decided anything
    "ward": MadeUp(21, states=200, actions=8, steps=15),
    "ward_greedy": MadeUp(21, states=200, actions=8, steps=15, warmth=0.02),
    "school": MadeUp(22, states=400, actions=5, steps=12, dense=True),
    "school_greedy": MadeUp(22, states=400, actions=5, steps=12, dense=True, warmth=0.02),
    "depot": MadeUp(23, states=1000, steps=20, told=False, far=0.5),
    "season": MadeUp(24, states=300, actions=6, steps=16, drift=1.0),
    "turning": MadeUp(24, states=300, actions=6, steps=16, drift=1.0, turns=True),
    "inert": MadeUp(25, states=250, actions=6, inert=True),
    "short": MadeUp(26, states=200, actions=5, steps=5, dense=True, warmth=0.02),
    "long": MadeUp(27, states=500, steps=40),
    # few states, as most people's first cards have
    "office": MadeUp(28, states=4, actions=3, steps=6, dense=True, told=False),
    "course": MadeUp(30, states=16, actions=5, steps=8, warmth=0.05),
    "pair": MadeUp(31, 2, 2, 3, dense=True, told=False),
    **{f"contexts{k}": contexts(1000 + k) for k in range(CONTEXTS)},
    **{f"contexts_inert{k}": contexts(2000 + k, inert=True) for k in range(OTHERS)},
    **{f"contexts_apart{k}": contexts(3000 + k, per_step=True) for k in range(OTHERS)},
    **{f"leading{k}": leading(7000 + k, (0.02, 0.5)) for k in range(OTHERS)},
    **{f"staying{k}": leading(8000 + k, (0.5, 1.0)) for k in range(OTHERS)},
    **{f"lasting{k}": lasting(4000 + k) for k in range(LASTING)},
    **{f"lasting_inert{k}": lasting(5000 + k, inert=True) for k in range(LASTING)},
}
