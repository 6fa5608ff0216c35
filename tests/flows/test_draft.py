"""A card proposed from a messy log: what it finds, that the look is told, and that counts stay in the terminal."""

from __future__ import annotations

import json
import random
import tomllib
from datetime import date, timedelta
from pathlib import Path

import polars as pl
import pytest

import reticent
from tests.flows.shop import lay_out
from tests.flows.verb import invoke

DRAW = 11


def clinic(people: int = 400) -> list[str]:
    """Visits on dates, labels with spaces and accents, rewards in cents, missing pressures, two cards a patient."""
    draw, lines = random.Random(DRAW), ["patient_id,clinic card,visit date,Blood pressure,traitement,cents"]
    for who in range(people):
        day = date(2025, 1, 1)
        for visit in range(draw.randint(2, 4)):
            day += timedelta(days=draw.randint(20, 40))
            pressure = "" if draw.random() < 0.02 else round(draw.gauss(130, 20))
            drug = draw.choice(["Bêta bloquant", "bêta bloquant ", "Régime sans sel", "rien"])
            paid = draw.choice([0, 250, 1250, 975])
            lines.append(f"p{who},c{who}-{draw.randint(0, 1)},{day},{pressure},{drug},{paid}")
            if who in (3, 30, 300) and not visit:
                lines.append("torn,line")
    return lines


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(clinic()) + "\n")
    return path


def test_a_messy_log_becomes_a_card_that_ingests_it(log, tmp_path):
    draft = reticent.draft(log, user=["clinic card", "patient_id"])
    values = tomllib.loads(draft.toml)
    assert values["unit"]["user"] == "patient_id" and values["unit"]["episodes_per_user"] == 1
    assert values["source"]["order_by"] == "visit date" and "step" not in values["source"]["columns"]
    assert values["domain"]["horizon"] == 4 and values["domain"]["states"]["other"]
    assert all(edge % 5 == 0 for edge in values["domain"]["states"]["bins"]["edges"])
    assert values["domain"]["actions"]["labels"]["Bêta bloquant"] == ["Bêta bloquant", "bêta bloquant "]
    assert (values["reward"]["range"], values["reward"]["steps"]) == ([0.0, 1250.0], 50)
    assert any("3 lines" in note for note in draft.notes)
    assert any("'clinic card'" in note and "protected as several" in note for note in draft.notes)
    card = reticent.load_card(draft.save(tmp_path / "card.toml"))
    store = reticent.Store(tmp_path / "home")
    store.register(card)
    answer = store.ingest(card)
    assert answer["users"] == 400 and set(answer["quarantined"]) <= {"malformed_line", "unknown_label"}


def test_a_frame_is_drafted_as_its_file_is(log):
    from_file = reticent.draft(log, name="same").toml
    rows = [line.split(",") for line in clinic() if line.count(",") > 1]
    frame = pl.DataFrame(rows[1:], schema=rows[0], orient="row")
    assert reticent.draft(frame, name="same").toml == from_file.replace("visits.csv", "frame.parquet")


def test_no_count_stands_in_the_card(log):
    draft = reticent.draft(log)
    counted = {"1,", "400 counted"} | {word for _, seen in draft.seen for word in seen.split() if word[:1].isdigit()}
    comments = " ".join(line.partition("#")[2] for line in draft.toml.splitlines())
    for word in counted - {"1", "5", "4", "2", "25"}:
        assert word not in comments.split(), word


@pytest.mark.parametrize(("first", "lacking"), [(0, False), (1, False), (1, True)])
def test_steps_that_are_counted_keep_their_column(tmp_path, first, lacking):
    draw = random.Random(DRAW)
    rows = [
        {"student": f"s{i}", "week": first + h, "level": draw.choice("ab"), "hint": draw.choice("xy"), "score": 1.0}
        for i in range(200)
        for h in range(4)
        if not (lacking and h == 2 and i % 9 == 0)
    ]
    values = tomllib.loads(reticent.draft(pl.DataFrame(rows)).toml)
    source = values["source"]
    assert source["columns"]["step"] == "week" and "order_by" not in source
    assert source.get("first_step", 0) == first and source.get("gap") == ("cut" if lacking else None)


