"""A card proposed from a messy log: what it finds, that the look is told, and that counts stay in the terminal.

Long as its subject is: a few lines for each way in which logs are untidy.
"""

import json
import random
import re
import shutil
import tomllib
from datetime import date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import reticent
from flows import verbs
from pipeline.learners.one_step_learning import CONFIRMED
from pipeline.ledger.database import Page
from tests.flows.shop import change, lay_out
from tests.flows.verb import answer, invoke, refusal

DRAW = 11


def clinic() -> list[str]:
    """Visits on dates, labels with spaces and accents, rewards in cents, missing pressures, two cards a patient."""
    draw, lines = random.Random(DRAW), ["patient_id,clinic card,visit date,Blood pressure,traitement,cents"]
    for who in range(400):
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


def proposed(log: Any, **options: Any) -> tuple[reticent.Draft, dict[str, Any]]:
    """What is proposed, and the values of its card."""
    draft = reticent.draft(log, **options)
    return draft, tomllib.loads(draft.toml)


def told_of(log: Any, **options: Any) -> tuple[dict[str, Any], str]:
    """Values of the proposed card, and its notes, one a line."""
    draft, values = proposed(log, **options)
    return values, "\n".join(draft.notes)


def refuses(match: str, log: Any, **options: Any) -> None:
    with pytest.raises(reticent.CardError, match=match):
        reticent.draft(log, **options)


def ingested(folder: Path, draft: reticent.Draft, log: Any = None) -> dict[str, Any]:
    """What ingest says of a log, or of the card's own files, under a proposed card."""
    card, store = reticent.load_card(draft.save(folder)), reticent.Store(folder / "home")
    store.register(card)
    return store.ingest(card, log)


def stored(answer: dict[str, Any]) -> pl.DataFrame:
    return pl.read_parquet(sorted(Path(answer["folder"]).glob("part-*.parquet")))


def lines_in(folder: Path, *lines: str, name: str = "visits.csv") -> Path:
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def weeks(people: int, steps: int, **cells: Any) -> pl.DataFrame:
    """A row of each week of each user, with these cells of (user, week)."""
    rows = [(i, h, *(make(i, h) for make in cells.values())) for i in range(people) for h in range(steps)]
    return pl.DataFrame(rows, orient="row", schema=["user", "week", *cells])


def ab(i: int, h: int) -> str:
    return "ab"[h % 2]


def xy(i: int, h: int) -> str:
    return "xy"[i % 2]


def studied(folder: Path, header: str, lines: list[str], action: str) -> str:
    """The page of a run of what is proposed for a log, by the verbs."""
    reticent.draft(lines_in(folder, header, *lines, name="log.csv"), action=action).save(folder)
    for verb, file in (("register", "card.toml"), ("ingest", "card.toml"), ("run", "recipe.toml")):
        answer(folder / "home", verb, folder / file)
    [page] = (folder / "home").rglob("report.md")
    return page.read_text()


@pytest.fixture
def log(tmp_path) -> Path:
    return lines_in(tmp_path, *clinic())


def test_a_messy_log_becomes_a_card_that_ingests_it(log, tmp_path):
    draft, values = proposed(log, user=["clinic card", "patient_id"], last_row="ends")
    assert values["unit"]["user"] == "patient_id" and values["unit"]["episodes_per_user"] == 1
    assert values["source"]["order_by"] == "visit date" and "step" not in values["source"]["columns"]
    assert values["domain"]["horizon"] == 4 and values["domain"]["states"]["other"]
    assert all(edge % 5 == 0 for edge in values["domain"]["states"]["bins"]["edges"])
    assert values["domain"]["actions"]["labels"] == ["Bêta bloquant", "Régime sans sel", "rien"]
    assert values["domain"]["actions"]["same_as"] == {"bêta bloquant ": "Bêta bloquant"}
    assert (values["reward"]["range"], values["reward"]["steps"]) == ([0.0, 1250.0], 50)
    assert any("3 lines" in note for note in draft.notes)
    assert any("'clinic card'" in note and "protected as several" in note for note in draft.notes)
    answer = ingested(tmp_path, draft)
    assert answer["users"] == 400 and set(answer["quarantined"]) <= {"malformed_line", "unknown_label"}


def test_a_frame_is_drafted_as_its_file_is(log):
    from_file = reticent.draft(log, name="same", last_row="ends").toml
    rows = [line.split(",") for line in clinic() if line.count(",") > 1]
    frame = pl.DataFrame(rows[1:], schema=rows[0], orient="row")
    assert reticent.draft(frame, name="same", last_row="ends").toml == from_file.replace("visits.csv", "frame.parquet")


def test_no_count_stands_in_the_card(log):
    draft = reticent.draft(log, last_row="ends")
    counted = {"1,", "400 counted"} | {word for _, seen in draft.seen for word in seen.split() if word[:1].isdigit()}
    comments = " ".join(line.partition("#")[2] for line in draft.toml.splitlines())
    for word in counted - {"1", "5", "4", "2", "25"}:
        assert word not in comments.split(), word


@pytest.mark.parametrize(("first", "lacking"), [(0, False), (1, True)])
def test_steps_that_are_counted_keep_their_column(tmp_path, first, lacking):
    frame = weeks(200, 4, level=ab, hint=lambda i, h: "xy"[(i + h) % 3 > 1], score=lambda i, h: 1.0)
    frame = frame.filter(~((pl.col("week") == 2) & (pl.col("user") % 9 == 0) & lacking))
    source = told_of(frame.with_columns(pl.col("week") + first), last_row="unknown")[0]["source"]
    assert source["columns"]["step"] == "week" and "order_by" not in source
    assert source.get("first_step", 0) == first and source.get("gap") == ("cut" if lacking else None)


@pytest.fixture
def drafted(tmp_path):
    """A shop of people whose card says that it was drafted, and a store."""
    shop = lay_out(tmp_path / "shop", kind="real", ledger="books.db")
    with (shop / "card.toml").open("a") as file:
        file.write('[provenance]\ndrafted = "2026-11-22"\nfrom_data = ["domain.horizon"]\n')
    return shop, reticent.Store(tmp_path / "home")


def test_register_enters_the_look_once_and_the_certificate_names_it(drafted):
    shop, store = drafted
    for _ in range(2):
        store.register(shop)
    store.ingest(shop)
    run = reticent.run(shop / "private.toml", store=store)
    told = [line for line in run.certificate.assumptions if "reticent draft" in line]
    said = "the card was proposed from this log with `reticent draft` (entry 2): domain.horizon of it may depend on"
    assert told == [f"{said} people's records, which no budget covers"]
    assert run.verify().ok and run.verify().vouched
    shown = invoke("ledger", "show", "--card", shop, "--home", store.home.root)
    assert shown.stdout.count("the log, to draft the card") == 1


def test_a_register_that_dies_leaves_no_drafted_card_without_its_look(drafted, monkeypatch):
    (shop, store), append = drafted, Page.append

    def dies(page, lineage, kind, body, *more):
        if kind == "INSPECT":
            raise KeyboardInterrupt
        return append(page, lineage, kind, body, *more)

    with monkeypatch.context() as hooked, pytest.raises(KeyboardInterrupt):
        hooked.setattr(Page, "append", dies)
        store.register(shop)
    store.ingest(shop)
    with pytest.raises(reticent.BudgetError, match="register"):
        reticent.run(shop / "private.toml", store=store)


def test_the_shell_prints_the_card_and_keeps_what_was_seen_apart(log, tmp_path):
    done = invoke("draft", log, "--user", "patient_id", "--last-row", "ends")
    assert done.exit_code == 0 and tomllib.loads(done.stdout)["unit"]["user"] == "patient_id"
    assert "400" in done.stderr and "400 " not in done.stdout.replace("users_public = 400", "")
    told = json.loads(invoke("draft", log, "--to", tmp_path, "--last-row", "ends", "--json").stdout)
    assert Path(told["file"]) == tmp_path / "card.toml" and (tmp_path / "card.toml").read_text() == told["card"]
    assert (tmp_path / "recipe.toml").read_text() == told["recipe"]
    for place, said in ((".", "exists"), ("c.toml", "name the folder"), ("x", "lies elsewhere")):
        with pytest.raises(reticent.CardError, match=said):
            invoke("draft", log, "--to", tmp_path / place, "--last-row", "ends", catch_exceptions=False)


