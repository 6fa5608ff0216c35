"""Real pages for a browser: each family's report as ``run`` writes it, hostile labels, a big policy, a study."""

import json
from pathlib import Path

from flows.jobs.audit import audit_job
from flows.jobs.studies import study_job
from reports.run.run_page import render_html
from tests.flows.shop import lay_out
from tests.flows.test_comparing import RECIPE
from tests.jobs import home_at, ingest_job, run_job
from tests.learners.linear_shop import lay_out_linear
from tests.learners.lq_shop import lay_out_plant
from tests.reports.sample import sample_report, sample_view
from tests.reports.verdicts import judged

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
LONG = "unbroken" * 12
HEBREW = "שלום \u202eevil\u202c"
LABELS = (SCRIPT, LONG, HEBREW)


def reports(root: Path) -> dict[str, Path]:
    counts = lay_out(root / "counts")
    return {
        "counts": _run(counts, "private"),
        "baseline": _run(counts, "exact"),
        "linear": _run(lay_out_linear(root / "linear"), "linear"),
        "one shot": _run(lay_out_linear(root / "once"), "once"),
        "lq": _run(lay_out_plant(root / "lq"), "private"),
        "hostile": _run(_hostile(lay_out(root / "hostile")), "private"),
    }


def pages(root: Path) -> dict[str, Path]:
    found = reports(root)
    states = [f"state {i}" for i in range(716)]
    big = render_html(sample_report(dataset={"live_states": states}), sample_view(20, states, scattered=True))
    answers = {"better": judged("better", "synthetic"), "not_told_apart": judged("not_told_apart")}
    (root / "tiny.toml").write_text(RECIPE, encoding="utf-8")
    files = study_job(root / "tiny.toml", home_at(root / "studied"))["files"]
    study = next(Path(f) for f in files if f.endswith("page.html")).read_text(encoding="utf-8")
    audit = audit_job("riverswim", home_at(root / "audits"), draws=200, table=True).folder / "page.html"
    drawn = {answer: render_html(report, sample_view()) for answer, report in answers.items()}
    made = {**drawn, "big": big, "study": study, "audit": audit.read_text(encoding="utf-8")}
    for name, html in made.items():
        found[name] = root / f"{name}.html"
        found[name].write_text(html, encoding="utf-8")
    return found


def _run(folder: Path, recipe: str) -> Path:
    home = home_at(folder / "home")
    ingest_job(str(folder), home)
    return Path(run_job(str(folder / f"{recipe}.toml"), home)["report"])


def _hostile(shop: Path) -> Path:
    """The same log under names that nobody would choose."""
    card = shop / "card.toml"
    # a JSON string is a TOML string
    quoted = [json.dumps(label, ensure_ascii=False).replace("\u202e", "\\u202e") for label in LABELS]
    moods = f'labels = {{ {quoted[0]} = ["cold"], {quoted[1]} = ["warm"] }}'
    offers = f'labels = {{ {quoted[2]} = ["none"], {quoted[0]} = ["mail"], {quoted[1]} = ["call"] }}'
    text = card.read_text().replace('labels = ["cold", "warm"]', moods)
    text = text.replace('labels = ["none", "mail", "call"]', offers)
    card.write_text(text.replace('vetoes = [["cold", "call"]]', "vetoes = []"), encoding="utf-8")
    return shop
