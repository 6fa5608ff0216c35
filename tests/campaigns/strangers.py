"""A stranger's hour: thirteen logs that nobody prepared, from file to page, by what a stranger would type.

``python -P -m tests.campaigns.strangers`` prints the table of docs/lab/learning.md.
"""

import csv
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa

import reticent
from tests.campaigns.rows import markdown, markdown_row

PEOPLE = 4_000
Written = Path | list[Path] | pa.Table


@dataclass(frozen=True)
class Stranger:
    """A log, how it is written, what its owner knows, and a decision that the log teaches.

    ``people``: columns that may name them.  ``asks``: a state, a step, and the action that is best there;
    None: no action is better than another, and the column that makes it seem so is to be named.  ``told``:
    options of the draft, where its own guess is not what the owner asks about.  ``times``: how many times as many
    people as usual.
    """

    log: Callable[[Path, int], Written]
    people: tuple[str, ...]
    asks: tuple[str, int, str] | None
    traps: str
    told: dict[str, Any] = field(default_factory=dict[str, Any])
    times: int = 1

    @property
    def name(self) -> str:
        return self.log.__name__

    def write(self, folder: Path) -> Written:
        return self.log(folder, self.times * PEOPLE)


def _text(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _csv(path: Path, lines: Sequence[Sequence[object]], mark: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=mark).writerows(lines)
    return path


def clinic(folder: Path, people: int) -> Path:
    """Visits on dates, two cards a patient, accents and blanks in labels, costs in cents, torn lines, lost readings."""
    draw, lines = random.Random(1), ["patient_id,clinic card,visit date,pressure,Traitement proposé,euro cents"]
    for who in range(people):
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
    return _text(folder / "consultations.csv", lines)


def course(folder: Path, people: int) -> Path:
    """Weeks from 1, some of them missing; a nickname and an account a student; half points; capitals at will."""
    draw, lines = random.Random(2), list[str]()
    for who in range(people):
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
    return _text(folder / "course.ndjson", lines)


def calls(folder: Path, people: int) -> Path:
    """A call centre in Parquet: times as steps, calls grouped in contracts, refunds below zero, commas in labels."""
    draw, rows = random.Random(3), list[dict[str, object]]()
    for who in range(people):
        at, mood = datetime(2026, 1, 1, 8) + timedelta(hours=draw.randint(0, 4000)), draw.choice(["angry", "calm"])
        for _ in range(draw.randint(2, 4)):
            at += timedelta(hours=draw.randint(2, 90))
            offer = draw.choice(["refund, partial", "call back", "nothing"])
            glad = draw.random() < {"refund, partial": 0.8, "call back": 0.5, "nothing": 0.2}[offer]
            cents = (900 if glad else 0) - (150 if offer.startswith("refund") else 0)
            row = {"customer": f"k{who}", "phone id": f"t{who}-{draw.randint(1, 2)}", "called at": at}
            row["mood"] = None if draw.random() < 0.02 else mood
            rows.append(row | {"offer made": offer, "gain in cents": cents})
            mood = "calm" if glad else "angry"
    path = folder / "calls.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


ZONES = [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "UTC")]
HELPS = {
    "Novice": {"video": 0.75, "text": 0.4, "peer review": 0.25},
    "Improver": {"video": 0.4, "text": 0.5, "peer review": 0.8},
}
CURES = {"d": 0.5, "i": 0.85, "k": 0.2}
# chance that a session ends with a sale, by its last page and whether it showed a coupon
SALES = {("basket", True): 0.7, ("basket", False): 0.2, ("landing", True): 0.1}


