"""Deployments as Prefect's own functions make and read them: checked parameters, YAML.  No server is asked."""

from pathlib import Path

import pytest
import yaml
from prefect import Flow
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.exceptions import ParameterTypeError, SignatureMismatchError
from prefect.utilities.importtools import import_object

from flows.server.deployments import FLOWS, nightly

ROOT = Path(__file__).resolve().parents[2]


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
