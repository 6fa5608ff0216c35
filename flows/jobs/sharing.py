"""Who meets a policy: a share of the people, by a hash that ``policy.json`` carries; the others keep current practice.

Whoever serves the policy needs no list of people: the same person meets the same policy whenever they come, and another
policy is met by others.  A counter that compares the two releases the returns of either
(:mod:`pipeline.statistics.played`); else nothing of it concerns what is released.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from flows.config.home import Home
from flows.config.setting import Setting
from flows.jobs.promotion import Alias, play_of
from pipeline.learners.policy_files import PolicyFiles
from pipeline.ledger.chain import canonical
from pipeline.statistics.played import Play

RULE = (
    "sha256 of ID:PERSON in UTF-8; who has its first 8 bytes, as a big-endian integer, below share * 2^64 meets this "
    "policy, all others keep current practice"
)
PRACTICE = "keep current practice: this person does not meet the policy"


def shared(files: PolicyFiles, share: float) -> PolicyFiles:
    """The files of a policy that says who meets it."""
    told = hashlib.sha256(canonical([files.labels, files.digest]).encode()).hexdigest()[:16]
    return replace(files, labels={**files.labels, "play": {"id": told, "share": share, "rule": RULE}})


def play_in_use(s: Setting, home: Home) -> Play | None:
    """Who meets the run in use; None where the recipe compares nothing, or no run is in use."""
    if s.recipe.nightly is None or s.recipe.nightly.drift is None or s.recipe.promote is None:
        return None
    run = Alias(home.runs, s.recipe.promote.pointer).now()
    return None if run is None else play_of(home.runs / run)