def platform(folder: Path, people: int) -> Path:
    """Events in each learner's own time zone, in two ways of writing it; one in 25 rows came twice; TRUE and FALSE."""
    draw, rows = random.Random(71), list[dict[str, str]]()
    for who in range(people):
        zone = draw.choice(ZONES)
        at = datetime(2026, 3, 27, 9, tzinfo=zone) + timedelta(hours=draw.randint(0, 200))
        level = draw.choice(["Novice", "Improver"])
        for _ in range(draw.randint(3, 5)):
            nudge = draw.choice(["video", "text", "peer review"])
            passed = draw.random() < HELPS[level][nudge]
            when = at.isoformat(sep=" " if draw.random() < 0.3 else "T")
            row = {"learner_uuid": f"{who:08x}", "occurred_at": when, "level": level, "nudge": nudge}
            rows.extend([row | {"quiz_passed": str(passed).upper()}] * (1 + (draw.random() < 0.04)))
            at = (at + timedelta(hours=draw.randint(5, 60))).astimezone(zone)
            level = "Improver" if passed else level
    draw.shuffle(rows)
    return _csv(folder / "platform.csv", [[*rows[0]], *([*row.values()] for row in rows)])


def hospital(folder: Path, people: int) -> Path:
    """A German spreadsheet: a byte order mark, semicolons, decimal commas, its dates."""
    draw, lines = random.Random(72), ["Patienten-Nr;Aufnahmedatum;Kalium (mmol/l);Maßnahme;Nutzen"]
    for who in range(people):
        day, high = datetime(2025, 1, 1) + timedelta(days=draw.randint(0, 300)), draw.random() < 0.5
        for _ in range(4):
            day += timedelta(days=draw.randint(1, 9))
            level = f"{draw.gauss(5.6 if high else 4.2, 0.4):.1f}".replace(".", ",")
            done = draw.choice(["Diät", "diät", "Infusion", "INFUSION", "keine Maßnahme", "Keine Maßnahme"])
            good = draw.random() < (CURES[done[0].lower()] if high else 0.8)
            lines.append(f"{who + 1};{day:%d.%m.%Y};{level};{done};{'1,50' if good else '0,25'}")
            high = not good
    path = folder / "krankenhaus.csv"
    path.write_bytes(b"\xef\xbb\xbf" + ("\r\n".join(lines) + "\r\n").encode())
    return path


def shop(folder: Path, people: int) -> Path:
    """Sessions of two to four pages: categories, nulls, an action that is a boolean, revenue on the last row alone."""
    draw, rows = random.Random(73), list[dict[str, object]]()
    for who in range(people):
        at, pages = datetime(2026, 5, 1) + timedelta(minutes=draw.randint(0, 50_000)), draw.randint(2, 4)
        for n in range(pages):
            at += timedelta(minutes=draw.randint(1, 9))
            page, shown = draw.choice(["landing", "product", "basket"]), draw.random() < 0.5
            sold = draw.random() < SALES.get((page, shown), 0.3)
            paid = None if n < pages - 1 else draw.choice([19.9, 49.9, 99.0]) if sold else 0.0
            segment = draw.choice(["new", "returning", None])
            row = {"visitor": who, "session": 10_000 + who, "ts": at, "segment": segment, "page": page}
            rows.append(row | {"coupon_shown": shown, "revenue": paid})
    path = folder / "shop.parquet"
    kinds = [pl.col(name).cast(pl.Categorical) for name in ("page", "segment")]
    pl.DataFrame(rows, infer_schema_length=None).with_columns(kinds).write_parquet(path)
    return path


