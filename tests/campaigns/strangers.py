"""A stranger's hour: thirteen logs that nobody prepared, from file to page, by what a stranger would type.

``python -P -m tests.campaigns.strangers`` prints the table of docs/lab/learning.md.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

import reticent
from tests.campaigns import stranger_logs

PEOPLE = 4_000


@dataclass(frozen=True)
class Stranger:
    """A log, how it is written, what its owner knows, and a decision that the log teaches.

    ``people``: columns that may name them.  ``asks``: a state, a step, and the action that is best there;
    None: no action is better than another, and the column that makes it seem so is to be named.  ``told``:
    options of the draft, where its own guess is not what the owner asks about.
    """

    name: str
    write: Callable[[Path], Path | list[Path] | pa.Table]
    people: tuple[str, ...]
    asks: tuple[str, int, str] | None
    traps: str
    told: dict[str, Any] = field(default_factory=dict[str, Any])


def clinic(folder: Path) -> Path:
    """Visits on dates, two cards a patient, accents and blanks in labels, costs in cents, torn lines, lost readings."""
    draw, lines = random.Random(1), ["patient_id,clinic card,visit date,pressure,Traitement proposé,euro cents"]
    for who in range(PEOPLE):
        day, high = date(2025, 1, 1) + timedelta(days=draw.randint(0, 300)), draw.random() < 0.6
        for _ in range(4):
            day += timedelta(days=draw.randint(25, 35))
            reading = "" if draw.random() < 0.02 else str(round(draw.gauss(160 if high else 118, 9)))
            drug = draw.choice(["Bêta bloquant", "bêta bloquant ", "régime sans sel", "rien"])
            good = draw.random() < (0.85 if "bloquant" in drug else 0.3 if "sel" in drug else 0.15) or not high
            paid = 1250 if good else draw.choice([0, 250])
            lines.append(f"P{who:05},C{who:05}-{draw.randint(1, 2)},{day.isoformat()},{reading},{drug},{paid}")
            high = not good
        if who in (7, 700, 2100):
            lines.append(f"P{who:05},torn")
    path = folder / "consultations.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def course(folder: Path) -> Path:
    """Weeks from 1, some of them missing; a nickname and an account a student; half points; capitals at will."""
    draw, lines = random.Random(2), list[str]()
    for who in range(PEOPLE):
        level = draw.choice(["beginner", "getting there"])
        for week in range(1, 6):
            if draw.random() < 0.02:
                continue
            hint = draw.choice(["worked example", "Worked Example", "quiz, short", "none"])
            learns = {"worked example": 0.8, "quiz, short": 0.35, "none": 0.1}[hint.lower()]
            score = 1.5 if draw.random() < (learns if level == "beginner" else 0.5) else 0.5
            row = {"account": f"a{who}", "nickname": f"n{who}-{draw.randint(1, 2)}", "week": week}
            row |= {"skill level": None if draw.random() < 0.02 else level, "hint given": hint, "points": score}
            lines.append(json.dumps(row))
            level = "getting there" if score > 1 else level
        if who in (5, 50, 500):
            lines.append('{"account": "a5", "week"')
    path = folder / "course.ndjson"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def calls(folder: Path) -> Path:
    """A call centre in Parquet: times as steps, calls grouped in contracts, refunds below zero, commas in labels."""
    draw, rows = random.Random(3), list[dict[str, object]]()
    for who in range(PEOPLE):
        at, mood = datetime(2026, 1, 1, 8) + timedelta(hours=draw.randint(0, 4000)), draw.choice(["angry", "calm"])
        for _ in range(draw.randint(2, 4)):
            at += timedelta(hours=draw.randint(2, 90))
            offer = draw.choice(["refund, partial", "call back", "nothing"])
            glad = draw.random() < {"refund, partial": 0.8, "call back": 0.5, "nothing": 0.2}[offer]
            cents = (900 if glad else 0) - (150 if offer.startswith("refund") else 0)
            rows.append(
                {
                    "customer": f"k{who}",
                    "phone id": f"t{who}-{draw.randint(1, 2)}",
                    "called at": at,
                    "mood": None if draw.random() < 0.02 else mood,
                    "offer made": offer,
                    "gain in cents": cents,
                }
            )
            mood = "calm" if glad else "angry"
    path = folder / "calls.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


STRANGERS = (
    Stranger(
        "clinic",
        clinic,
        ("patient_id", "clinic card"),
        ("pressure ≥ 150", 0, "Bêta bloquant"),
        "dates as steps, accents and blanks, cents, 3 torn lines, 2 % missing readings, two ids a person",
    ),
    Stranger(
        "course",
        course,
        ("account", "nickname"),
        ("beginner", 0, "worked example"),
        "weeks from 1 with holes, labels in several spellings, half points, 3 torn lines, 2 % missing, two ids",
    ),
    Stranger(
        "calls",
        calls,
        ("customer", "phone id"),
        ("angry", 0, "refund, partial"),
        "times as steps, commas in labels, negative cents, 2 % missing, two ids a person",
        {"last_row": "ends"},
    ),
    Stranger(
        "platform",
        lambda folder: stranger_logs.platform(folder, PEOPLE),
        ("learner_uuid",),
        ("Novice", 0, "video"),
        "times in four zones, rows that came twice, TRUE and FALSE, an outcome that looks like an action",
        {"last_row": "ends"},
    ),
    Stranger(
        "hospital",
        lambda folder: stranger_logs.hospital(folder, PEOPLE),
        ("Patienten-Nr",),
        ("Kalium (mmol/l) ≥ 5.4", 0, "Infusion"),
        "a byte order mark, semicolons, decimal commas, dates with the day first, capitals at will",
    ),
    Stranger(
        "shop",
        lambda folder: stranger_logs.shop(folder, PEOPLE),
        ("visitor",),
        ("basket", 1, "true"),
        "categories, nulls, an action that is a boolean, revenue on the last row of sessions of any length",
        {"state": "page"},
    ),
    Stranger(
        "wards",
        lambda folder: stranger_logs.wards(folder, PEOPLE),
        ("patient",),
        # the outcome is that of the last day: what is given earlier hardly reaches it
        ("lactate ≥", 2, "fluids"),
        "three files, other headers, separators and units, days first, corrections of a day, the outcome weeks later, "
        "a measured confounder that is the state",
        {
            "state": "lactate",
            "rename": {
                "Patient-Nr": "patient", "pat_id": "patient", "Day": "day", "Lactate": "lactate",
                "lactate (blood)": "lactate", "outcome": "recovered",
            },
            "unit": {"lactate": {"mmol/l": 1.0, "mg/dl": 0.111}},
            "several": "last:entered",
        },
    ),
    Stranger(
        "stations",
        lambda folder: stranger_logs.stations(folder, PEOPLE),
        ("Patient",),
        # the outcome is that of the last visit: what is given earlier hardly reaches it
        ("CRP ≥", 2, "antibiotikum"),
        "three files with other headers, a copy of one, days first with times, units, ja and nein in a file of their "
        "own, a confounder beside the obvious state",
        {
            "state": "CRP",
            "rename": {
                "Datum": "Zeitpunkt", "genesen": "", "Datum/Uhrzeit": "Zeitpunkt", "Behandlung": "Therapie",
                "Pat.-Nr": "Patient", "Temp.": "Temperatur", "CRP (mg/l)": "CRP",
            },
        },
    ),
    Stranger(
        "orders",
        lambda folder: stranger_logs.orders(folder, PEOPLE),
        ("customer_id",),
        ("Basket", 0, "free"),
        "ids that are floats, several orders a day, labels that differ by case, blanks and .0, nobody buys twice",
        {"order": "order_ts", "last_row": "ends"},
    ),
    Stranger(
        "lessons",
        lambda folder: stranger_logs.lessons(folder, 10 * PEOPLE),
        ("learner",),
        ("t000", 0, "video"),
        "one step a person, 300 contexts, most of them rare, five actions",
    ),
    Stranger(
        "tapering",
        lambda folder: stranger_logs.tapering(folder, 5 * PEOPLE),
        ("patient_id",),
        # many people, with two visits more to get well in: at the last one 5 mg is .06 better, which noise may hide
        ("pain_score ≥ 6.5 · walk_minutes ≥", 1, "5 mg"),
        "three files with other headers, two styles of dates, rows that came twice, doses with units, the outcome on "
        "last rows alone beside a score, a measured confounder",
        {
            "state": ["pain_score", "walk_minutes"],
            "reward": "back_at_work",
            "rename": {
                "Patient": "patient_id", "Date of visit": "visit_date", "Age": "age", "Pain": "pain_score",
                "Walking (min)": "walk_minutes", "Dose": "dose", "Back at work": "back_at_work", "pid": "patient_id",
                "date": "visit_date", "years": "age", "pain": "pain_score", "walk": "walk_minutes",
                "dose_given": "dose", "work": "back_at_work",
            },
        },
    ),
    Stranger(
        "tutoring",
        lambda _: stranger_logs.tutoring(PEOPLE),
        ("student_no",),
        ("quiz < ", 0, "peer"),
        "a sorted pandas frame: row numbers, an id of each row, float ids of people, missing readings and ids",
    ),
    Stranger(
        "nurses",
        lambda folder: stranger_logs.nurses(folder, 2 * PEOPLE),
        ("Person",),
        None,
        "three months with other headers and dates, a score that drives treatment and outcome beside the obvious "
        "state; no action helps",
        {
            "state": "Complaint",
            "action": "Disposition",
            "reward": "Well after 7 days",
            "last_row": "ends",
            "rename": {
                "case": "Case no", "person": "Person", "called_on": "Called on", "complaint": "Complaint",
                "news": "NEWS score", "disposition": "Disposition", "well_after_7_days": "Well after 7 days",
                "CaseID": "Case no", "PersonID": "Person", "Date/time": "Called on", "NEWS": "NEWS score",
                "Action": "Disposition", "Well": "Well after 7 days",
            },
        },
    ),
)  # fmt: skip


def hour(stranger: Stranger, folder: Path) -> dict[str, object]:
    """From file to page; how long each step took, what was lost, and what the page says is best."""
    log, took, began = stranger.write(folder), dict[str, float](), time.monotonic()

    def note(step: str) -> None:
        nonlocal began
        took[step], began = time.monotonic() - began, time.monotonic()

    began = time.monotonic()
    draft = reticent.draft(log, user=stranger.people, **stranger.told)
    card, store = reticent.load_card(draft.save(folder)), reticent.Store(folder / "home")
    note("draft")
    store.register(card)
    ingested = store.ingest(card, log if isinstance(log, pa.Table) else None)
    note("ingest")
    plan = reticent.plan(folder / "recipe.toml", quality=False, store=store)
    note("plan")
    run = reticent.run(folder / "recipe.toml", store=store)
    note("run")
    action = ""
    if stranger.asks is not None:
        state, step, _ = stranger.asks
        states = sorted(s for s in run.policy.to_polars()["state"].unique() if s.startswith(state)) or [state]
        action = str(run.policy.act(states[0], step)["action"]).lower()  # type: ignore[typeddict-item]
    verdict = "none" if run.verdict is None else run.verdict.answer
    right = stranger.asks is not None and action == stranger.asks[2].lower()
    if stranger.asks is None:
        # better at most on a condition, and what breaks it is named
        warned = {w["code"]: w["what"] for w in store.inspect(card)["warnings"]}
        right = not (run.verdict is not None and run.verdict.holds) and "NEWS score" in warned.get("hidden_column", "")
    if verdict in ("better", "worse") and run.verdict is not None and not run.verdict.holds:
        verdict += ", conditional"
    return {
        "took": took,
        "people": ingested["report"]["people_lost"],
        "rows": ingested["rows"],
        "set_aside": {r["rule"]: r["rows"] for r in ingested["report"]["rules"]},
        "allowed": plan.allowed,
        "right": right,
        "verdict": verdict,
        "draft": draft,
        "run": run,
    }


def main() -> None:
    """Print the table."""
    print("| log | rows | draft | ingest | plan | run | people lost | edits of the card | best found | verdict |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for stranger in STRANGERS:
        with tempfile.TemporaryDirectory() as folder:
            told = hour(stranger, Path(folder))
            took = " | ".join(f"{s:.1f} s" for s in told["took"].values())  # type: ignore[union-attr]
            right = "yes" if told["right"] else "no"
            print(
                f"| {stranger.name} | {told['rows']:,} | {took} | {told['people']} | 0 | {right} | {told['verdict']} |"
            )


if __name__ == "__main__":
    main()