MEDS = {"subject_id": 1, "time": "2025-01-01T08:00:00", "code": "LAB//lactate", "numeric_value": 1.2}


@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        ({"a": [1, 2], "b": [1, 2]}, {}, "name it with --user COLUMN"),
        ({"user": [1, 2], "b": [1, 1]}, {}, "cannot tell which column is the action"),
        ({"user": [1, 2, 3], "variant": ["a", "b", "a"], "paid": [1, 0, 0]}, {}, "no column is left for the state"),
        ({"user": [1, 2], "b": [1, 2]}, {"state": "c"}, "no column 'c'; the log has: user, b"),
        # who lacks a column of states reads what the others were taken for
        (weeks(200, 2, sofa=lambda i, h: (i + h) % 5, drug=xy, died=lambda i, h: i % 9 == 0), {}, "--reward sofa\\)"),
        # events of MEDS were asked for a column of the state
        ([MEDS] * 30, {}, "events of MEDS.*docs/card.md"),
    ],
)
def test_what_cannot_be_told_is_asked_for(frame, options, said):
    refuses(said, pl.DataFrame(frame), **options)


def test_files_that_are_no_tables_are_refused(tmp_path):
    refuses("is no file", tmp_path / "none.csv")
    (tmp_path / "a.xlsx").write_text("x")
    refuses("not a table", [tmp_path / "a.xlsx"])


def test_rows_that_nothing_orders_are_episodes_of_their_own_and_it_is_said():
    rows = [{"user": f"u{i % 50}", "level": "ab"[i % 2], "offer": "xy"[i % 3 > 1], "score": 1.0} for i in range(200)]
    assert any("--order COLUMN" in note for note in reticent.draft(pl.DataFrame(rows)).notes)


def test_a_date_orders_whatever_it_is_called_and_a_part_of_a_word_does_not():
    rows = [(f"c{i}", str(i), f"2026-01-{1 + h:02}", "ab"[h % 2], "xy"[i % 2]) for i in range(60) for h in range(3)]
    frame = pl.DataFrame(rows, orient="row", schema=["customer", "notes", "recorded", "mood", "offer"])
    assert told_of(frame, paid="each")[0]["source"]["order_by"] == "recorded"


def test_torn_lines_of_ndjson_are_set_aside(tmp_path):
    lines = [json.dumps({"user": f"u{i}", "step": 0, "mood": "ab"[i % 2], "offer": "xy"[i % 3 > 1]}) for i in range(99)]
    (tmp_path / "log.ndjson").write_text("\n".join([*lines, '{"user": "u1", "st']) + "\n")
    draft = reticent.draft(tmp_path / "log.ndjson")
    assert any("1 lines" in note for note in draft.notes) and 'user = "user"' in draft.toml


def shop(people: int = 200) -> pl.DataFrame:
    """Sessions of two to four pages; the money comes with the last one, and the other cells of it are empty."""
    draw, rows = random.Random(DRAW), list[dict[str, object]]()
    for who in range(people):
        pages = draw.randint(2, 4)
        for n in range(pages):
            paid = draw.choice([0.0, 19.5]) if n == pages - 1 else None
            at = f"2026-05-01T10:{10 * n:02}:00+02:00"
            rows.append({"visitor": who, "ts": at, "page": draw.choice("ab"), "coupon": draw.random() < 0.5})
            rows[-1]["revenue"] = paid
    return pl.DataFrame(rows, infer_schema_length=None)


def test_money_that_comes_at_the_end_of_sessions_of_any_length_is_counted(tmp_path):
    draft, values = proposed(shop(), name="shop")
    assert values["reward"]["empty"] == 0.0 and values["source"]["last_row"] == "ends"
    assert any("over with its last row" in note for note in draft.notes)
    answer = ingested(tmp_path, draft, shop())
    rows = stored(answer)
    # every row counts in some table, and all the money with it
    assert answer["users"] == 200 and rows["next_state"].null_count() == 0
    assert rows["reward"].sum() == shop()["revenue"].sum()


def test_rewards_that_lack_here_and_there_are_not_taken_for_nothing():
    frame = shop().with_columns(pl.when(pl.col("visitor") % 9 > 0).then(pl.lit(1.0)).alias("revenue"))
    values, notes = told_of(frame, last_row="ends")
    assert "empty" not in values["reward"]
    assert "of the episodes are dropped for it (bad_reward), unless empty = 0.0" in notes


def a_visit_late(*, closed: bool) -> pl.DataFrame:
    """Four rows a patient, each with what came of the row before it; ``closed``: the last has no action."""
    drugs = {(i, h): None if closed and h == 3 else "xy"[i % 3 % 2] for i in range(90) for h in range(4)}
    rows = [(i, h, "ab"[(i + h) % 2], drug, i % 2 if h else None) for (i, h), drug in drugs.items()]
    names = ["patient", "visit", "band", "drug", "good"]
    return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)


def test_an_outcome_that_is_written_a_visit_late_does_not_pay_nothing_at_first_and_may_be_asked_about():
    notes = told_of(a_visit_late(closed=False), paid="each")[1]
    assert "those of first rows alone: 100.0% of the episodes are dropped" in notes
    assert "what came of the row before it" in notes and "unless empty = 0.0" not in notes
    # the last row's alone was moved to the row before, whose own was lost: .08 to .22 was said of .39
    log = a_visit_late(closed=True)
    refuses("(?s)what came of the row before it.*--paid each", log)
    assert told_of(log, paid="each")[0]["source"]["last_row"] == "outcome"


def test_an_outcome_is_no_action_and_booleans_are_rewards_however_they_are_written():
    passed = {"nudge": lambda i, h: "xyz"[(i + h) % 3], "passed": lambda i, h: ["TRUE", "FALSE"][i % 2]}
    values = told_of(weeks(60, 3, level=ab, **passed).rename({"user": "learner"}), paid="each")[0]
    assert values["domain"]["actions"]["column"] == "nudge" and values["source"]["columns"]["reward"] == "passed"
    assert (values["reward"]["range"], values["reward"]["steps"]) == ([0.0, 1.0], 1)


def test_where_a_step_led_is_not_taken_for_where_it_began():
    after = {"reward": lambda i, h: i % 2, "next_state": lambda i, h: "ba"[h % 2]}
    values, notes = told_of(weeks(60, 3, state=ab, action=xy, **after), paid="each")
    assert values["domain"]["states"]["column"] == "state" and 'add next_state = "next_state"' in notes


def test_what_is_guessed_from_content_alone_is_said():
    frame = weeks(60, 2, q=ab, w=lambda i, h: "xyz"[i % 3], e=lambda i, h: i % 2)
    refuses(r"(?s)which column says what was done.*--action w\n  --action q", frame, paid="each")
    notes = told_of(frame, action="w", paid="each")[1]
    for column, option in (("q", "--state"), ("e", "--reward")):
        assert re.search(f"'{column}' is only guessed.*{option}", notes)


def test_a_row_that_came_twice_is_one_step_of_the_proposal():
    frame = shop()
    twice = pl.concat([frame, frame.sample(40, seed=1)]).sample(fraction=1.0, shuffle=True, seed=2)
    values, notes = told_of(twice)
    assert values["domain"]["horizon"] == 4 and re.search("40 rows.*word for word", notes)


def test_ids_that_begin_anew_in_each_site_or_file_are_not_one_person_without_a_word(tmp_path):
    head, sites, draw = "pid,visit,severity,therapy,better", ("north", "south"), random.Random(DRAW)
    for site in sites:
        told = [(i, v, *draw.choices("ab", k=2), draw.randint(0, 1)) for i in range(50) for v in range(1, 4)]
        lines = [",".join(map(str, row)) for row in told]
        (tmp_path / f"{site}.csv").write_text("\n".join([head, *lines]) + "\n")
    files = [tmp_path / f"{site}.csv" for site in sites]
    frames = [pl.read_csv(tmp_path / f"{site}.csv").with_columns(pl.lit(site).alias("site")) for site in sites]
    for log, apart in ((files, "each file"), (pl.concat(frames), "each 'site'")):
        refuses(f"(?s)begin anew in {apart}.*--several each", log)
        assert f"begin anew in {apart}" in told_of(log, several="each", last_row="ends")[1]
    assert "begin anew" not in told_of(frames[0])[1]


