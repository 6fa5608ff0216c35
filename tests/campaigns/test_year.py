"""Nights of every kind of the year, and that its checks can fail."""

import pipeline.transaction.continual_step
from pipeline.logs.aggregate import count_new
from tests.campaigns import year
from tests.campaigns.changing_year import CHANGES, EVERY, PICTURE, WINDOW, picture
from tests.campaigns.rows import read
from tests.campaigns.year import Year


def test_nights_of_every_kind_keep_every_promise_under_one_charge(tmp_path, monkeypatch):
    kinds = {"UNCHANGED": 8, "CORRECTED": 5, "EMPTY": 7, "SKIPPED": 3, "GREEDY": 10}
    for name, every in kinds.items():
        monkeypatch.setattr(year, name, every)
    found = Year(tmp_path, nights=11, people=20, horizon=2).play(look_every=4)
    assert found["broken"] == []
    assert found["outcomes"] == {"drawn": 6, "drawn with nobody new": 2, "skipped": 3, "refused with exit 4": 1}
    assert found["ledger_total"] == found["charged_once"] and found["intents"] == 8


def test_a_year_that_counts_somebody_twice_is_seen(tmp_path, monkeypatch):
    def forgetful(snapshots, card, seen, *others, **more):
        return count_new(snapshots, card, seen[:0], *others, **more)

    monkeypatch.setattr(pipeline.transaction.continual_step, "count_new", forgetful)
    found = Year(tmp_path, nights=4, people=20, horizon=2).play(look_every=4)
    assert "night 4: the leaves are not the people who were new" in found["broken"]


def test_the_changed_world_is_answered_within_two_nights_and_the_picture_shows_it():
    rows = read("changing_year")
    assert PICTURE.read_text(encoding="utf-8") == picture(rows)
    gone = [int(r["night"]) for r in rows if r["outcome"] == "withdrawn"]
    assert len(gone) == 1 and CHANGES <= gone[0] <= CHANGES + EVERY
    kept = [r for r in rows if gone[0] < int(r["night"]) <= gone[0] + WINDOW]
    # the night on which a run is promoted again is itself one of practice
    assert {r["served"] for r in kept} == {"practice"} and {r["outcome"] for r in kept[:-1]} == {"held"}
    assert {r["rho"] for r in rows} == {"1.000"}
