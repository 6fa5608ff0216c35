"""What a reader's browser makes of every kind of page: Debian's chromium, headless, with network and scripts off."""

import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.reports.browser import CHROMIUM, Tab, browser
from tests.reports.pages import HEBREW, LABELS, LONG, pages
from tests.reports.sample import drawn, sample_report, sample_view

pytestmark = [
    pytest.mark.service,
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None or shutil.which("pdftotext") is None, reason="needs chromium and poppler-utils"
    ),
]
JUDGED = ("better", "not_told_apart")
RUNS = ("counts", "baseline", "linear", "one shot", "lq", "hostile", "big", *JUDGED)
ALL = (*RUNS, "study", "audit")
SCREENS = ((1400, 900), (900, 900), (390, 844))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("name", ALL)
def test_a_page_asks_for_nothing_and_its_tables_and_figures_can_be_read_aloud(made, tab, name):
    tab.open(made[name])
    asked = {told["request"]["url"] for told in tab.said("Network.requestWillBeSent")}
    assert asked == {made[name].resolve().as_uri()}
    assert not tab.said("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    wrong = tab.ask("""[...document.querySelectorAll('table')].filter(t => {
        const rows = [...t.tBodies[0].rows], head = t.tHead ? [...t.tHead.rows[0].cells] : [];
        const named = rows.every(r => r.cells[0].tagName === 'TH' && r.cells[0].scope === 'row');
        const columns = head.every(c => c.tagName === 'TH' && c.scope === 'col');
        return !(named && columns && rows.every(r => r.cells.length === (head.length || 2)));
    }).length""")
    assert wrong == 0 and tab.ask("document.querySelectorAll('table').length") > 0
    figures = tab.ask("""[...document.querySelectorAll('.figure svg')].map(s => [s.getAttribute('role'),
        s.getAttribute('aria-labelledby').split(' ').map(i => document.getElementById(i).textContent.length)])""")
    assert figures and all(role == "img" and min(lengths) > 5 for role, lengths in figures)


def edited(made: dict[str, Path], name: str, to: Path, old: str, new: str, *, policy: bool = False) -> Path:
    """A page with one change; its Content-Security-Policy, which would stop it, is taken out unless ``policy``."""
    text = made[name].read_text().replace(old, new)
    to.write_text(text if policy else text.replace("Content-Security-Policy", "none"))
    return to


def test_a_page_that_asks_for_a_picture_is_caught(made, tab, tmp_path):
    picture = '<main><img src="http://reticent.invalid/x.png">'
    leaky = edited(made, "counts", tmp_path / "leaky.html", "<main>", picture)
    tab.open(leaky)
    assert any("invalid" in told["request"]["url"] for told in tab.said("Network.requestWillBeSent"))
    assert tab.said("Log.entryAdded")


ATTACK = """<main><script>window.attacked = true</script>
<img src="x" onerror="window.attacked = true"><a id="bait" href="javascript:window.attacked = true">bait</a>
<style>h1 { letter-spacing: 99px; }</style><p id="styled" style="letter-spacing: 99px">x</p>
<iframe srcdoc="<script>parent.attacked = true</script>"></iframe>"""
CLICK = "document.getElementById('bait').click(), document.images.length === 1 && document.images[0].complete"
SPACED = "['h1', '#styled'].map(s => getComputedStyle(document.querySelector(s)).letterSpacing)"


# one page of each template, which holds the policy
@pytest.mark.parametrize("name", ["counts", "study", "audit"])
def test_what_is_put_into_a_page_neither_runs_nor_loads(made, tab, tmp_path, name):
    for policy in (True, False):
        page = edited(made, name, tmp_path / f"{policy}.html", "<main>", ATTACK, policy=policy)
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
        tab.visit(page.as_uri())
        tab.wait(CLICK)
        tab.ask("new Promise(done => setTimeout(done, 200))")
        # the twin without the policy is attacked
        assert tab.ask("window.attacked === true") is not policy
        assert (tab.ask(SPACED) == ["99px", "99px"]) is not policy
        asked = {told["request"]["url"] for told in tab.said("Network.requestWillBeSent")}
        sent = {told["response"]["url"] for told in tab.said("Network.responseReceived")}
        assert (page.as_uri() in sent) and (asked > {page.as_uri()} or policy)


@pytest.mark.parametrize("size", SCREENS)
@pytest.mark.parametrize("name", ALL)
def test_nothing_overflows_sideways_and_the_first_screen_answers(made, tab, name, size):
    tab.open(made[name], width=size[0], height=size[1])
    assert tab.ask("document.documentElement.scrollWidth") <= size[0]
    # what scrolls by itself may be wider; nothing else
    wider = "[...document.querySelectorAll('main *')].filter(e => !e.closest('.wide, .figure')"
    assert (
        tab.ask(wider + f" && e.getBoundingClientRect().right > {size[0]} + .5).map(e => e.outerHTML.slice(0, 80))")
        == []
    )
    if name not in RUNS:
        return
    drawn = [".range"] if tab.ask("document.querySelectorAll('#opening .range').length") else []
    for what in ("h1", ".learnt", *drawn):
        box = tab.ask(f"(b => [b.top, b.bottom, b.width])(document.querySelector({what!r}).getBoundingClientRect())")
        assert 0 <= box[0] < box[1] <= size[1] and box[2] > 0, (what, box)
    # the picture is as wide as the column
    assert not drawn or tab.ask("document.querySelector('.range').clientWidth") >= min(size[0] - 48, 900)
    assert tab.ask("document.querySelectorAll('#opening .cards > div').length") == 4
    assert tab.ask("document.querySelector('#opening #guarantee') !== null")
    # its names and its numbers do not meet
    met = """[...document.querySelectorAll('.range g[font-size="14"]')].filter(g => {
        const [name, numbers] = [...g.children].map(t => t.getBoundingClientRect());
        return name.right + 4 > numbers.left; }).map(g => g.textContent)"""
    assert tab.ask(met) == []


def test_hostile_labels_are_text(made, tab):
    tab.open(made["hostile"])
    assert tab.ask("document.querySelectorAll('script, main img').length") == 0
    assert tab.ask("document.title") == "A decision policy for shop"
    text = tab.ask("document.body.textContent")
    for label in (LABELS[0][:50], LONG[:50], HEBREW[:4]):
        assert label in text
    # no hidden change of writing direction: the page's own words stay in their order
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", text)


# contrast (WCAG 2) of every piece of text against the ground it stands on:
# of HTML the nearest opaque background; of SVG the filled shape under the text's middle, else the page's own
CONTRAST = r"""(() => {
  const rgba = c => { const n = c.match(/[\d.]+/g).map(Number); return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1]; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  const ground = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor);
    if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
  const dimmed = e => {
    const m = getComputedStyle(e).filter.match(/brightness\(([\d.]+)\)/); return m ? +m[1] : 1; };
  const under = t => { t.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
    const b = t.getBoundingClientRect();
    for (const e of document.elementsFromPoint(b.x + b.width / 2, b.y + b.height / 2)) {
      if (e === t || e.tagName === 'text' || e.tagName === 'tspan') continue;
      const fill = getComputedStyle(e).fill; if (e.ownerSVGElement && fill.startsWith('rgb')) {
        const c = rgba(fill); if (c[3] > 0) return c.map((v, i) => i < 3 ? v * dimmed(e) : v); }
      if (!e.ownerSVGElement && e.tagName !== 'svg') return ground(e); }
    return ground(t.ownerSVGElement); };
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) { const n = walk.currentNode, e = n.parentElement;
    if (!n.textContent.trim() || ['title', 'desc', 'STYLE'].includes(e.tagName)) continue;
    const svg = e.ownerSVGElement, style = getComputedStyle(e);
    const on = svg ? under(e) : ground(e);
    found.push([ratio(rgba(svg ? style.fill : style.color), on), n.textContent.slice(0, 30), e.tagName]); }
  return found; })()"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_text_stands_out_from_its_ground(made, tab, name, dark):
    tab.open(made[name], dark=dark)
    found: list[list[Any]] = tab.ask(CONTRAST)
    assert len(found) > 50
    assert [f for f in found if f[0] < 4.5] == []


