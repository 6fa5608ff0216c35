"""Fixtures: small cards built from dictionaries, so that a test shows what it declares."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
# last bits of products of matrices differ between processors: expected values are those of one kernel
if platform.machine() in ("x86_64", "AMD64"):
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

import pytest

from pipeline.declaration.card import Card
from tests.skipping import guard


def pytest_configure(config: pytest.Config) -> None:
    guard(config)


def card_dict(**changes: Any) -> dict[str, Any]:
    """A small synthetic card as plain values; ``changes`` replace whole tables."""
    base: dict[str, Any] = {
        "schema_version": 1,
        "name": "tiny",
        "kind": "synthetic",
        "unit": {"user": "user_id", "episodes_per_user": 1, "users_public": 100},
        "domain": {
            "horizon": 2,
            "states": {"column": "state", "labels": ["x", "y"], "ends": ["end"]},
            "actions": {"column": "action", "labels": ["a", "b"]},
        },
        "reward": {"range": [0.0, 1.0], "steps": 1},
        "source": {
            "files": ["log.csv"],
            "columns": {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"},
        },
        "budget": {"rho": 10.0},
    }
    return base | changes


@pytest.fixture
def make_card(tmp_path: Path) -> Callable[..., Card]:
    """Build a checked card from ``card_dict`` changes; its folder is the test's."""

    def make(**changes: Any) -> Card:
        return Card.model_validate(card_dict(**changes)).placed(tmp_path)

    return make
