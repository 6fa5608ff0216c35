"""More logs with traps: rows that came twice, a spreadsheet of another country, money at the end, late outcomes."""

from __future__ import annotations

import csv
import json
import random
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa

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
    path = folder / "platform.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    return path


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
        files.append(folder / f"{ward}.csv")
        files[-1].write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
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
    spelt = {
        "abwarten": ["abwarten", "Abwarten"],
        "antibiotikum": ["Antibiotikum", "ANTIBIOTIKUM "],
        "kortison": ["Kortison"],
    }
    for station, head in heads.items():
        rows = list[str]()
        for who in range(people // 3):
            at, sick, good = (
                datetime(2025, 1, 1, 7) + timedelta(minutes=draw.randint(0, 400_000)),
                draw.random() < 0.5,
                False,
            )
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
        files.append(folder / f"{station}.csv")
        files[-1].write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    copy, outcomes = folder / "ost (1).csv", folder / "outcome.csv"
    shutil.copy(files[0], copy)
    outcomes.write_text("\n".join(late) + "\n", encoding="utf-8")
    return [*files, copy, outcomes]


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
    path = folder / "orders.ndjson"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def lessons(folder: Path, people: int) -> Path:
    """One step a person: 300 topics, most of them rare, five exercises; topic n is learnt best by exercise n mod 5."""
    draw, given = random.Random(77), ["video", "quiz", "text", "peer", "forum"]
    rows = list[dict[str, object]]()
    for who in range(people):
        topic, which = draw.randrange(1 + draw.randrange(300)), draw.randrange(5)
        at = datetime(2026, 3, 1) + timedelta(minutes=draw.randint(0, 40_000))
        passed = draw.random() < (0.9 if which == topic % 5 else 0.3)
        rows.append(
            {
                "learner": f"u{who:06}",
                "topic": f"t{topic:03}",
                "exercise": given[which],
                "at": at,
                "passed": int(passed),
            }
        )
    path = folder / "lessons.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


def tapering(folder: Path, people: int) -> list[Path]:
    """Three pain clinics: other headers, two styles of dates, rows that came twice, doses with units, outcomes on last
    rows alone; who walks little gets less and does worse.
    """
    draw, rows = random.Random(81), [list[list[object]](), list[list[object]](), list[list[object]]()]
    for who in range(people):
        clinic, frail, day = (
            draw.randrange(3),
            draw.random() < 0.35,
            datetime(2025, 1, 6) + timedelta(draw.randint(0, 200)),
        )
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
    files = [folder / name for name in ("north.csv", "south.csv", "west.csv")]
    for file, head, lines in zip(files, heads, rows, strict=True):
        draw.shuffle(lines)
        with file.open("w", encoding="utf-8", newline="") as to:
            csv.writer(to).writerows([head, *lines])
    return files


def tutoring(people: int) -> pa.Table:
    """A sorted pandas frame as Arrow has it: row numbers, an id of each row, float ids of people, missing readings."""
    draw, rows = random.Random(82), list[dict[str, float | str | None]]()
    for who in range(people):
        level = draw.choice([0, 0, 1, 1, 2])
        for week in range(1, 5):
            support = draw.choices(["none", "peer", "tutor"], [(5, 3, 2), (3, 4, 3), (2, 3, 5)][level])[0]
            good = {"none": (0.2, 0.45, 0.8), "peer": (0.5, 0.5, 0.8), "tutor": (0.3, 0.65, 0.82)}[support][level]
            passed = draw.random() < good
            quiz = None if draw.random() < 0.03 else float((32, 58, 83)[level] + draw.randint(-11, 11))
            row: dict[str, float | str | None] = {
                "record_id": float(len(rows)),
                "student_no": None,
                "week": float(week),
            }
            row["student_no"] = None if draw.random() < 0.004 else 100_001.0 + who
            rows.append(row | {"quiz": quiz, "support": support, "passed": float(passed)})
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
    files = [folder / f"calls_{month}.csv" for month in (1, 2, 3)]
    for file, head, lines in zip(files, heads, rows, strict=True):
        with file.open("w", encoding="utf-8", newline="") as to:
            csv.writer(to, delimiter=";").writerows([head.split(";"), *lines])
    return files
