"""Logs that nobody prepared go from file to page as they are, and the page says what was planted in them."""

from __future__ import annotations

import pytest

from tests.campaigns.strangers import PEOPLE, STRANGERS, hour


@pytest.mark.slow
@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda s: s.name)
def test_a_messy_log_goes_from_file_to_page_without_an_edit(stranger, tmp_path):
    told = hour(stranger, tmp_path)
    draft, run = told["draft"], told["run"]
    assert told["allowed"] and told["right"]
    assert told["people"] < 0.02 * PEOPLE and set(told["set_aside"]) <= {
        "malformed_line",
        "null_user",
        "repeated_row",
        "unknown_label",
        "beyond_gap",
        "superseded",
        "closing_row",
        "after_end",
        "over_cap",
    }
    # the id that protects most is taken, and the other one is named
    assert f'user = "{stranger.people[0]}"' in draft.toml
    for other in stranger.people[1:]:
        assert any(repr(other) in note and "protected as several" in note for note in draft.notes)
    assert run.verify().vouched and told["verdict"] != "not_evaluated"
    assert any("reticent draft" in line for line in run.certificate.assumptions)