NUMBERS = {"1234,5": "{:.2f}|,", "1.234,5": "{:,.2f}|.,", "1,234.5": "{:,.2f}|", "1 234,5": "{:,.2f}|\u202f,"}


def written(number: float, form: str) -> str:
    text, _, marks = NUMBERS[form].partition("|")
    return text.format(number).translate(str.maketrans(",."[2 - len(marks) :], marks))


@pytest.mark.parametrize(
    ("form", "unit", "day"),
    [
        pytest.param(form, *(("", "%d.%m.%Y"), (" EUR", "%Y-%m-%d"))[i % 2], marks=pytest.mark.slow if i > 1 else ())
        for i, form in enumerate(NUMBERS)
    ],
)
def test_numbers_and_dates_as_the_log_writes_them_become_keys_of_the_card(tmp_path, form, unit, day):
    draw, rows = random.Random(DRAW), list[dict[str, str]]()
    for who in range(80):
        for h in range(3):
            paid = written(draw.randint(0, 9) + 1000.0 * draw.randint(0, 3) + 0.5, form) + unit
            when = (date(2026, 1, 20) + timedelta(days=20 * h)).strftime(day)
            rows.append({"user": f"u{who}", "on": when, "mood": draw.choice("ab"), "offer": draw.choice("xy")})
            rows[-1]["paid"] = paid
    draft, values = proposed(pl.DataFrame(rows), order="on")
    assert values["source"].get("numbers") == form
    assert values["source"].get("dates") == ("dd.mm.yyyy" if "." in day else None)
    assert values["source"].get("units", {}) == ({"paid": {"EUR": 1.0}} if unit else {})
    answer = ingested(tmp_path, draft, pl.DataFrame(rows))
    assert (answer["users"], answer["rows"], answer["quarantined"]) == (80, 240, {})


def test_rewards_that_are_no_numbers_are_refused_here_and_not_at_register():
    frame = weeks(90, 2, level=ab, offer=xy, won=lambda i, h: "wxyz"[i % 4])
    refuses("what is each worth", frame, reward="won", state="level")
    told = reticent.draft(frame.with_columns(won=pl.lit(1.0)), reward="won")
    assert any("nothing to learn from it" in note for note in told.notes) and "range = [0.0, 1.0]" in told.toml


def test_a_flag_that_is_true_in_the_middle_is_no_end():
    draft = reticent.draft(weeks(60, 3, level=ab, offer=xy, done=lambda i, h: i % 2, score=lambda i, h: 1))
    assert "terminated" not in draft.toml and any("before the last row" in note for note in draft.notes)


HEAD = "patient,seen,tmp,drug,well"


def ward(name: str, head: str, people: range, folder: Path) -> Path:
    draw, lines = random.Random(len(name)), [head]
    for who in people:
        for day in (2, 12, 22):
            lines.append(f"{who},{day}.1.2026,{draw.randint(360, 400) / 10},{draw.choice('ab')},{draw.randint(0, 1)}")
    return lines_in(folder, *lines, name=name)


def test_files_with_other_headers_are_shown_side_by_side_with_the_mapping_to_add(tmp_path):
    files = [ward("n.csv", HEAD, range(40), tmp_path)]
    files.append(ward("s.csv", "Patient-Nr,seen,Temp,drug,well", range(50, 90), tmp_path))
    files.append(ward("w.csv", HEAD.replace(",", ";"), range(100, 140), tmp_path))
    files[2].write_text(files[2].read_text().replace(",", ";"))
    with pytest.raises(reticent.CardError) as told:
        invoke("draft", *files, "--to", tmp_path, catch_exceptions=False)
    assert told.value.exit_code == 2
    assert "n.csv: patient, seen, tmp, drug, well\n  s.csv: Patient-Nr, seen, Temp" in str(told.value)
    line = "--rename Patient-Nr=patient --rename Temp=tmp"
    assert line in str(told.value) and not (tmp_path / "card.toml").exists()
    done = invoke("draft", *files, "--to", tmp_path, *line.split())
    assert done.exit_code == 0, done.stderr
    source = tomllib.loads((tmp_path / "card.toml").read_text())["source"]
    assert source["rename"] == {"Patient-Nr": "patient", "Temp": "tmp"} and source["separator"] == "auto"
    answer(tmp_path / "home", "register", tmp_path / "card.toml")
    assert answer(tmp_path / "home", "ingest", tmp_path / "card.toml")["users"] == 120