def test_register_enters_the_look_once_and_the_certificate_names_it(tmp_path):
    shop = lay_out(tmp_path / "shop", kind="real", ledger="books.db")
    with (shop / "card.toml").open("a") as file:
        file.write('[provenance]\ndrafted = "2026-11-22"\nfrom_data = ["domain.horizon"]\n')
    store = reticent.Store(tmp_path / "home")
    store.register(shop)
    store.register(shop)
    store.ingest(shop)
    run = reticent.run(shop / "private.toml", store=store)
    told = [line for line in run.certificate.assumptions if "reticent draft" in line]
    assert told == [
        "the card was proposed from this log with `reticent draft` (entry 2): domain.horizon of it may depend on "
        "people's records, which no budget covers"
    ]
    assert run.verify().ok and run.verify().vouched
    shown = invoke("ledger", "show", "--card", shop, "--home", tmp_path / "home")
    assert shown.stdout.count("the log, to draft the card") == 1


def test_a_card_that_was_not_drafted_has_the_digest_it_had(tmp_path):
    plain = reticent.load_card(lay_out(tmp_path / "shop") / "card.toml")
    assert "provenance" not in plain.model_dump(exclude_defaults=True)


def test_the_shell_prints_the_card_and_keeps_what_was_seen_apart(log, tmp_path):
    done = invoke("draft", log, "--user", "patient_id")
    assert done.exit_code == 0 and tomllib.loads(done.stdout)["unit"]["user"] == "patient_id"
    assert "400" in done.stderr and "400 " not in done.stdout.replace("users_public = 400", "")
    told = json.loads(invoke("draft", log, "--to", tmp_path / "c.toml", "--json").stdout)
    assert Path(told["file"]).read_text() == told["card"]
    with pytest.raises(reticent.CardError, match="exists"):
        invoke("draft", log, "--to", tmp_path / "c.toml", catch_exceptions=False)


@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        ({"a": [1, 2], "b": [1, 2]}, {}, "name it with --user COLUMN"),
        ({"user": [1, 2], "b": [1, 1]}, {}, "cannot tell which column is the action"),
        ({"user": [1, 2], "b": [1, 2]}, {"state": "c"}, "no column 'c'; the log has: user, b"),
    ],
)
def test_what_cannot_be_told_is_asked_for(frame, options, said):
    with pytest.raises(reticent.CardError, match=said):
        reticent.draft(pl.DataFrame(frame), **options)


def test_files_that_are_no_tables_are_refused(tmp_path):
    with pytest.raises(reticent.CardError, match="is no file"):
        reticent.draft(tmp_path / "none.csv")
    (tmp_path / "a.csv").write_text("a;b\n1;2\n")
    with pytest.raises(reticent.LogError, match="separated by ';'"):
        reticent.draft(tmp_path / "a.csv")
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(reticent.CardError, match="not a table"):
        reticent.draft([tmp_path / "a.xlsx"])


def test_rows_that_nothing_orders_are_said():
    rows = [{"user": f"u{i % 50}", "level": "ab"[i % 2], "offer": "xy"[i % 3 > 1], "score": 1.0} for i in range(200)]
    assert any("--order COLUMN" in note for note in reticent.draft(pl.DataFrame(rows)).notes)


def test_a_date_orders_whatever_it_is_called_and_a_part_of_a_word_does_not():
    rows = [
        {
            "customer": f"c{i}",
            "notes": str(i),
            "recorded": f"2026-01-{1 + h:02}",
            "mood": "ab"[h % 2],
            "offer": "xy"[i % 2],
        }
        for i in range(60)
        for h in range(3)
    ]
    assert tomllib.loads(reticent.draft(pl.DataFrame(rows)).toml)["source"]["order_by"] == "recorded"


def test_torn_lines_of_ndjson_are_set_aside(tmp_path):
    lines = [json.dumps({"user": f"u{i}", "step": 0, "mood": "ab"[i % 2], "offer": "xy"[i % 3 > 1]}) for i in range(99)]
    (tmp_path / "log.ndjson").write_text("\n".join([*lines, '{"user": "u1", "st']) + "\n")
    draft = reticent.draft(tmp_path / "log.ndjson")
    assert any("1 lines" in note for note in draft.notes) and 'user = "user"' in draft.toml
