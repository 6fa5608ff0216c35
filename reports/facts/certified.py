"""``certificate.json``: what can be checked of a run without the data."""

from __future__ import annotations

from typing import Literal

from reports.facts.part import Number, Part
from reports.facts.promise import CounterFacts, GateFacts, Guarantee, Joint, MechanismFacts


class Implementation(Part):
    """Why the program keeps what the mathematics promises: the algorithm, its arithmetic, and what leaks beside it."""

    algorithm: str
    floating_point: str
    side_channels: str


class Stewardship(Part):
    """How the data was collected, who can reach it, and the hash of what was registered of it."""

    collection: str
    access: str
    domain_hash: str


class RegistryEntry(Part):
    """The promise under the names of the proposed registry of differential-privacy deployments."""

    product: str
    unit_of_privacy: str
    flavour: str
    epsilon: Number | None
    delta: Number | None
    rho: Number | None
    model: str
    relation: str
    accounting: str
    implementation: str


class Charged(Part):
    """The COMMIT that a certificate rests on, and where the lineage stood then.

    Parameters
    ----------
    entry, hash, at
        Its number, hash and time.
    run_key
        Hex key of the release.
    spent_rho_exact, spent_rho
        All that was spent so far: a fraction as text, and a float.
    """

    entry: int
    hash: str
    at: str
    run_key: str
    spent_rho_exact: str
    spent_rho: Number


class Certificate(Part):
    """The promise on top, then the program, then the data (the pyramid of NIST SP 800-226).

    Parameters
    ----------
    schema_version, dataset
        1, and the lineage.
    guarantee, rho_exact
        In numbers and words, and the exact loss as a fraction; None where there is no noise.
    mechanisms, gate, joint, counter, composition
        What was drawn, what it rests on, and how the losses of all tables become one.
    implementation, data, assumptions, not_covered
        What else must hold for it to be true, in sentences that hold on the route of this run.
    registry
        The same facts for a public registry.
    ledger
        None where nothing was charged.
    sha256
        Of ``release``, ``policy`` and ``labels`` (policy.json); never of data.
    """

    schema_version: Literal[1]
    dataset: str
    guarantee: Guarantee
    rho_exact: str | None
    mechanisms: list[MechanismFacts]
    gate: GateFacts | None = None
    joint: Joint | None = None
    counter: CounterFacts | None = None
    composition: str
    implementation: Implementation
    data: Stewardship
    assumptions: list[str]
    not_covered: list[str]
    registry: RegistryEntry
    ledger: Charged | None
    sha256: dict[str, str]
