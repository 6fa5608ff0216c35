"""Jobs as their verbs print them: the answer of each as plain values."""

from __future__ import annotations

from typing import Any

from flows.jobs.nightly import run_night
from flows.jobs.plan import forecast_quality, plan_recipe
from flows.jobs.run import run_recipe


def run_job(*args: Any, **more: Any) -> dict[str, Any]:
    return run_recipe(*args, **more).model_dump()


def nightly_job(*args: Any, **more: Any) -> dict[str, Any]:
    return run_night(*args, **more).model_dump()


def plan_job(*args: Any, **more: Any) -> dict[str, Any]:
    return plan_recipe(*args, **more).model_dump()


def foresee_job(*args: Any, **more: Any) -> dict[str, Any]:
    return forecast_quality(*args, **more).model_dump()
