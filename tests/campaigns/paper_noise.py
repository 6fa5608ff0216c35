"""How much noise the papers' printed scales waste or lack, at ε = 1, δ = 10⁻⁵ (paper 003: ρ = 1).

    python -P -m tests.campaigns.paper_noise

``true`` is recomputed from the printed scales, replace-one, with V in [0, H - h]; the attacked pair spends ``pair`` of
it, exactly.  ``waste`` is asked over true: in rho the factor by which every variance could shrink at the guarantee
asked for, in epsilon about its square root; below 1 the noise is too small.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from pipeline.audits.regressions import linear_target
from pipeline.audits.sums import sums_target
from pipeline.audits.users import batch_target
from pipeline.mdp.features import FeatureMap
from pipeline.privacy.budget import rho_from_epsilon
from pipeline.privacy.losses import Trust
from pipeline.statistics.ask import Ask
from pipeline.statistics.batch_counts import BatchLayout
from pipeline.statistics.batch_privatizers import BatchPrivatizer
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.lq_message import LqMessage
from pipeline.statistics.mixture_message import Message

DELTA = 1e-5
ASKED = rho_from_epsilon(1.0, DELTA)
PRINTED = Ask(epsilon=1.0, delta=DELTA, calibration="paper")


def lines() -> Iterator[tuple[str, str, float, float, float]]:
    """What, unit, asked, true, share of the true loss that the attacked pair spends."""
    for H in (5, 20):
        message = Message(2, 1, 1.0, tuple(float(H - h) for h in range(1, H)), float(H), unit=False)
        for what, kind, leaves in (("000, tree over 1 024 episodes", "plain", 1024), ("001, one message", None, 1)):
            a = sums_target(message, PRINTED, kind, leaves=leaves)
            yield f"{what}, H = {H}, features that keep the norm bound", "rho", ASKED, float(a.claimed_rho), a.attained
    for gamma in (0.1, 1.0):
        a = sums_target(LqMessage(2, 1, 10, gamma), PRINTED, "plain", leaves=1023)
        yield f"004, tree over 1 023 episodes, H = 10, γ = {gamma:g}", "rho", ASKED, float(a.claimed_rho), a.attained
    for H in (2, 5, 10):
        layout = BatchLayout((H, 2, 1), lean=False, rewards=True, ends=False)
        a = batch_target(layout, 10**6, BatchPrivatizer(Trust.SHUFFLE, 1.0, DELTA, "paper", H))
        yield f"002, a batch of 10⁶ users, H = {H}", "epsilon", 1.0, float(a.claimed_epsilon or 0), a.attained
    features = FeatureMap(np.array([[[8, 0]], [[0, 8]], [[-8, 0]]], dtype=np.int64), 64, Fraction(1, 64))
    for split in (True, False):
        domain = LinearDomain("paper", "synthetic", 20, 1000, can_end=True)
        terms = LinearTerms(Ask(Fraction(1), calibration="paper"), variant="paper", halves=split)
        a = linear_target(LinearPlan(domain, terms, features))
        words = "halves" if split else "the same data twice"
        yield f"003, DP-VAPVI, {words}, H = 20, ‖φ‖ = 1", "rho", 1.0, float(a.claimed_rho), a.attained


def main() -> None:
    print(f"{'printed noise':72} {'in':>8} {'asked':>9} {'true':>9} {'waste':>8} {'pair':>6}")
    for what, unit, asked, true, pair in lines():
        print(f"{what:72} {unit:>8} {asked:>9.4g} {true:>9.4g} {asked / true:>8.3g} {pair:>6.3f}")


if __name__ == "__main__":
    main()
