"""A release on disk: ``release.parquet`` (noisy integers) and ``release.json`` (their description) (design §5.3)."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.arrays import Bools, Integers
from pipeline.privacy.release import Mechanism, Release, Running, ShuffledBits

_COUNTS = {
    "n_0": ("state",),
    "n_sa": ("step", "state", "action"),
    "n_sas": ("step", "state", "action", "next_state"),
    "r_sa": ("step", "state", "action"),
}
_SUMS = {"gram": ("row", "col"), "target": ("row",), "target_squared": ("row",)}
# an adaptive regression releases a table a step and half of the people: gram_D_3 is gram_D of step 3
_CALL = re.compile(r"(?P<label>(?P<kind>gram|target|target_squared)_D'?)_(?P<step>\d+)")
_INDEX = ("step", "state", "action", "next_state")
# the file of an agent that looks at no data
_NOTHING = pa.table({"table": pa.array([], pa.string()), "step": pa.array([], pa.int32())})
# tables that stand beside each other, one row a key: the label, its axes, its columns
_BESIDE = {
    "v": (("step", "state"), ("count", "sum", "value")),
    "q": (("step", "state", "action"), ("count", "sum")),
}


def release_files(release: Release) -> dict[str, bytes]:
    """Content of both files by name."""
    tables = {**release.tables, **release.derived}
    plain = {name: table for name, table in tables.items() if not _beside(name)}
    pieces = [_keyed(label, tables) for label in _BESIDE] if len(plain) < len(tables) else []
    index = _INDEX if all(name in _COUNTS for name in plain) else (*_INDEX, "row", "col")
    pieces += [_columns(name, table, index) for name, table in plain.items()]
    pieces = pieces or [_NOTHING]
    description = json.dumps(describe(release), indent=2, ensure_ascii=False) + "\n"
    out = io.BytesIO()
    # tables of several kinds: a column that a row does not have is null
    pq.write_table(pa.concat_tables(pieces, promote_options="default"), out, compression="zstd")
    return {"release.parquet": out.getvalue(), "release.json": description.encode()}


def _beside(name: str) -> tuple[str, str] | None:
    """Label and column of a table that stands beside others: ``v_count`` is column ``count`` of ``v``."""
    label, _, column = name.partition("_")
    return (label, column) if label in _BESIDE and column in _BESIDE[label][1] else None


def _keyed(label: str, tables: Mapping[str, Integers]) -> pa.Table:
    """All columns of one label, one row a key; nulls where the label has no such axis or column."""
    axes, columns = _BESIDE[label]
    shape = tables[f"{label}_count"].shape
    size = int(np.prod(shape))
    index_of = dict(zip(axes, np.indices(shape, dtype=np.int32).reshape(len(axes), -1), strict=True))
    fields = {"table": pa.array([label] * size, pa.string())}
    for axis in ("step", "state", "action"):
        fields[axis] = pa.array(index_of[axis]) if axis in index_of else pa.nulls(size, pa.int32())
    for column in _BESIDE["v"][1]:
        values = tables.get(f"{label}_{column}") if column in columns else None
        fields[column] = pa.nulls(size, pa.int64()) if values is None else pa.array(values.reshape(-1))
    return pa.table(fields)


def _columns(name: str, table: Integers, index: tuple[str, ...]) -> pa.Table:
    label, step, axes = _place(name, table.ndim)
    index_of = dict(zip(axes, np.indices(table.shape, dtype=np.int32).reshape(table.ndim, -1), strict=True))
    if step is not None:
        index_of["step"] = np.full(table.size, step, dtype=np.int32)
    columns = {"table": pa.array([label] * table.size, pa.string())}
    for axis in index:
        columns[axis] = pa.array(index_of[axis]) if axis in index_of else pa.nulls(table.size, pa.int32())
    return pa.table(columns | {"value": pa.array(table.reshape(-1))})


def _place(name: str, axes: int) -> tuple[str, int | None, tuple[str, ...]]:
    """Label of a table in the file, its step where each step is a table of its own, and its axes."""
    # counts of the people who evaluate have the axes of counts
    if (count_axes := _COUNTS.get(name.removeprefix("b_"))) is not None:
        return name, None, count_axes
    if (call := _CALL.fullmatch(name)) is not None:
        return call["label"], int(call["step"]), _SUMS[call["kind"]]
    # released once for all steps: (H, d, d), or (H, successors and rewards, d); pooled over steps: (d, d) or (d, n)
    return name, None, ("step", "row", "col")[-axes:]


def read_release(folder: Path) -> Release:
    """Read the files of :func:`release_files`.

    Raises ValueError if the files are missing or do not fit each other.
    """
    try:
        facts = json.loads((folder / "release.json").read_text())
        # as a file, not as a dataset, whose modules take longer to load than the file to read
        with pq.ParquetFile(folder / "release.parquet") as file:
            rows = file.read()
        mechanisms = tuple(mechanism_from(m) for m in facts["mechanisms"])
        tables = {m.table: _stored(rows, m.table, m.shape) for m in mechanisms}
        derived = {name: _stored(rows, name, tuple(shape)) for name, shape in facts.get("derived", {}).items()}
        joint = facts.get("joint")
    except (OSError, KeyError, ValueError, pa.ArrowInvalid) as e:
        raise ValueError(f"{folder} holds no readable release ({type(e).__name__})") from e
    keys = ("dataset", "data_kind", "dynamics", "noise", "sampler", "trust_model", "relation")
    rho = None if joint is None else joint["rho_exact"]
    return Release(
        **{k: facts[k] for k in keys},
        mechanisms=mechanisms,
        tables=tables,
        joint_rho=None if rho is None else Fraction(rho),
        joint=None if joint is None else {k: v for k, v in joint.items() if k != "rho_exact"},
        counter=facts.get("counter"),
        derived=derived,
        look=facts.get("look"),
    )


def _stored(rows: pa.Table, name: str, shape: tuple[int, ...]) -> Integers:
    """One table of the file."""
    label, step, _ = _place(name, len(shape))
    label, column = _beside(name) or (label, "value")
    mask: Bools = rows["table"].to_numpy(zero_copy_only=False) == label
    if step is not None:
        mask = mask & (rows["step"].to_numpy(zero_copy_only=False) == step)
    numbers = rows[column]
    values = numbers.filter(pa.array(mask)).to_numpy() if numbers.null_count else numbers.to_numpy()[mask]
    return values.reshape(shape)


def describe(release: Release) -> dict[str, object]:
    """Contents of ``release.json``: everything about a release but its numbers."""
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
        **({} if release.joint is None else {"joint": describe_joint(release)}),
        **({} if release.counter is None else {"counter": dict(release.counter)}),
        **({"derived": {name: list(x.shape) for name, x in release.derived.items()}} if release.derived else {}),
        **({} if release.look is None else {"look": release.look}),
    }


def describe_joint(release: Release) -> dict[str, object]:
    """The exact joint cost of a release, ``rho_exact`` as a fraction in text, and the facts that the bound rests on."""
    rho = release.joint_rho
    return {"rho_exact": None if rho is None else str(rho), **(release.joint or {})}


def describe_mechanism(m: Mechanism) -> dict[str, object]:
    """One mechanism as JSON, for ``release.json``, the ledger and a run's key; exact fractions as text.

    ``delta_slack`` stands there only where it is not 0, ``running`` only where the table is a running sum, ``shuffled``
    only where it is made of shuffled messages.
    """
    slack = {"delta_slack": str(m.delta_slack)} if m.delta_slack else {}
    running = {} if m.running is None else {"running": asdict(m.running)}
    shuffled = {} if m.shuffled is None else {"shuffled": asdict(m.shuffled)}
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
        **running,
        **shuffled,
    }


def mechanism_from(facts: Mapping[str, Any]) -> Mechanism:
    """The mechanism that :func:`describe_mechanism` described."""
    scale, running, shuffled = facts["laplace_scale"], facts.get("running"), facts.get("shuffled")
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
        running=None if running is None else Running(**running),
        shuffled=None if shuffled is None else ShuffledBits(**shuffled),
    )


def file_of(kind: str) -> str:
    """File of a run's folder that a certificate digests: a table, or ``policy.json`` for ``labels``."""
    return "policy.json" if kind == "labels" else f"{kind}.parquet"


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
