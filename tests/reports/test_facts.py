"""The typed report: what was written is read and written again byte for byte, and its shipped schema is its own."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from pipeline.facts.report import report_schema, shipped_schema
from reticent import CardError, Store
from tests.goldens.places import HOME
from tests.jobs import facts_of
from tests.reports.sample import report_of, sample_facts

# every kind of agent and of counter, as version 0.1 wrote them
OLD = sorted((HOME / "runs").glob("*/report.json"))


def dump(report: Any) -> str:
    return json.dumps(report.model_dump(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


@pytest.mark.parametrize("file", OLD, ids=lambda f: f.parent.name)
def test_a_report_of_version_0_1_is_read_and_written_again_byte_for_byte(file):
    assert dump(facts_of(file.parent)) == file.read_text(encoding="utf-8")
    assert not list(Draft202012Validator(shipped_schema()).iter_errors(json.loads(file.read_text(encoding="utf-8"))))


def test_a_part_that_a_run_does_not_have_is_absent_and_one_that_it_denies_is_null():
    told = sample_facts(truth=None)
    assert "truth" not in json.loads(dump(report_of(told)))
    baseline = report_of({**told, "ledger": None})
    assert baseline.ledger is None and '"ledger": null' in dump(baseline)


TOLD = sample_facts()
UNKNOWN = sample_facts(dataset={"rows": 7})
UNTOLD = TOLD | {"guarantee": {key: value for key, value in TOLD["guarantee"].items() if key != "noise"}}


@pytest.mark.parametrize("told", [UNKNOWN, UNTOLD, TOLD | {"schema_version": 2}], ids=["unknown", "untold", "form"])
def test_model_and_schema_refuse_the_same(told, tmp_path):
    with pytest.raises(ValidationError):
        report_of(told)
    assert list(Draft202012Validator(shipped_schema()).iter_errors(told))
    (tmp_path / "report.json").write_text(json.dumps(told))
    with pytest.raises(CardError, match=r"report\.json is no report"):
        _ = Store(tmp_path).open(tmp_path).facts


def test_the_shipped_schema_is_that_of_the_model():
    assert shipped_schema() == report_schema(), "write it anew: make schema"


def test_every_key_of_the_schema_is_described():
    schema = shipped_schema()
    silent = [
        f"{name}.{key}"
        for name, part in [("Report", schema), *schema["$defs"].items()]
        for key, told in part["properties"].items()
        if not told.get("description") and f"``{key}" not in part["description"]
    ]
    assert not silent