def test_pale_text_is_caught(made, tab, tmp_path):
    pale = edited(made, "counts", tmp_path / "pale.html", "--soft: #5b6268", "--soft: #9aa0a5")
    tab.open(pale)
    assert any(f[0] < 4.5 for f in tab.ask(CONTRAST))


@pytest.mark.parametrize("name", RUNS)
def test_a_page_prints_on_six_sheets_and_the_appendix_opens_on_a_screen(made, tab, tmp_path, name):
    tab.open(made[name], width=680, height=1000)
    closed = "document.querySelector('#mechanisms').checkVisibility({contentVisibilityAuto: true})"
    before = tab.ask(closed)
    signed = "document.querySelector('.line').checkVisibility()"
    assert name not in JUDGED or not tab.ask(signed)
    paper = tab.pdf(tmp_path / "paper.pdf")
    printed = subprocess.run(["pdftotext", paper, "-"], capture_output=True, text=True, check=True).stdout
    assert printed.count("\f") <= 6 and "Noise scales: calibration" not in printed
    first = printed.partition("\f")[0]
    assert name not in JUDGED or ("Signature" in first and "suboptimality" in first)
    tab.ask("document.querySelectorAll('details').forEach(d => { d.open = true })")
    # a busy machine lays a large page out some frames later
    assert not before and any(tab.ask(closed) or time.sleep(0.1) for _ in range(100))


