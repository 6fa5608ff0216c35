"""Where the files name no people, everything that is promised says what is protected instead."""

from __future__ import annotations

import json

import pytest

from flows.config.recipe import Setting, check_numbered
from flows.verbs import summary
from pipeline.facts.answers import RunAnswer
from pipeline.ledger.certificate import Route, assumptions
from reticent import CardError, load_recipe
from tests.campaigns.bad_input import toml
from tests.jobs import home_at, ingest_job, run_job
from tests.logs.layouts import LOG, card_of, cards, write_minari_hdf5

RECIPE = '[recipe]\nname = "lake"\ncard = "card.toml"\nagent = "dp-apvi"\n\n[privacy]\nrho = 0.5\n'


@pytest.mark.slow
def test_an_episode_that_is_the_unit_is_no_person_in_any_page(tmp_path):
    home, folder = home_at(tmp_path / "home"), tmp_path / "lake"
    write_minari_hdf5(folder, LOG * 50)
    (folder / "card.toml").write_text(toml(cards()["Minari in HDF5"]), encoding="utf-8")
    (folder / "private.toml").write_text(RECIPE, encoding="utf-8")
    assert ingest_job(str(folder), home)["users"] == 200
    result = run_job(str(folder / "private.toml"), home)
    assert "replace one episode" in str(summary(RunAnswer.model_validate(result))[0])
    told = json.loads((home.runs / result["run"] / "certificate.json").read_text(encoding="utf-8"))
    text = json.dumps(told, ensure_ascii=False)
    assert "Replacing one episode, meaning all rows of one episode (at most 4 steps; somebody with several" in text
    assert "the files name no people: one episode is protected" in text and "identifies a person" not in text


def real(folder, layout, **columns):
    values = cards()[layout]
    source = values["source"] | {"columns": values["source"]["columns"] | {"user_id": "episode"} | columns}
    unit, budget = {"user": source["columns"]["user_id"], "users_public": 4000}, values["budget"] | {"ledger": "l.db"}
    return card_of(values | {"kind": "real", "source": source, "unit": unit, "budget": budget}, folder)


def test_a_record_numbered_by_order_is_replaced_and_never_gone(tmp_path):
    with pytest.raises(ValueError, match="name a column of user ids"):
        real(tmp_path, "Flat transitions")
    text = " ".join(assumptions(real(tmp_path, "RLDS"), [], Route("hand")))
    assert "one id's rows may be any other" in text and "or none" not in text
    named = " ".join(assumptions(real(tmp_path, "Flat transitions", user_id="patient"), [], Route("hand")))
    assert "or none" in named


@pytest.mark.parametrize("extra", ["[nightly]\nnights = 4\nfirst = 2026-01-01\n", "[linear]\nhalves = true\n"])
def test_what_looks_at_a_records_number_needs_ids_of_its_own(extra, tmp_path):
    agent = "dp-apvi" if "nightly" in extra else "dp-vapvi"
    values = real(tmp_path, "RLDS")
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE.replace("dp-apvi", agent) + "\n" + extra, encoding="utf-8")
    with pytest.raises(CardError, match=r"r.toml: \[.*needs ids that no other record changes"):
        check_numbered(Setting(load_recipe(recipe), values, home_at(tmp_path / "home")))
    made_up = values.model_copy(update={"kind": "synthetic"})
    check_numbered(Setting(load_recipe(recipe), made_up, home_at(tmp_path / "home")))