def wards(folder: Path, people: int) -> list[Path]:
    """Three wards: other headers, separators and units; days first; rows twice; corrections; the outcome weeks later.

    Lactate decides who gets fluids and who recovers, temperature nothing of it; fluids help where lactate is high.
    """
    draw, files = random.Random(74), list[Path]()
    heads = {
        "north": "patient,day,entered,temperature,lactate,treatment,recovered",
        "south": "Patient-Nr;Day;entered;temperature;Lactate;treatment;recovered",
        "west": "pat_id,day,entered,temperature,lactate (blood),treatment,outcome",
    }
    spelt = {"fluids": ["fluids", "Fluids ", "FLUIDS"], "none": ["none", "None"], "drug": ["drug"]}
    for ward, head in heads.items():
        mark, rows = ";" if ward == "south" else ",", list[str]()
        for who in range(people // 3):
            day, high = datetime(2025, 1, 1) + timedelta(days=draw.randint(0, 300)), draw.random() < 0.5
            good = 0.0
            for _ in range(3):
                level = draw.uniform(3, 6) if high else draw.uniform(0.8, 2)
                cell = f"{level:.2f} mmol/l" if ward != "west" else f"{9.0 * level:.1f} mg/dl"
                warm = f"{draw.uniform(36, 40):.1f} °C"
                cells = [cell.replace(".", ","), warm.replace(".", ",")] if ward == "south" else [cell, warm]
                done = draw.choices(list(spelt), (6, 1, 3) if high else (1, 6, 3))[0]
                helped = {"fluids": 0.75, "drug": 0.45, "none": 0.2}[done] if high else 0.85 - 0.3 * (done == "fluids")
                good = draw.random() < helped
                name, at = f"{ward[0]}{who:05}", f"{day.day}.{day.month}.{day.year}"
                text = draw.choice(spelt[done])
                rows.append(mark.join([name, at, f"{day:%Y-%m-%d} 08:00", cells[1], cells[0], text, ""]))
                if draw.random() < 0.03:
                    rows.append(rows[-1])
                elif draw.random() < 0.05:
                    # the evening's entry corrects the morning's
                    rows.append(rows[-1].replace("08:00", "20:00").replace(text, draw.choice(spelt[done])))
                    rows[-2] = rows[-2].replace(text, "none" if done != "none" else "drug")
                day += timedelta(days=draw.randint(1, 4))
                high = not good if draw.random() < 0.8 else high
            late = day + timedelta(days=60)
            told = [f"{ward[0]}{who:05}", f"{late.day}.{late.month}.{late.year}", f"{late:%Y-%m-%d} 12:00", "", "", ""]
            rows.append(mark.join([*told, str(int(good))]))
        draw.shuffle(rows)
        files.append(_text(folder / f"{ward}.csv", [head, *rows]))
    return files


def stations(folder: Path, people: int) -> list[Path]:
    """Three stations and a file of outcomes: times with the day first, units in cells, a copy of a file, ja and nein.

    CRP decides who gets antibiotics and who recovers; temperature, the obvious state, nothing of it.
    """
    draw, files, late = random.Random(75), list[Path](), ["Patient;Datum;genesen"]
    heads = {
        "ost": "Patient;Zeitpunkt;Temperatur;CRP;Therapie",
        "west": "Pat.-Nr;Zeitpunkt;Temp.;CRP (mg/l);Therapie",
        "sued": "Patient;Datum/Uhrzeit;Temperatur;CRP;Behandlung",
    }
    spelt = {"abwarten": ["abwarten", "Abwarten"], "antibiotikum": ["Antibiotikum", "ANTIBIOTIKUM "]}
    spelt["kortison"] = ["Kortison"]
    for station, head in heads.items():
        rows = list[str]()
        for who in range(people // 3):
            at = datetime(2025, 1, 1, 7) + timedelta(minutes=draw.randint(0, 400_000))
            sick, good = draw.random() < 0.5, False
            for _ in range(3):
                crp = draw.uniform(60, 200) if sick else draw.uniform(1, 30)
                done = draw.choices(list(spelt), (1, 6, 3) if sick else (6, 1, 3))[0]
                helps = {"abwarten": 0.2, "antibiotikum": 0.8, "kortison": 0.45}
                good = draw.random() < (helps[done] if sick else 0.95 - 0.4 * helps[done])
                cells = f"{draw.uniform(36, 40.2):.1f} °C;{crp:.1f}".replace(".", ",")
                rows.append(f"{station[0]}{who:05};{at:%d.%m.%Y %H:%M};{cells};{draw.choice(spelt[done])}")
                at += timedelta(hours=draw.randint(10, 30))
                sick = draw.random() < 0.25 if good else sick or draw.random() < 0.8
            late.append(f"{station[0]}{who:05};{at + timedelta(days=60):%d.%m.%Y};{'ja' if good else 'nein'}")
        draw.shuffle(rows)
        files.append(_text(folder / f"{station}.csv", [head, *rows]))
    copy = shutil.copy(files[0], folder / "ost (1).csv")
    return [*files, copy, _text(folder / "outcome.csv", late)]


# chance that an order buys, by page and promotion
BUYS = {"Basket": {"free": 0.45, "10": 0.2, "none": 0.1}, "Browse": {"free": 0.03, "10": 0.12, "none": 0.05}}


def orders(folder: Path, people: int) -> Path:
    """Ids that are floats, several orders a day, labels that differ by case, blanks and ".0"; nobody buys twice."""
    draw, lines = random.Random(76), list[str]()
    spelt = {"free": ["Free", "free ", "FREE"], "10": ["10", "10.0", 10.0], "none": ["none", "None"]}
    for who in range(people):
        at, bought = datetime(2026, 2, 1, 8) + timedelta(days=draw.randint(0, 50)), False
        for _ in range(draw.randint(2, 5)):
            page, promo = draw.choice([*BUYS]), draw.choice([*spelt])
            buys = not bought and draw.random() < BUYS[page][promo]
            bought |= buys
            row = {"customer_id": float(who), "order_ts": f"{at:%Y-%m-%dT%H:%M:%S}", "day": f"{at:%Y-%m-%d}"}
            row |= {"page": draw.choice([page, page.upper(), f"{page} "]), "promo": draw.choice(spelt[promo])}
            lines.append(json.dumps(row | {"device": draw.choice(["ios", "web"]), "premium_sale": int(buys)}))
            at += timedelta(hours=draw.randint(1, 30))
    draw.shuffle(lines)
    return _text(folder / "orders.ndjson", lines)


def lessons(folder: Path, people: int) -> Path:
    """One step a person: 300 topics, most of them rare, five exercises; topic n is learnt best by exercise n mod 5."""
    draw, given = random.Random(77), ["video", "quiz", "text", "peer", "forum"]
    rows = list[dict[str, object]]()
    for who in range(people):
        topic, which = draw.randrange(1 + draw.randrange(300)), draw.randrange(5)
        at = datetime(2026, 3, 1) + timedelta(minutes=draw.randint(0, 40_000))
        passed = draw.random() < (0.9 if which == topic % 5 else 0.3)
        row = {"learner": f"u{who:06}", "topic": f"t{topic:03}", "exercise": given[which]}
        rows.append(row | {"at": at, "passed": int(passed)})
    path = folder / "lessons.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


def tapering(folder: Path, people: int) -> list[Path]:
    """Three pain clinics: other headers, two styles of dates, rows that came twice, doses with units, outcomes on last
    rows alone; who walks little gets less and does worse.
    """
    draw, rows = random.Random(81), [list[list[object]](), list[list[object]](), list[list[object]]()]
    for who in range(people):
        clinic, frail = draw.randrange(3), draw.random() < 0.35
        day = datetime(2025, 1, 6) + timedelta(draw.randint(0, 200))
        walk, pain = draw.gauss(28 if frail else 62, 8), draw.choice([0, 1, 1, 2, 2])
        for visit in range(3):
            usual = [(6, 3, 1), (3, 4, 3), (1, 3, 6)][pain]
            dose = draw.choices([0, 5, 10], [w * (3, 1, 0.3)[i] if frail else w for i, w in enumerate(usual)])[0]
            seen = [f"K{who:05}", day.strftime("%d.%m.%Y" if clinic == 1 else "%Y-%m-%d"), draw.randint(30, 85)]
            seen += [round((1.5, 5, 8.2)[pain] + draw.uniform(-1.4, 1.4), 1), round(walk + draw.gauss(0, 3))]
            eased = draw.random() < {0: 0.2, 5: 0.65, 10: 0.45}[dose] - 0.1 * frail
            pain = max(0, pain - 1) if eased else min(2, pain + (draw.random() < 0.3))
            well = draw.random() < (0.85, 0.5, 0.2)[pain] - 0.15 * frail
            seen += [f"{dose} mg" if clinic else f"{dose}mg", ("yes" if well else "no") if visit == 2 else ""]
            rows[clinic] += [seen] * (1 + (draw.random() < 0.02))
            day += timedelta(days=draw.randint(25, 35))
    heads = [
        ["patient_id", "visit_date", "age", "pain_score", "walk_minutes", "dose", "back_at_work"],
        ["Patient", "Date of visit", "Age", "Pain", "Walking (min)", "Dose", "Back at work"],
        ["pid", "date", "years", "pain", "walk", "dose_given", "work"],
    ]
    for lines in rows:
        draw.shuffle(lines)
    told = zip(("north.csv", "south.csv", "west.csv"), heads, rows, strict=True)
    return [_csv(folder / name, [head, *lines]) for name, head, lines in told]


def tutoring(_: Path, people: int) -> pa.Table:
    """A sorted pandas frame as Arrow has it: row numbers, an id of each row, float ids of people, missing readings."""
    draw, rows = random.Random(82), list[dict[str, float | str | None]]()
    for who in range(people):
        level = draw.choice([0, 0, 1, 1, 2])
        for week in range(1, 5):
            support = draw.choices(["none", "peer", "tutor"], [(5, 3, 2), (3, 4, 3), (2, 3, 5)][level])[0]
            good = {"none": (0.2, 0.45, 0.8), "peer": (0.5, 0.5, 0.8), "tutor": (0.3, 0.65, 0.82)}[support][level]
            passed = draw.random() < good
            quiz = None if draw.random() < 0.03 else float((32, 58, 83)[level] + draw.randint(-11, 11))
            student = None if draw.random() < 0.004 else 100_001.0 + who
            row = {"record_id": float(len(rows)), "student_no": student, "week": float(week), "quiz": quiz}
            rows.append(row | {"support": support, "passed": float(passed)})
            level = min(2, level + 1) if passed and draw.random() < 0.5 else level
    draw.shuffle(rows)
    return pa.Table.from_pylist(rows).append_column("__index_level_0__", [list(range(len(rows)))])


def nurses(folder: Path, people: int) -> list[Path]:
    """Call-backs of three months in which nothing that nurses do helps: they send ambulances to the sicker, by a score
    that is not the obvious state.
    """
    draw, rows = random.Random(83), [list[list[object]](), list[list[object]](), list[list[object]]()]
    for who in range(people):
        frail = draw.random() < 0.4
        for _ in range(draw.choice([1, 1, 2, 3])):
            month, score = draw.randrange(3), max(0, round(draw.gauss(7 if frail else 3, 1.6)))
            done = draw.choices(["ambulance", "call back", "advice"], (6, 2, 1) if score > 4 else (1, 3, 5))[0]
            well = "Y" if draw.random() < (0.35 if score > 4 else 0.8) else "N"
            at = datetime(2026, 1 + month, draw.randint(1, 28), draw.randint(0, 23), draw.randint(0, 59))
            when = at.strftime(("%d/%m/%Y %H:%M", "%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M")[month])
            why = draw.choice(["chest pain", "fall", "breathless", "Fall ", "other"])
            cells = [len(rows[0]) + 7 * who, f"{who:05}", when, why, "" if draw.random() < 0.02 else score, done, well]
            rows[month].append(cells)
    heads = ("Case no;Person;Called on;Complaint;NEWS score;Disposition;Well after 7 days",
             "case;person;called_on;complaint;news;disposition;well_after_7_days",
             "CaseID;PersonID;Date/time;Complaint;NEWS;Action;Well")  # fmt: skip
    told = zip((1, 2, 3), heads, rows, strict=True)
    return [_csv(folder / f"calls_{month}.csv", [head.split(";"), *lines], ";") for month, head, lines in told]


STRANGERS = (
    Stranger(clinic, ("patient_id", "clinic card"), ("pressure ≥ 150", 0, "Bêta bloquant"),
        "dates as steps, accents and blanks, cents, 3 torn lines, 2 % missing readings, two ids a person"),
    Stranger(course, ("account", "nickname"), ("beginner", 0, "worked example"),
        "weeks from 1 with holes, labels in several spellings, half points, 3 torn lines, 2 % missing, two ids"),
    Stranger(calls, ("customer", "phone id"), ("angry", 0, "refund, partial"),
        "times as steps, commas in labels, negative cents, 2 % missing, two ids a person",
        {"last_row": "ends"}),
    Stranger(platform, ("learner_uuid",), ("Novice", 0, "video"),
        "times in four zones, rows that came twice, TRUE and FALSE, an outcome that looks like an action",
        {"last_row": "ends"}),
    Stranger(hospital, ("Patienten-Nr",), ("Kalium (mmol/l) ≥ 5.4", 0, "Infusion"),
        "a byte order mark, semicolons, decimal commas, dates with the day first, capitals at will"),
    Stranger(shop, ("visitor",), ("basket", 1, "true"),
        "categories, nulls, an action that is a boolean, revenue on the last row of sessions of any length",
        {"state": "page"}),
    # the outcome is that of the last day: what is given earlier hardly reaches it
    Stranger(wards, ("patient",), ("lactate ≥", 2, "fluids"),
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
        }),
    # the outcome is that of the last visit: what is given earlier hardly reaches it
    Stranger(stations, ("Patient",), ("CRP ≥", 2, "antibiotikum"),
        "three files with other headers, a copy of one, days first with times, units, ja and nein in a file of their "
        "own, a confounder beside the obvious state",
        {
            "state": "CRP",
            "rename": {
                "Datum": "Zeitpunkt", "genesen": "", "Datum/Uhrzeit": "Zeitpunkt", "Behandlung": "Therapie",
                "Pat.-Nr": "Patient", "Temp.": "Temperatur", "CRP (mg/l)": "CRP",
            },
        }),
    Stranger(orders, ("customer_id",), ("Basket", 0, "free"),
        "ids that are floats, several orders a day, labels that differ by case, blanks and .0, nobody buys twice",
        {"order": "order_ts", "last_row": "ends"}),
    Stranger(lessons, ("learner",), ("t000", 0, "video"),
        "one step a person, 300 contexts, most of them rare, five actions", times=10),
    # many people, with two visits more to get well in: at the last one 5 mg is .06 better, which noise may hide
    Stranger(tapering, ("patient_id",), ("pain_score ≥ 6.5 · walk_minutes ≥", 1, "5 mg"),
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
        }, times=5),
    Stranger(tutoring, ("student_no",), ("quiz < ", 0, "peer"),
        "a sorted pandas frame: row numbers, an id of each row, float ids of people, missing readings and ids"),
    Stranger(nurses, ("Person",), None,
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
        }, times=2),
)  # fmt: skip


def hour(stranger: Stranger, folder: Path) -> dict[str, Any]:
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
    steps = ("draft", "ingest", "plan", "run")
    print(markdown(["log", "rows", *steps, "people lost", "edits of the card", "best found", "verdict"]))
    for stranger in STRANGERS:
        with tempfile.TemporaryDirectory() as folder:
            told = hour(stranger, Path(folder))
            took = (f"{s:.1f} s" for s in told["took"].values())
            best = "yes" if told["right"] else "no"
            print(markdown_row([stranger.name, f"{told['rows']:,}", *took, told["people"], 0, best, told["verdict"]]))


if __name__ == "__main__":
    main()