# words at the first and last line of each figure, and so much empty room above all of them
_MARKS = """(room => {
document.querySelectorAll('.figure svg').forEach((s, i) => ['Top', 'End'].forEach((word, last) => {
    const own = {x: 0, y: 0, height: s.height.baseVal.value};
    const box = s.hasAttribute('viewBox') ? s.viewBox.baseVal : own;
    const t = document.createElementNS('http://www.w3.org/2000/svg', 'text');
    t.textContent = `Mark${word}${i}.`; t.setAttribute('font-size', 5);
    t.setAttribute('y', box.y + (last ? box.height - 1 : 5)); t.setAttribute('x', box.x + 5); s.append(t);
})); const d = document.createElement('div'); d.style.height = `${room}px`; document.querySelector('main').prepend(d);
return document.querySelectorAll('.figure svg').length; })"""


def cut_figures(tab: Tab, folder: Path, room: int) -> tuple[int, list[int]]:
    """Print the page that is open below ``room`` pixels; how many figures it has, and which stand on two pages."""
    count = tab.ask(f"{_MARKS}({room})")
    paper = tab.pdf(folder / f"{room}.pdf")
    printed = subprocess.run(["pdftotext", "-raw", paper, "-"], capture_output=True, text=True, check=True).stdout
    at = {mark: number for number, page in enumerate(printed.split("\f")) for mark in re.findall(r"Mark\w+\.", page)}
    assert len(at) == 2 * count
    return count, [i for i in range(count) if at[f"MarkTop{i}."] != at[f"MarkEnd{i}."]]


@pytest.mark.parametrize("name", ALL)
def test_paper_cuts_no_figure(made, tab, tmp_path, name):
    for room in (0, 400):
        tab.open(made[name])
        count, cut = cut_figures(tab, tmp_path, room)
        assert count > 0 and cut == []


def test_a_figure_cut_in_two_is_noticed(made, tab, tmp_path):
    style = "max-height: none !important; height: 600mm !important; width: 100% !important;"
    tall = f"<style>@media print {{ .figure svg {{ {style} }} }}</style>"
    states = [f"state {i}" for i in range(30)]
    made["narrow"] = tmp_path / "narrow.html"
    few = sample_view(3, states, scattered=True)
    made["narrow"].write_text(drawn(sample_report(dataset={"live_states": states}), few)[0])
    careless = edited(made, "narrow", tmp_path / "careless.html", "</head>", f"{tall}</head>")
    tab.open(careless)
    assert cut_figures(tab, tmp_path, 0)[1]


@pytest.mark.parametrize("name", ALL)
def test_nothing_runs_off_the_paper(made, tab, name):
    # A4 less its margins, in CSS pixels
    tab.open(made[name], width=680, height=1000)
    tab.call("Emulation.setEmulatedMedia", media="print", features=[])
    off = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 680.5)"
    assert tab.ask(f"{off}.map(e => e.outerHTML.slice(0, 80))") == []