def test_a_terminal_is_asked_and_its_answer_taken(tmp_path, monkeypatch):
    files = [ward("n.csv", HEAD, range(40), tmp_path)]
    files.append(ward("s.csv", HEAD.replace("patient", "Pat."), range(50, 90), tmp_path))
    monkeypatch.setattr(verbs.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(verbs.sys, "stderr", SimpleNamespace(isatty=lambda: True, write=len, flush=int))
    asked = list[str]()
    monkeypatch.setattr(verbs, "say", asked.append)
    monkeypatch.setattr(verbs.typer, "prompt", lambda *_, **__: "1")
    verbs.draft(files, to=tmp_path)
    assert any("--rename Pat.=patient" in line for line in asked)
    assert tomllib.loads((tmp_path / "card.toml").read_text())["source"]["rename"] == {"Pat.": "patient"}


def visits(people: int = 60, **more) -> pl.DataFrame:
    """Two visits a person on different days; ``more``: a column and its cell of (person, visit)."""
    draw = random.Random(DRAW)
    rows = [
        {"patient": f"p{i}", "on": f"2026-01-{3 + 9 * h:02}", "mood": draw.choice("ab"), "drug": draw.choice("xyz")}
        | {"score": draw.randint(0, 3)}
        | {name: make(i, h) for name, make in more.items()}
        for i in range(people)
        for h in range(2)
    ]
    return pl.DataFrame(rows)


def test_unique_date_times_are_never_episodes():
    frame = visits(encounter=lambda i, h: f"2026-01-{3 + 9 * h:02}T{i // 60:02}:{i % 60:02}")
    assert told_of(frame)[0]["source"]["columns"]["episode_id"] == "patient"
    refuses("each would be an episode of one step", frame, episode="encounter")


def test_rows_of_one_day_ask_which_counts(tmp_path):
    frame = visits(entered=lambda i, h: f"2026-02-01T10:{i:02}")
    frame = pl.concat([frame, frame.with_columns(entered=pl.lit("2026-03-01T09:00"), score=pl.lit(9, dtype=pl.Int64))])
    refuses(r"(?s)stand at the same 'on'.*--several last:entered.*--several each", frame, order="on")
    values, _ = told_of(frame, order="on", several="last:entered")
    assert values["source"]["same_place"] == {"keep": "last", "by": "entered"} and values["domain"]["horizon"] == 2
    noted = frame.with_columns(entered=pl.lit("2026-03-01 1:30 PM"))
    unread = "'entered' holds no numbers and no dates such as 2026-01-31 13:30"
    refuses(unread, noted, order="on", several="last:entered")


def test_units_that_differ_ask_what_each_is_worth():
    frame = visits(weight=lambda i, h: f"{50 + i} kg" if i % 5 else f"{50_000 + i} g")
    refuses(r"--unit weight:kg=1 --unit weight:g=0\.001", frame, state="weight")
    values, _ = told_of(frame, state="weight", unit={"weight": {"kg": 1.0, "g": 0.001}})
    assert values["source"]["units"] == {"weight": {"kg": 1.0, "g": 0.001}}
    assert all(50 < edge < 120 for edge in values["domain"]["states"]["bins"]["edges"])


def test_classes_such_as_5a_are_labels_and_no_numbers_with_units():
    frame = visits(600, grade=lambda i, h: f"{5 + i % 6}{'abc'[i % 7 % 3]}")
    states = told_of(frame, state="grade")[0]["domain"]["states"]
    assert {"5a", "5b", "10c"} <= set(states["labels"])
    # whoever says what each is worth has numbers
    told = {"grade": {"a": 1.0, "b": 2.0, "c": 3.0}}
    assert "bins" in told_of(frame, state="grade", unit=told)[0]["domain"]["states"]


def test_an_outcome_in_every_row_asks_whether_it_is_paid_once_and_then_bounds_the_total():
    frame = visits(cured=lambda i, h: i % 2)
    refuses(r"(?s)every row of an episode holds the same 'cured'.*--paid last", frame, reward="cured")
    reward = told_of(frame, reward="cured", paid="last")[0]["reward"]
    assert (reward["paid"], reward["total"]) == ("last", 1)
    assert "total" not in told_of(frame, reward="cured", paid="each")[0]["reward"]


def test_a_range_that_would_hide_rare_heavy_losses_is_asked_for(tmp_path):
    """Ten of a thousand people lose 500 by one drug: cut to 0 it was the better one, and no run could see that."""
    frame = visits(1000, drug=xy, gain=lambda i, h: -500 if i % 100 == 0 and h else i // 2 % 2)
    refuses(r"(?s)move the mean from 0\.5 to -2:.*--rewards -1000:1\n  --rewards 0:1$", frame, reward="gain")
    draft = reticent.draft(frame, reward="gain", rewards="-1000:1", last_row="ends")
    assert tomllib.loads(draft.toml)["reward"]["range"] == [-1000.0, 1.0]
    assert "reward_range" not in ingested(tmp_path, draft, frame)["quarantined"]
    refuses("write LEAST:MOST", frame, reward="gain", rewards="1:0")
    # of the usual units the largest would have fitted the rewards that lie in there
    for told, kept in (("0.2:0.7", [0.0, 1.0]), ("-0.5:0.5", [-1.0, 1.0])):
        drafted = tomllib.loads(reticent.draft(frame, reward="gain", rewards=told, last_row="ends").toml)
        assert drafted["reward"]["range"] == kept
    # no sum of what is asked about is too large for a number
    refuses("write LEAST:MOST", frame, reward="gain", rewards="-1e308:1e308")
    huge = visits(1000, gain=lambda i, h: 1.7e308 if i < 2 and h else i // 2 % 2)
    refuses(r"--rewards 0:1e\+30\n", huge, reward="gain")


def test_rewards_in_another_unit_stop_what_was_drafted(tmp_path):
    """Later logs in cents, or in shares of 1, were cut to 0 and 1: the page judged what was left of them."""
    frame = visits(400, gain=lambda i, h: max(h, i // 2 % 2))
    draft = reticent.draft(frame, reward="gain", last_row="ends")
    assert ingested(tmp_path, draft, frame)["quarantined"] == {}
    for factor, rule in ((100, "reward_range"), (0.5, "reward_off_lattice")):
        later = frame.with_columns(gain=pl.col("gain") * factor)
        assert rule in str(ingested(tmp_path / rule, draft, later)["problem"])
    # a log between whose points rewards lie already, or that its answers cut, would stop its own run
    values = told_of(frame, reward="gain", rewards="-1:0", last_row="ends")[0]
    assert "reward_range" not in values["tolerance"]


@pytest.mark.parametrize("answers", [{}, {"rewards": "50:60"}])
def test_a_score_that_comes_at_the_end_and_is_never_near_0_makes_a_good_card(tmp_path, answers):
    """An empty cell pays 0, which was outside of the proposed range: the draft refused its own card."""
    frame = visits(200, score=lambda i, h: 50 + 5 * (i // 2 % 3) if h and i % 10 > 2 else None)
    draft = reticent.draft(frame, reward="score", **answers)
    reward = tomllib.loads(draft.toml)["reward"]
    assert (reward["range"], reward["empty"]) == ([0.0, 60.0], 0)
    said = "30.0% of the episodes hold no 'score' at all, and elsewhere it is 50 at least"
    assert any(said in note for note in draft.notes)
    assert any("the range is not 50 to 60" in note for note in draft.notes) == bool(answers)
    assert "reward_range" not in ingested(tmp_path, draft, frame)["quarantined"]


def test_a_horizon_that_loses_outcomes_in_last_rows_says_so():
    """One in twenty stays is long: cut at the horizon, all of these deaths went unseen, with a note on rows."""
    days = [30 if i % 25 == 0 else 1 + i % 4 for i in range(1000)]
    stays = [(i, h, h == n - 1) for i, n in enumerate(days) for h in range(n)]
    rows = [(f"p{i}", h, "ab"[i % 2], "xy"[h % 2], i % 3 if last else None) for i, h, last in stays]
    frame = pl.DataFrame(rows, orient="row", schema=["patient", "day", "mood", "drug", "score"])
    lost = "4.0% of episodes have some, and lose the outcome in their last row"
    assert lost in told_of(frame)[1]
    paid = frame.with_columns(pl.col("score").forward_fill().fill_null(0))
    assert "lose the outcome" not in told_of(paid, last_row="ends", paid="each")[1]


def test_outcomes_that_are_not_known_yet_are_not_taken_for_0_in_silence():
    """Three in ten of one drug's outcomes came after the extract: as 0 they made the other drug the better one."""
    frame = visits(200, well=lambda i, h: i % 2 if h and i % 10 > 2 else None)
    values, notes = told_of(frame, reward="well")
    assert values["reward"]["empty"] == 0 and "30.0% of the episodes hold no 'well' at all" in notes
    # who buys nothing has an empty cell, and no 0 is written
    assert "at all" not in told_of(visits(200, spent=lambda i, h: 5 if h and i % 2 else None), reward="spent")[1]


def test_a_last_row_that_holds_the_outcome_alone_is_no_step():
    frame = visits().with_columns(pl.lit(None, dtype=pl.Int64).alias("score"))
    late = frame.filter(pl.col("on") == "2026-01-12")
    late = late.with_columns(pl.Series("score", [0, 1] * 30), on=pl.lit("2026-06-01"), drug=pl.lit(None, pl.String))
    values = told_of(pl.concat([frame, late]), reward="score")[0]
    assert values["source"]["last_row"] == "outcome" and values["domain"]["horizon"] == 2
    assert values["reward"]["empty"] == 0.0 and values["reward"]["total"] == 1
    assert "other" not in values["domain"]["actions"]


@pytest.mark.parametrize(
    ("written", "labels", "same_as"),
    [
        (["50 mg", "50mg", "50 MG ", "none", "None"], ["50 mg", "none"], {"50mg": 0, "50 MG ": 0, "None": 1}),
        # numbers that became floats
        (["10.0", "10", "none"], ["10", "none"], {"10.0": 0}),
        # a ward that went from mg to g in summer had each dose twice, and the policy moved people between the two
        (
            ["250 mg", "500mg", "0.1 mg", "0.25 g", "0.5 g", "100 µg"],
            ["0.1 mg", "250 mg", "500mg"],
            {"0.25 g": 1, "0.5 g": 2, "100 µg": 0},
        ),
        # in the order of their numbers
        (["0 mg", "5 mg", "10 mg"], ["0 mg", "5 mg", "10 mg"], {}),
    ],
)
def test_labels_in_several_spellings_are_one_and_shown(written, labels, same_as):
    frame = visits(600, drug=lambda i, h: written[(i + h) % len(written)])
    values, notes = told_of(frame, order="on", paid="each")
    actions = values["domain"]["actions"]
    same = {spelt: labels[at] for spelt, at in same_as.items()}
    assert actions["labels"] == labels and actions.get("same_as", {}) == same
    assert all(f"'{spelt}' is '{label}'" in notes for spelt, label in same.items())
    assert ("is written in several ways" in notes) == bool(same)


def test_a_state_of_several_columns_and_what_stays_out_are_said():
    frame = visits(300, age=lambda i, h: 20 + i % 60)
    assert re.search("not in the card: 'age'.*--state mood --state age", told_of(frame)[1])
    states = told_of(frame, state=["mood", "age"])[0]["domain"]["states"]
    assert states["from"] == ["mood", "age"] and states["bins"]["mood"] == ["a", "b"]
    assert len(states["bins"]["age"]) == 2


def test_what_fewer_than_twenty_people_have_stands_in_no_card(tmp_path):
    # one person fills many rows, and nobody else has these cells: rows must not be counted, people must
    frame = visits(
        400,
        level=lambda i, h: "Frau Huber" if i == 7 else "ab"[h],
        offer=lambda i, h: "Huber's wish" if i == 7 else "xy" if i % 2 else "xy " if i < 20 else "z",
        dose=lambda i, h: "12 Hubermg" if i == 7 else f"{10 + i % 30 + h} mg",
        gain=lambda i, h: 987.25 if i == 7 else float(i % 4),
    ).drop("mood", "drug", "score")
    more = frame.filter(pl.col("patient") == "p7")
    days = [f"2026-{1 + n // 28:02}-{1 + n % 28:02}" for n in range(60)]
    frame = pl.concat([frame, *(more.head(1).with_columns(on=pl.lit(day)) for day in days)])
    told = {"order": "on", "reward": "gain", "several": "each", "last_row": "ends", "action": "offer", "paid": "each"}
    told["unit"] = {"dose": {"mg": 1.0, "Hubermg": 1.0}}
    # not even a proposed answer tells what this one person has
    refuses(r"--rewards 0:1000\n  --rewards 0:3$", frame, state="level", **told)
    told["rewards"] = "0:3"
    for state in ("level", ["level", "dose"]):
        draft = reticent.draft(frame, state=state, **told)
        for text in (draft.toml, draft.recipe):
            assert not any(rare in text for rare in ("Huber", "987", '"xy "')), text
        values = tomllib.loads(draft.toml)
        assert values["domain"]["horizon"] == 2 and values["reward"]["range"] == [0.0, 3.0]
        assert values["reward"]["steps"] == 3 and values["domain"]["states"]["other"]
        assert any("fewer than 20 people" in note for note in draft.notes)
    own = frame.with_columns(own=pl.col("patient") + "x")
    refuses("no text of 'own' is that of 20 people", own, state="own", **told)
    few = frame.filter(pl.col("patient").is_in([f"p{i}" for i in range(19)]))
    refuses("fewer than 20 people", few, state="level", **told)


def test_files_of_people_are_named_by_a_pattern_and_a_first_row_is_no_header(tmp_path):
    for i in range(60):
        rows = "".join(f"{i},2026-01-{3 + 9 * h:02},{'ab'[h]},{'xy'[i % 2]},{i % 3}\n" for h in (0, 1))
        (tmp_path / f"huber-{i}.csv").write_text("patient,on,mood,drug,score\n" + rows)
    draft = reticent.draft(sorted(tmp_path.glob("*.csv")), paid="each")
    assert tomllib.loads(draft.save(tmp_path).read_text())["source"]["files"] == ["*.csv"]
    assert "huber-" not in draft.toml
    (tmp_path / "bare.csv").write_text(f"17,2026-01-03,a,x,1\n{rows}")
    refuses("line 1 looks like a row", tmp_path / "bare.csv")


@pytest.mark.parametrize("dated", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_outcome_in_words_in_a_file_of_its_own_and_a_copy_of_a_file(tmp_path, dated):
    files = [ward("n.csv", HEAD, range(100), tmp_path)]
    lines = [line.rpartition(",")[0] for line in files[0].read_text().splitlines()]
    files[0].write_text("\n".join(lines) + "\n")
    shutil.copy(files[0], tmp_path / "n (1).csv")
    late = [f"{i},{'3.9.2026,' if dated else ''}{'ja' if i % 4 else 'nein'}" for i in range(100)]
    (tmp_path / "late.csv").write_text("\n".join([f"patient,{'Datum,' if dated else ''}genesen", *late]) + "\n")
    files += [tmp_path / "n (1).csv", tmp_path / "late.csv"]
    told = {"state": "tmp", "order": "seen", "rename": {"Datum": "seen", "genesen": ""}}
    if dated:
        refuses("--rename Datum=seen --rename genesen=\n", files, **(told | {"rename": {}}))
    draft, values = proposed(files, **told)
    assert values["reward"]["words"] == {"ja": 1.0, "nein": 0.0} and values["source"]["last_row"] == "outcome"
    assert set(values["source"]["optional"]) == {"tmp", "drug", "genesen"} | (set() if dated else {"seen"})
    assert values["source"]["files"] == ["n.csv", "late.csv"] and any("byte for byte" in n for n in draft.notes)
    answer, store = ingested(tmp_path, draft), reticent.Store(tmp_path / "home")
    assert (answer["users"], answer["rows"], answer["quarantined"]) == (100, 300, {"closing_row": 100})
    rows = stored(answer)
    assert rows["reward"].sum() == 75 and rows.filter(pl.col("step") < 2)["reward"].sum() == 0
    # the columns that the late file lacks are tested all the same
    assert {t["column"] for t in store.inspect(tmp_path)["hidden_state"]["tests"]} <= {"tmp", "the state before"}


def test_words_that_say_neither_yes_nor_no_are_asked_for():
    frame = visits(outcome=lambda i, h: ["recovered", "died"][i % 3 == 0]).drop("score")
    refuses("--word died=WORTH --word recovered=WORTH", frame, order="on")
    values, _ = told_of(frame, order="on", word={"died": 0, "recovered": 1}, paid="last")
    assert values["reward"]["words"] == {"died": 0.0, "recovered": 1.0}


def test_a_draft_says_that_more_is_better_and_turns_numbers_that_are_worse(tmp_path):
    frame = visits(left=lambda i, h: int(i % 3 == 0)).drop("score")
    values, notes = told_of(frame, order="on", reward="left", paid="last")
    assert re.search("seeks more of 'left'.*--word 0=1 --word 1=0", notes) and "words" not in values["reward"]
    # a policy that seeks deaths is not proposed with a note
    frame = frame.rename({"left": "died"})
    worse = r"(?s)more of 'died' is worse: is it\?.*--word 0=1 --word 1=0\n.*--word 0=0 --word 1=1"
    refuses(worse, frame, order="on", reward="died", paid="last")
    # numbers were taken as they are, whatever was answered
    values, notes = told_of(frame, order="on", reward="died", paid="last", word={"0": 1, "1": 0})
    assert values["reward"]["words"] == {"0": 1.0, "1": 0.0} and values["reward"]["called"] == "worth of died"
    assert "seeks more" not in notes


def one_step(people: int, moods: int) -> list[str]:
    return [f"p{i},m{i % moods},{'xyz'[i // moods % 3]},{i % 7 % 2}" for i in range(people)]


def drafted_one_step(folder: Path, people: int, moods: int) -> tuple[Path, Path]:
    """Card and recipe of a log of one step a person."""
    log = lines_in(folder, "patient,mood,drug,cured", *one_step(people, moods))
    answer(folder / "home", "draft", log, "--to", folder)
    answer(folder / "home", "register", folder / "card.toml")
    return folder / "card.toml", folder / "recipe.toml"


@pytest.mark.parametrize(
    ("people", "moods", "agent", "share"),
    [
        (1_600, 2, "dp-apvi", None),
        (1_700, 2, "dp-apvi", 0.3),
        (4_200, 60, "dp-one-step", None),
        (4_300, 60, "dp-one-step", 0.5),
        pytest.param(7_150, 60, "dp-one-step", 0.3, marks=pytest.mark.slow),
    ],
)
def test_a_drafted_recipe_of_one_step_is_not_refused_and_can_get_a_verdict(tmp_path, people, moods, agent, share):
    """Of many states three in ten of fewer than 7,143 people are too few at its budget, half of fewer than 4,286."""
    _, recipe = drafted_one_step(tmp_path, people, moods)
    values = tomllib.loads(recipe.read_text())
    assert values.get("evaluate", {}).get("people") == share and values["recipe"]["agent"] == agent
    least = "4,286" if moods == 60 else "1,667"
    assert (f"it takes {least} people" in recipe.read_text()) == (share is None)
    told = invoke("--home", tmp_path / "home", "plan", recipe, "--no-quality")
    assert told.exit_code == 0 and "verdict: none" not in told.output, told.output


def test_the_number_of_people_that_a_refusal_names_is_not_refused(tmp_path):
    card, recipe = drafted_one_step(tmp_path, 5_000, 60)
    change(recipe, "people = 0.5", "people = 0.3")
    home, plan = tmp_path / "home", ("plan", recipe, "--no-quality")
    # the gate takes its part: 7,100 would be refused again
    assert "hold out 0.43 of them, or have 7,200 people" in refusal(home, *plan)
    more_judges, more_people = ("people = 0.3", "people = 0.43"), ("users_public = 5000", "users_public = 7200")
    for told, old, new in ((recipe, *more_judges), (card, *more_people)):
        change(told, old, new)
        answer(home, "register", card, "--amend")
        answer(home, *plan)
        change(told, new, old)


@pytest.mark.parametrize("admitted", [False, True])
def test_a_date_that_only_some_outcomes_have_orders_nothing(tmp_path, admitted):
    """One in twelve died and has no discharge: with it as the order of rows, the dead were dropped."""
    days = [date(2026, 1, 1) + timedelta(days=i % 50) for i in range(600)]
    left = ["" if i % 12 == 0 else str(day + timedelta(days=5)) for i, day in enumerate(days)]
    rows = [(f"p{i}", "ab"[i % 2], "xyz"[i % 3], str(days[i]), left[i], int(i % 12 > 0)) for i in range(600)]
    names = ["patient", "mood", "drug", "admitted", "discharge_date", "survived"]
    frame = pl.DataFrame(rows, orient="row", schema=names)
    draft = reticent.draft(frame if admitted else frame.drop("admitted"))
    assert tomllib.loads(draft.toml)["source"].get("order_by") == ("admitted" if admitted else None)
    assert ingested(tmp_path, draft, frame)["quarantined"] == {}
    if admitted:
        # who asks for it hears of the dead
        assert "50 people have rows whose 'discharge_date' is empty" in told_of(frame, order="discharge_date")[1]


def test_an_order_that_cannot_be_read_is_refused():
    frame = visits(month=lambda i, h: f"2026-0{h + 1}").drop("on")
    refuses("'month' holds no numbers and no dates such as 2026-01-31", frame, order="month")


@pytest.mark.slow
def test_a_page_says_that_an_action_must_be_usual_to_be_recommended(tmp_path):
    """Twenty actions alike, of which one is far better: each is in a twentieth of the rows, and none can be advised."""
    draw, lines = random.Random(DRAW), list[str]()
    for i in range(7_200):
        mood, item = draw.randrange(60), draw.randrange(20)
        lines.append(f"p{i},m{mood},item{item},{int(draw.random() < (0.9 if item == 7 else 0.1))}")
    words = " ".join(studied(tmp_path, "person,mood,item,click", lines, "item").split())
    assert "recommended only where practice takes it in at least 10 % of a state's rows" in words
    assert "may let the policy say more, where practice takes an action in at least 10 % of a state's rows" in words
    assert "counts as seen" not in words
    notes = told_of(tmp_path / "log.csv", action="item")[1]
    said = f"advises none that practice takes in less than {CONFIRMED:.0%} of a state's rows"
    assert re.search(f"all actions but one are rare: 5.*{said}", notes)
    assert "nothing changes" in invoke("--home", tmp_path / "home", "run", tmp_path / "recipe.toml").output


@pytest.mark.parametrize(
    ("people", "paid", "reward"),
    [
        (50, lambda i: i % 11, ([0.0, 6.0], 6)),
        (4_000, lambda i: int(i % 400 == 0), ([0.0, 1.0], 1)),
        (600, lambda i: 1, ([0.0, 1.0], 1)),
    ],
    ids=["few people", "a rare outcome", "one outcome"],
)
def test_a_lattice_keeps_what_few_people_have(tmp_path, people, paid, reward):
    """Its unit was 100, of which all was a multiple but what few people had; all of it was rounded down to 0."""
    rows = [(f"p{i}", "xy"[i % 2], "ab"[i // 2 % 2], paid(i)) for i in range(people)]
    frame = pl.DataFrame(rows, orient="row", schema=["person", "strain", "diet", "score"])
    draft = reticent.draft(frame, reward="score", action="diet", state="strain")
    drafted = tomllib.loads(draft.toml)["reward"]
    assert (drafted["range"], drafted["steps"]) == reward
    assert "reward_off_lattice" not in ingested(tmp_path, draft, frame)["quarantined"]
    # a value alone cannot be turned, and one of ten people is one
    notes = " ".join(draft.notes)
    assert ("--word 1=1" not in notes) and ("every reward is 0" not in notes or "nearly every" in notes)


@pytest.mark.slow
def test_the_commands_that_a_page_of_real_people_names_are_not_refused(tmp_path, monkeypatch):
    draw, lines = random.Random(DRAW), list[str]()
    for i in range(7_200):
        mood, drug = draw.choice("ab"), draw.choice("xy")
        lines.append(f"p{i},{mood},{drug},{int(draw.random() < (0.9 if drug == 'x' else 0.1))}")
    page = studied(tmp_path, "person,mood,drug,cured", lines, "drug")
    assert "set_aside" in page, "the gate"
    # the difference of the two lines above it may have the other sign
    assert "it need not be that of the two scores" in " ".join(page.split())
    commands = re.findall(r"reticent ((?:promote|ledger sign) .*?)(?:, and|\. Else)", page)
    assert len(commands) == 2
    monkeypatch.chdir(tmp_path)
    for command in commands:
        answer(tmp_path / "home", *command.replace("CARD", "card.toml").replace("NAME", "Ann").split())


def test_a_table_of_differences_says_which_it_leaves_out(tmp_path):
    """In state b practice does as advised in six of ten cases: the advice changes four, and no row says so."""
    draw, lines = random.Random(DRAW), list[str]()
    for i in range(1_800):
        for step in range(2):
            mood = draw.choice("ab")
            drug = "x" if draw.random() < (0.6 if mood == "b" else 0.3) else "y"
            lines.append(f"p{i},{step},{mood},{drug},{int(draw.random() < (0.9 if drug == 'x' else 0.1))}")
    page = studied(tmp_path, "person,step,mood,drug,cured", lines, "drug")
    words = page.partition("### Where it differs")[2].partition("###")[0]
    assert "| a | 0–1 | x |" in words and "| b |" not in words
    assert "Where practice mostly does something else." in words


def test_a_log_without_another_column_is_not_told_to_have_fewer_states(tmp_path):
    header, lines = "patient,mood,drug,cured", one_step(900, 2)
    notes = [f"{header},bed", *(f"{line},note {i}" for i, line in enumerate(lines))]
    for name, log in (("alone", [header, *lines]), ("beside", notes)):
        (folder := tmp_path / name).mkdir()
        reticent.draft(lines_in(folder, *log), state="mood", action="drug", reward="cured").save(folder)
        for verb in ("register", "ingest"):
            answer(folder / "home", verb, folder / "card.toml")
        told = invoke("--home", folder / "home", "inspect", folder / "card.toml").output
        assert ("the log has no column beside those of the card" in told) == (name == "alone"), told
        assert ("fewer states or more people can be tested" in told) == (name == "beside"), told


def test_money_with_its_sign_before_it_is_a_number_and_no_word(tmp_path):
    frame = visits(spent=lambda i, h: f"${500 * ((i + h) % 4):,}.00").drop("score")
    draft, values = proposed(frame, order="on", reward="spent")
    assert values["source"]["units"] == {"spent": {"$": 1.0}} and "words" not in values["reward"]
    assert ingested(tmp_path, draft, frame)["quarantined"] == {}


def test_rows_of_one_day_that_saw_other_states_may_be_steps_of_their_own():
    frame = visits(at=lambda i, h: f"2026-01-03T1{h}:00", mood=lambda i, h: "ab"[h], on=lambda i, h: "2026-01-03")
    refuses(r"(?s)stand at the same 'on'.*add one of[^\n]*\n  --order at", frame, order="on")
    assert told_of(frame, order="at")[0]["domain"]["horizon"] == 2


def test_one_step_a_person_of_many_contexts_takes_the_agent_whose_sums_do_not_drown():
    draw = random.Random(DRAW)
    topic = lambda: {"topic": f"t{draw.randint(0, 79)}", "exercise": draw.choice("abcde")}  # noqa: E731
    rows = [{"learner": f"u{i}", **topic(), "passed": i % 2} for i in range(6_000)]
    draft = reticent.draft(pl.DataFrame(rows))
    source = tomllib.loads(draft.toml)["source"]
    # a person is one episode, and nobody comes again
    assert source["columns"] == {"user_id": "learner", "episode_id": "learner", "reward": "passed"}
    assert "order_by" not in source
    again = reticent.draft(pl.DataFrame([*rows, rows[0] | {"passed": 1}])).toml
    assert "episode_id" not in tomllib.loads(again)["source"]["columns"]
    assert tomllib.loads(draft.recipe)["recipe"]["agent"] == "dp-one-step"


def test_a_measurement_that_every_row_has_its_own_of_is_named_and_so_are_rows_of_nobody():
    frame = visits(age=lambda i, h: 40 + i / 7 + h / 3)
    frame = frame.with_columns(patient=pl.when(pl.int_range(pl.len()) % 20 > 0).then("patient"))
    notes = reticent.draft(frame, order="on", last_row="ends").notes
    assert any("not in the card: 'age'" in note for note in notes)
    assert any("6 rows (5.0%) name no person" in note for note in notes)


def test_an_episode_ends_with_the_one_row_that_pays_where_no_state_knows_who_was_paid(tmp_path):
    paid = {"offer": lambda i, h: "xy"[(i + h) % 2], "bought": lambda i, h: int(h == i % 4)}
    draft, values = proposed(frame := weeks(120, 3, level=ab, **paid))
    assert values["reward"]["total"] == 1 and values["source"]["columns"]["terminated"] == "bought"
    assert any("nobody is paid again" in note for note in draft.notes)
    # 30 people are paid in the first week, and 30 in the second: two rows and one follow
    assert ingested(tmp_path, draft, frame)["quarantined"] == {"after_end": 90}
    money = reticent.draft(frame.with_columns(pl.col("bought") * 19.5))
    assert "terminated" not in money.toml and any("looks better than it is" in note for note in money.notes)


def late(people: int = 60, **more) -> pl.DataFrame:
    """Visits whose outcome, yes or no, stands on the last row alone, beside a score that is no outcome."""
    frame = visits(people, back_at_work=lambda i, h: ("yes" if i % 2 else "no") if h else None, **more)
    return frame.rename({"score": "pain_score", "mood": "ward"})


def test_an_outcome_on_last_rows_alone_is_asked_about_beside_a_score_and_is_no_state():
    asked = r"(?s)what came of it\?.*taken so far: .*--action drug.*--reward back_at_work\n  --reward pain_score"
    refuses(asked, late(), state="ward")
    with pytest.raises(reticent.CardError) as told:
        reticent.draft(late(), reward="back_at_work")
    assert "was seen before" in str(told.value) and "--state back_at_work" not in str(told.value)
    values = told_of(late(), state="pain_score", reward="back_at_work")[0]
    assert values["reward"]["empty"] == 0.0 and values["reward"]["words"] == {"no": 0.0, "yes": 1.0}
    assert "terminated" not in values["source"]["columns"] and values["domain"]["horizon"] == 2


def test_dates_in_several_styles_are_keys_of_the_card_and_order_the_rows(tmp_path):
    styles = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y"]
    frame = late(90, on=lambda i, h: (date(2026, 1, 3) + timedelta(days=i % 40 + 30 * h)).strftime(styles[i % 3]))
    draft = reticent.draft(frame, state="pain_score", reward="back_at_work")
    source = tomllib.loads(draft.toml)["source"]
    assert source["dates"] == ["dd.mm.yyyy", "mm/dd/yyyy"] and source["order_by"] == "on"
    answer = ingested(tmp_path, draft, frame)
    assert (answer["users"], answer["rows"], answer["quarantined"]) == (90, 180, {})
    rows = stored(answer)
    assert rows.filter(pl.col("step") == 0)["reward"].sum() == 0 and rows["reward"].sum() == 45
    both = frame.with_columns(on=pl.when(pl.col("patient") == "p7").then(pl.lit("25/01/2026")).otherwise("on"))
    unlike = "day first in some rows and the month first in others, as in 25/01"
    refuses(unlike, both, state="pain_score", reward="back_at_work")
    broken = (tmp_path / "card.toml").read_text().replace('"dd.mm.yyyy", ', '"dd/mm/yyyy", ')
    (tmp_path / "card.toml").write_text(broken)
    with pytest.raises(reticent.CardError, match="03/04/2026 may be of"):
        reticent.load_card(tmp_path / "card.toml")


_WHILES = ("handle_time_s", "hour", "hours_waited", "months_since_signup", "timespent_s", "response_times_ms")


@pytest.mark.parametrize(
    ("dated", "name"), [*((True, name) for name in _WHILES), (False, _WHILES[0]), (False, _WHILES[4])]
)
def test_how_long_a_call_took_does_not_order_calls(dated, name):
    """In the order of their lengths, routing that does nothing was better in two of four worlds."""
    draw = random.Random(DRAW)
    calls = [{"customer": f"c{i % 300}", "topic": draw.choice(["bill", "line"])} for i in range(600)]
    for i, call in enumerate(calls):
        call |= {"at": f"2025-0{1 + i // 300}-{draw.randint(1, 28):02}"} if dated else {}
        call |= {name: draw.randint(30, 900), "queue": draw.choice(["bot", "human"]), "solved": draw.choice(["Y", "N"])}
    asked = {"action": "queue", "state": "topic", "reward": "solved"}
    if dated:
        assert told_of(pl.DataFrame(calls), **asked)[0]["source"]["order_by"] == "at"
    else:
        refuses("Which column does, or is each row", pl.DataFrame(calls), **asked)


def test_rows_that_a_column_may_order_ask_which_and_may_stand_alone(tmp_path):
    frame = visits(600, nr=lambda i, h: h).drop("on")
    refuses(r"(?s)has several rows, and no date orders them.*--order nr\n", frame)
    assert told_of(frame, order="nr")[0]["domain"]["horizon"] == 2
    draft, values = proposed(frame, order="none", last_row="ends")
    assert (values["domain"]["horizon"], values["unit"]["episodes_per_user"]) == (1, 2)
    assert values["source"]["columns"].keys() == {"user_id", "reward"}
    assert ingested(tmp_path, draft, frame)["rows"] == 1200


_UNREAD = ("%-m/%-d/%Y %-I:%M %p", "%Y-%m-%d %H:%M:%S,250", "%Y-%-m-%-d %-H:%M", "%d.%m.%y", "%d-%b-%Y", "%b %-d, %Y")


@pytest.mark.parametrize("form", [*_UNREAD, "%Y%m%dT%H%M%S", "%a %b %d %H:%M:%S %Y"])
def test_dates_that_nobody_can_read_are_asked_for_before_rows_stand_alone(form):
    """Each visit became a person's episode of one step, for a clock of twelve hours."""
    frame = visits(600, seen=lambda i, h: (datetime(2026, 1, 3, 8) + timedelta(days=i % 9 + 12 * h)).strftime(form))
    frame = frame.drop("on")
    refuses(r"(?s)has several rows.*'seen' looks like one .*Write it as 2026-01-31 13:30.*--order none", frame)
    refuses("'seen' holds no numbers and no dates", frame, order="seen")
    assert told_of(frame, order="none")[0]["domain"]["horizon"] == 1


def test_the_row_numbers_of_pandas_are_no_column():
    table = visits(nr=lambda i, h: h).to_arrow()
    numbered = table.append_column("__index_level_0__", [list(range(len(table)))])
    assert reticent.draft(numbered, name="same").toml == reticent.draft(table, name="same").toml


def test_states_that_the_log_lacks_do_not_stop_the_run_that_was_drafted():
    values, notes = told_of(visits(300, mood=lambda i, h: None if i % 8 == h else "ab"[(i + h) % 2]))
    assert values["tolerance"]["unknown_label"] == 0.55 and values["tolerance"]["repeat"] == 0.1
    assert "tolerance.unknown_label" in values["provenance"]["from_data"] and "up to 0.55" in notes


def test_a_card_of_which_no_verdict_would_come_is_named_before_a_budget_is_spent():
    """Of 40 000 people and 14 steps half of the budget was spent, for "nobody measured"."""
    draw, said = random.Random(DRAW), "no verdict would come of this card. Intervals were measured from 2 to 12 steps"
    for steps, found in ((14, True), (4, False)):
        cells = {"mood": lambda *_: draw.choice("ab"), "action": lambda *_: draw.choice("xy")}
        frame = weeks(4_000, steps, **cells, reward=lambda i, h: i % 2)
        assert (said in told_of(frame, paid="each")[1]) == found


def test_a_folder_that_cannot_be_used_is_refused_before_anything_is_asked(tmp_path):
    files = [ward("n.csv", HEAD, range(40), tmp_path), ward("s.csv", "Pat.,a,b,c,d", range(50, 90), tmp_path)]
    assert "lies elsewhere" in refusal(tmp_path / "home", "draft", *files, "--to", tmp_path / "study")


def test_a_frame_is_inspected_for_what_its_deciders_saw(tmp_path):
    drug = {"drug": lambda i, h: "xyz"[i // 2 % 3] if i % 5 else "xy"[i % 2]}
    frame = visits(2400, frail=lambda i, h: i % 2, **drug)
    card = reticent.load_card(reticent.draft(frame, state="mood", action="drug", paid="each").save(tmp_path))
    store = reticent.Store(tmp_path / "home")
    store.register(card)
    store.ingest(card, frame)
    assert not store.inspect(card)["hidden_state"]["checked"]
    warned = {w["code"]: w for w in store.inspect(card, frame)["warnings"]}
    assert "frail" in str(warned["hidden_column"])


def test_an_early_end_is_said_to_save_what_later_steps_would_cost():
    frame = visits(600, cost=lambda i, h: -1 - (i + h) % 3)
    left = frame.filter(pl.int_range(pl.len()) % 10 != 1)
    ends, unknown = (told_of(left, order="on", reward="cost", last_row=way)[1] for way in ("ends", "unknown"))
    assert "counts 0, so that an early end saves costs" in ends and "early end" not in unknown


def test_words_among_the_numbers_of_a_state_are_said_to_cost_their_people():
    pressure = lambda i, h: "n/a" if i % 20 == h else str(100 + (7 * i + 3 * h) % 60)  # noqa: E731
    notes = told_of(weeks(200, 2, bp=pressure, drug=xy, good=lambda i, h: i % 3 % 2), state="bp", paid="each")[1]
    assert "5.0% of the filled cells of 'bp' are no numbers: their episodes are dropped (unparsable)" in notes


def test_what_is_measured_next_is_not_offered_for_a_state():
    seen = {"bp": lambda i, h: i % 7, "next_bp": lambda i, h: (i + h) % 7, "zip": lambda i, h: i % 50}
    frame = weeks(200, 2, **seen, drug=xy, good=lambda i, h: h)
    with pytest.raises(reticent.CardError, match="which column says what was seen before") as asked:
        reticent.draft(frame, action="drug", reward="good")
    assert "--state bp" in str(asked.value) and "next_bp" not in str(asked.value)
    notes = told_of(frame, action="drug", reward="good", state="bp")[1]
    [beside] = [line for line in notes.split("\n") if line.startswith("not in the card")]
    assert "next_bp" not in beside and "--state bp --state zip" in beside


PLAIN = "pid,visit,level,treatment,ok"
FEW = [f"p{i},{h},{'ab'[(i + h) % 2]},{'xy'[i % 3 % 2]},{h}" for i in range(100) for h in (0, 1)]


def test_the_numbers_of_rows_that_a_data_frame_writes_play_no_part(tmp_path):
    values, notes = told_of(lines_in(tmp_path, f",{PLAIN}", *(f"{i},{line}" for i, line in enumerate(FEW))))
    assert values["source"]["columns"]["episode_id"] == "pid" and "a column without a name is left out" in notes


def test_a_blank_behind_an_id_does_not_cut_a_person_in_two(tmp_path):
    padded = [line.replace(",", "  ,", 1) if i % 2 else line for i, line in enumerate(FEW)]
    draft, values = proposed(lines_in(tmp_path, PLAIN, *padded))
    assert values["domain"]["horizon"] == 2
    answer = ingested(tmp_path, draft)
    assert (answer["users"], answer["episodes"], answer["quarantined"]) == (100, 100, {"two_spellings": 100})


def test_a_log_of_which_most_lines_cannot_be_read_is_refused_and_a_column_named_twice_is_said(tmp_path):
    broken = [line.replace(",a,", ',"a\nb",').replace(",b,", ',"b\na",') for line in FEW]
    refuses("400 lines cannot be read, and 0 can", lines_in(tmp_path, PLAIN, *broken))
    # and of one with a column that is named twice that is said
    twice = lines_in(tmp_path, f"{PLAIN},more,more", *(f"{line},1,2" for line in FEW))
    assert "visits.csv names 'more' more than once" in told_of(twice)[1]


def roles_of(columns: str) -> dict[str, str]:
    """Columns of the roles of a log of one row a person, whose columns are of numbers 0 to 9, words, or yes and no."""
    draw, n = random.Random(DRAW), 600
    cells = {"#": range(10), "%": ["north", "south"], "?": [0, 1]}
    log = {name[:-1]: draw.choices(cells[name[-1]], k=n) for name in columns.split()}
    values = tomllib.loads(reticent.draft(pl.DataFrame({"patient": [f"p{i}" for i in range(n)], **log})).toml)
    domain = values["domain"]
    roles = {"state": domain["states"]["column"], "action": domain["actions"]["column"]}
    return roles | {"reward": values["source"]["columns"].get("reward", "")}


@pytest.mark.parametrize(
    ("columns", "action"),
    [
        # a page advised not to have the reaction, and that the chemotherapy of last year be none
        ("severity% drug% adverse_reaction? recovered?", "drug"),
        ("severity% satisfaction# treatment% recovered?", "treatment"),
        ("prior_treatment% severity% drug% recovered?", "drug"),
        ("severity% chemotherapy% recovered?", "chemotherapy"),
    ],
)
def test_a_part_of_a_word_and_what_was_given_before_name_no_action(columns: str, action: str) -> None:
    assert roles_of(columns) == {"state": "severity", "action": action, "reward": "recovered"}


@pytest.mark.parametrize(
    ("columns", "reward"),
    [
        ("segment% past_click? offer% converted?", "converted"),
        ("stage% drug% score_before# score_after#", "score_after"),
        # of one row a person, who was discharged is no end of an episode but what came of it
        ("severity% drug% discharged?", "discharged"),
    ],
)
def test_what_was_there_before_is_no_outcome(columns: str, reward: str) -> None:
    assert roles_of(columns)["reward"] == reward


@pytest.mark.parametrize(
    ("columns", "asked"),
    [
        # what came of a decision was taken for the state, and a policy sought a higher risk
        ("risk_score# drug% repaid?", "what came of it.*--reward repaid\n.*--reward risk_score"),
        ("age# risk_score# drug% died?", "what came of it.*--reward died\n.*--reward risk_score"),
        ("severity% drug% readmitted_30d?", "more of 'readmitted_30d' is worse: is it.*--word 0=1 --word 1=0"),
        ("pain_score# drug% pain_score_after#", "more of 'pain_score_after' is worse: is it.*--word 0=9"),
        ("severity% drug% died?", "more of 'died' is worse: is it"),
    ],
)
def test_scores_that_may_be_older_and_outcomes_that_are_worse_are_asked_about(columns: str, asked: str) -> None:
    with pytest.raises(reticent.CardError, match=f"(?s){asked}"):
        roles_of(columns)


def test_a_dose_beside_a_drug_and_money_beside_a_click_are_named() -> None:
    rows = [(i, "ab"[i % 2], "xy"[i % 2], "lh"[i % 2], i % 2, i % 3) for i in range(400)]
    log = pl.DataFrame(rows, orient="row", schema=["patient", "mood", "drug", "dose", "clicked", "paid"])
    notes = told_of(log)[1]
    assert "'drug' is the action (what was done) by its name, and 'dose' may be: --action COLUMN" in notes
    assert "and 'clicked' may be: --reward COLUMN" in notes or "and 'paid' may be: --reward COLUMN" in notes
    assert "may be: --action" not in told_of(log, action="drug")[1]


def test_an_id_of_a_visit_asks_who_came() -> None:
    rows = [(i, f"h{i % 700}", "ab"[i % 2], "xyz"[i % 3], i % 2) for i in range(2000)]
    log = pl.DataFrame(rows, orient="row", schema=["visit_id", "holder", "mood", "drug", "good"])
    refuses("every row has its own 'visit_id'.*\n.*\n  --user holder", log)
    assert told_of(log, user="visit_id")[0]["unit"]["user"] == "visit_id"
