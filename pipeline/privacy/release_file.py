"""A release on disk: ``release.parquet`` (the noisy integers) and ``release.json`` (what they are) (design §5.3)."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.privacy.release import Mechanism, Release

_AXES = {
    "n_0": ("state",),
    "n_sa": ("step", "state", "action"),
    "n_sas": ("step", "state", "action", "next_state"),
    "r_sa": ("step", "state", "action"),
}


def write_release(release: Release, folder: Path) -> str:
    """Write both files into an existing folder and return the sha256 of ``release.parquet``."""
    pieces: list[pa.Table] = []
    for m in release.mechanisms:
        table = release.tables[m.table]
        index = dict(zip(_AXES[m.table], np.indices(table.shape, dtype=np.int32).reshape(table.ndim, -1), strict=True))
        columns: dict[str, Any] = {"table": pa.array([m.table] * table.size, pa.string())}
        for axis in ("step", "state", "action", "next_state"):
            columns[axis] = pa.array(index[axis]) if axis in index else pa.nulls(table.size, pa.int32())
        columns["value"] = pa.array(table.reshape(-1))
        pieces.append(pa.table(columns))
    path = folder / "release.parquet"
    pq.write_table(pa.concat_tables(pieces), path, compression="zstd")
    (folder / "release.json").write_text(json.dumps(describe(release), indent=2, ensure_ascii=False) + "\n")
    return sha256_file(path)


def read_release(folder: Path) -> Release:
    """Read what :func:`write_release` wrote.

    Raises
    ------
    ValueError
        If the files are missing or do not fit each other.
    """
    try:
        facts = json.loads((folder / "release.json").read_text())
        rows = pq.read_table(folder / "release.parquet")
        mechanisms = tuple(mechanism_from(m) for m in facts["mechanisms"])
        name = rows["table"].to_numpy(zero_copy_only=False)
        value: NDArray[np.int64] = rows["value"].to_numpy()
        tables = {m.table: value[name == m.table].reshape(m.shape) for m in mechanisms}
    except (OSError, KeyError, ValueError, pa.ArrowInvalid) as e:
        raise ValueError(f"{folder} holds no readable release ({type(e).__name__})") from e
    keys = ("dataset", "data_kind", "dynamics", "noise", "sampler", "trust_model", "relation")
    return Release(mechanisms=mechanisms, tables=tables, **{k: facts[k] for k in keys})


def describe(release: Release) -> dict[str, Any]:
    """Everything about a release but its numbers."""
    return {
        "schema_version": 1,
        "dataset": release.dataset,
        "data_kind": release.data_kind,
        "dynamics": release.dynamics,
        "trust_model": release.trust_model,
        "relation": release.relation,
        "noise": release.noise,
        "sampler": release.sampler,
        "mechanisms": [describe_mechanism(m) for m in release.mechanisms],
    }


def describe_mechanism(m: Mechanism) -> dict[str, Any]:
    """One mechanism as JSON; exact fractions as text.  ``delta_slack`` stands there only where it is not 0."""
    slack = {"delta_slack": str(m.delta_slack)} if m.delta_slack else {}
    return {
        "name": m.name,
        "table": m.table,
        "shape": list(m.shape),
        "cells": m.cells,
        "unit": m.unit,
        "l2_squared": m.l2_squared,
        "l1": m.l1,
        "sensitivity": (m.l1 if m.scale is not None else m.l2_squared**0.5),
        "sensitivity_rule": m.rule,
        "variance": m.variance,
        "laplace_scale": None if m.scale is None else str(m.scale),
        "scale": float(m.scale) if m.scale is not None else m.standard_deviation,
        "rho": None if m.rho is None else float(m.rho),
        "rho_exact": None if m.rho is None else str(m.rho),
        "epsilon": None if m.epsilon is None else float(m.epsilon),
        **slack,
    }


def mechanism_from(facts: dict[str, Any]) -> Mechanism:
    """The mechanism that :func:`describe_mechanism` described."""
    scale = facts["laplace_scale"]
    return Mechanism(
        table=facts["table"],
        shape=tuple(facts["shape"]),
        unit=facts["unit"],
        l2_squared=facts["l2_squared"],
        l1=facts["l1"],
        rule=facts["sensitivity_rule"],
        variance=facts["variance"],
        scale=None if scale is None else Fraction(scale),
        delta_slack=Fraction(facts.get("delta_slack", "0")),
    )


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
