"""Who meets a policy: a share of the people, by a hash that ``policy.json`` carries; the others keep current practice.

Whoever serves the policy needs no list of people: the same person meets the same policy whenever they come, and another
policy is met by others.  Nothing of it concerns what is released.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from pipeline.learners.policy_files import PolicyFiles
from pipeline.ledger.chain import Body, canonical

RULE = (
    "sha256 of ID:PERSON in UTF-8; who has its first 8 bytes, as a big-endian integer, below share * 2^64 meets this "
    "policy, all others keep current practice"
)
PRACTICE = "keep current practice: this person does not meet the policy"


def shared(files: PolicyFiles, share: float) -> PolicyFiles:
    """The files of a policy that says who meets it."""
    told = hashlib.sha256(canonical([files.labels, files.digest]).encode()).hexdigest()[:16]
    return replace(files, labels={**files.labels, "play": {"id": told, "share": share, "rule": RULE}})


def meets(play: Body, person: str) -> bool:
    """Whether a person meets the policy."""
    drawn = int.from_bytes(hashlib.sha256(f"{play['id']}:{person}".encode()).digest()[:8], "big")
    return drawn < play["share"] * 2**64
