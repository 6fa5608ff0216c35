"""Exact planning in a known tabular world: backward induction, values and occupancies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.model import TabularMDP
from pipeline.mdp.policy import Policy

Array = NDArray[np.float64]


def _probabilities(policy: Policy | Array) -> Array:
    if not isinstance(policy, Policy):
        return np.asarray(policy, dtype=np.float64)
    if policy.abstains.any():
        raise ValueError("where a policy abstains its value is that of practice; give policy.beside(practice)")
    return policy.probabilities


def optimal_values(mdp: TabularMDP) -> tuple[Array, Array]:
    """Q* ``(H, S, A)`` and V* ``(H+1, S)``, in reward units; ``V[H] = 0``.

    Parameters
    ----------
    mdp
        Shapes ``(H, S, A)``.

    Examples
    --------
    One state, two actions, two steps; the second action pays.

    >>> one = TabularMDP(np.ones((2, 1, 2, 1)), np.array([[[0.0, 1.0]]] * 2), np.ones(1))
    >>> optimal_values(one)[1].ravel()
    array([2., 1., 0.])
    """
    H, S, A = mdp.shape
    Q, V = np.zeros((H, S, A)), np.zeros((H + 1, S))
    for h in reversed(range(H)):
        Q[h] = mdp.rewards[h] + mdp.transitions[h] @ V[h + 1]
        V[h] = Q[h].max(axis=1)
    return Q, V


def policy_values(mdp: TabularMDP, policy: Policy | Array) -> Array:
    """V^π ``(H+1, S)`` of a policy given as a :class:`Policy` or as probabilities ``(H, S, A)``.

    Parameters
    ----------
    mdp
        Shapes ``(H, S, A)``.
    policy
        Probabilities ``(H, S, A)``, bare or as a :class:`Policy`.

    Raises
    ------
    ValueError
        If its shape is another one, or it abstains somewhere.
    """
    H, S, A = mdp.shape
    p = _probabilities(policy)
    if p.shape != (H, S, A):
        raise ValueError(f"policy must be {(H, S, A)}; got {p.shape}")
    V = np.zeros((H + 1, S))
    for h in reversed(range(H)):
        V[h] = (p[h] * (mdp.rewards[h] + mdp.transitions[h] @ V[h + 1])).sum(axis=1)
    return V


def policy_value(mdp: TabularMDP, policy: Policy | Array) -> float:
    """Expected summed reward of a policy from the start distribution.

    Parameters
    ----------
    mdp
        Shapes ``(H, S, A)``.
    policy
        Probabilities ``(H, S, A)``, bare or as a :class:`Policy`.

    Examples
    --------
    >>> one = TabularMDP(np.ones((2, 1, 2, 1)), np.array([[[0.0, 1.0]]] * 2), np.ones(1))
    >>> policy_value(one, np.full((2, 1, 2), 0.5))
    1.0
    """
    return float(mdp.start @ policy_values(mdp, policy)[0])


def occupancies(mdp: TabularMDP, policy: Policy | Array) -> Array:
    """State-action occupancies ``(H, S, A)``: the chance of being in s and taking a at step h.

    Parameters
    ----------
    mdp
        Shapes ``(H, S, A)``.
    policy
        Probabilities ``(H, S, A)``, bare or as a :class:`Policy`.
    """
    H, S, A = mdp.shape
    p, d = _probabilities(policy), np.zeros((H, S, A))
    state = mdp.start
    for h in range(H):
        d[h] = state[:, None] * p[h]
        state = d[h].reshape(-1) @ mdp.transitions[h].reshape(S * A, S)
    return d


def greedy(Q: Array) -> Array:
    """Deterministic policy ``(H, S, A)`` of the first maximiser of ``Q``; exact planning only, ties do no harm.

    Parameters
    ----------
    Q
        ``(H, S, A)`` values of actions.
    """
    p = np.zeros_like(Q)
    np.put_along_axis(p, Q.argmax(axis=-1)[..., None], 1.0, axis=-1)
    return p
