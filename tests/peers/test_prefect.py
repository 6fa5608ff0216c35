"""What Prefect's guides show of deployments, done with our flows: schedules, tags, defaults, YAML, checked parameters.

The ways are those of Prefect's pages "Run flows in local processes", "Define deployments with YAML" and "Run
deployments" (Apache 2.0), done with Prefect's own functions; none of its code is here.  No server is asked:
``tests/flows/service.py`` starts one where that matters.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from prefect import Flow
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.exceptions import ParameterTypeError, SignatureMismatchError
from prefect.schedules import Cron
from prefect.utilities.importtools import import_object

from flows.server.deployments import FLOWS, nightly

ROOT = Path(__file__).resolve().parents[2]
EACH = pytest.mark.parametrize("flow", FLOWS, ids=lambda f: f.name)


@EACH
@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"interval": 60}, IntervalSchedule),
        ({"interval": timedelta(minutes=10)}, IntervalSchedule),
        ({"cron": "*/1 * * * *"}, CronSchedule),
        ({"rrule": "FREQ=DAILY;COUNT=3"}, RRuleSchedule),
        ({"schedule": Cron("0 9 * * 1-5", timezone="Europe/Paris")}, CronSchedule),
    ],
)
def test_every_kind_of_schedule_is_taken(flow, asked, kind):
    made = flow.to_deployment(name="first", tags=["onboarding"], **asked)
    assert [type(s.schedule) for s in made.schedules] == [kind] and made.tags == ["onboarding"]
    assert made.flow_name == flow.name and made.enforce_parameter_schema


@EACH
def test_several_schedules_and_a_paused_one(flow):
    made = flow.to_deployment(name="several", schedules=[Cron("0 1 * * *"), Cron("0 2 * * *")], paused=True)
    assert len(made.schedules) == 2 and made.paused


@EACH
def test_a_limit_of_runs_and_a_description_are_kept(flow):
    made = flow.to_deployment(name="one", concurrency_limit=1, description="one at a time", version="7")
    assert (made.concurrency_limit, made.description, made.version) == (1, "one at a time", "7")
    assert flow.to_deployment(name="said").description == flow.description


def test_defaults_are_checked_by_the_flows_own_schema():
    made = nightly.to_deployment(name="demo", parameters={"recipe": "demo"})
    assert made.parameters == {"recipe": "demo"}
    assert set(made._parameter_openapi_schema.properties) == {"recipe", "home"}
    assert made._parameter_openapi_schema.required == ["recipe"]
    for wrong in ({"recipe": "demo", "goodbye": True}, {"recipe": 7}, {}):
        with pytest.raises((ParameterTypeError, SignatureMismatchError)):
            nightly.validate_parameters(wrong)


def test_the_yaml_is_what_prefects_own_reader_takes_and_its_entrypoints_are_flows():
    text = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    model = PrefectYamlModel.model_validate(text)
    assert {d.name for d in model.deployments} == {f.name for f in FLOWS}
    for d in model.deployments:
        assert isinstance(found := import_object(d.entrypoint), Flow) and found.name == d.name
