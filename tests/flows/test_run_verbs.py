"""Verbs of runs: policies for programs, comparisons, and the pointer that promotions move in one step, and back."""

import csv
import hashlib
import io
import json
import shutil
import unicodedata
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.jobs.opened import write_whole
from flows.jobs.promotion import Alias, is_pointer
from pipeline.learners.policy_files import escape, unescape
from reticent import CardError, Policy, Store
from tests.flows.made_runs import STATES, as_version_0_1, card, lay_out, publish
from tests.flows.office import edit
from tests.flows.shop import contents
from tests.flows.shop import lay_out as lay_out_shop
from tests.flows.verb import reticent
from tests.goldens.places import SECOND

# in the one state where these policies abstain an action is vetoed
KEEP = "keep current practice: not enough evidence for an action that is not vetoed"
OVER = "nothing to decide: the episode has ended"
NO_DIGESTS = '{"dataset": "tiny", "sha256": {}}'


@pytest.fixture
def run(tmp_path):
    return lay_out(tmp_path / ".reticent" / "runs" / "some-run", card())


def policy_of(folder) -> Policy:
    return Store(folder.parents[1]).open(folder.name).policy


def rows_of(folder) -> list[dict]:
    return json.loads(policy_of(folder).stored.as_json())["rows"]


def test_json_has_the_exact_labels_and_csv_gives_them_back(run):
    file = policy_of(run).stored
    exact, cells = json.loads(file.as_json()), list(csv.DictReader(io.StringIO(file.as_csv(), newline="")))
    columns = ["step", "state", "action", "probability", "advice", "abstains", "tie", "vetoed"]
    assert list(exact["rows"][0]) == columns and len(cells) == len(exact["rows"])
    for row, cell in zip(exact["rows"], cells, strict=True):
        assert unescape(cell["state"]) == row["state"] and unescape(cell["action"]) == (row["action"] or "")
        assert int(cell["step"]) == row["step"] and cell["tie"] == str(row["tie"]).lower()
        assert (float(cell["probability"]) if cell["probability"] else None) == row["probability"]
    digest = hashlib.sha256((run / "policy.parquet").read_bytes()).hexdigest()
    assert exact["policy_sha256"] == digest == cells[0]["policy_sha256"]
    assert exact["run"] == "some-run" == cells[0]["run"]
    assert unescape(cells[0]["guarantee"]) == exact["guarantee"] == "Nobody, “truly”; =2"
    assert exact["vetoes"] == [["=1+1", "plain"]]


def test_rows_are_the_policy_its_abstentions_and_its_vetoes_in_order(run):
    rows = rows_of(run)
    assert [(r["step"], r["state"], r["action"], r["probability"]) for r in rows] == [
        (0, STATES[0], None, None),
        (0, STATES[0], "plain", 0.0),
        (0, STATES[1], "@go", 1.0),
        (0, STATES[2], "@go", 1.0),
        (1, STATES[0], "@go", 1.0),
        (1, STATES[0], "plain", 0.0),
        (1, STATES[1], "@go", 1.0),
        (1, STATES[2], "@go", 1 / 3),
        (1, STATES[2], "-3", 2 / 3),
    ]
    assert (rows[0]["advice"], rows[0]["abstains"]) == (KEEP, True)
    assert (rows[1]["advice"], rows[1]["vetoed"]) == ("never: vetoed", True)
    assert [r["tie"] for r in rows] == [False] * 4 + [True] * 2 + [False] * 3
    labels, table = json.loads((run / "policy.json").read_text()), pq.read_table(run / "policy.parquet").to_pylist()
    assert labels["elsewhere"] == "current practice" and "abstains" not in labels
    assert (0, 0) not in {(row["step"], row["state"]) for row in table}, "nothing is written of what is not recommended"
    # a folder of version 0.1 says the same where it holds a stand-in
    as_version_0_1(run, 0, 0, [0, 1, 2])
    (run / "certificate.json").write_text(NO_DIGESTS)
    assert rows_of(run) == rows


def test_the_csv_is_rfc_4180_and_nothing_in_it_is_a_formula(run):
    text = policy_of(run).stored.as_csv()
    assert text.endswith("\r\n") and text.splitlines()[0].startswith('"step","state"')
    assert '"two,lines"' in text and '"a ""quote"", a comma"' in text
    assert policy_of(run).stored.as_csv() == text
    for cell in (c for row in csv.reader(io.StringIO(text, newline="")) for c in row):
        assert not evaluated(cell), cell


def evaluated(cell: str) -> bool:
    """Whether some spreadsheet would take the cell for a formula; written apart from the code under test."""
    if cell[:1] in "\t\r\n" and cell:
        return True
    bare = cell.lstrip("".join(chr(i) for i in range(33)) + "\u00a0\u200b\ufeff\u3000")
    return unicodedata.normalize("NFKC", bare)[:1] in ("=", "+", "-", "@")


@pytest.mark.parametrize(
    "label",
    ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "  =1", "\u00a0=1", "\u3000=1", "\ufeff=1", "＝1", "＋1", "－1", "＠x",
     "\n-2", " \t＝x", "﹣1"],
)  # fmt: skip
def test_what_a_spreadsheet_would_evaluate_is_escaped_and_comes_back(label):
    assert evaluated(label) and not evaluated(escape(label))
    assert escape(label).startswith("'") and unescape(escape(label)) == label
    assert unescape(escape(escape(label))) == escape(label)


def test_a_harmless_label_stays_and_a_piece_behind_another_programs_separator_is_escaped_too():
    for label in ("plain", "a=b", "x - y", "3", "O'Hara", "'quoted'", "4 ≤ sofa < 7", "", "a; b"):
        assert escape(label) == label
    for label, told in (("x;=1", "x;'=1"), ("x|+1", "x|'+1"), ('a","=1', 'a","\'=1')):
        assert escape(label) == told
    for text in ("x;=1", "x|+1", 'a","=1', "x\t@y", "x;'=1"):
        assert unescape(escape(text)) == text


@given(st.text(st.sampled_from("='+-@＝ \t\r\n;,|\"ab\u200b"), max_size=12))
def test_escaping_is_reversible_whatever_the_label(text):
    assert unescape(escape(text)) == text
    assert not evaluated(escape(text))


def test_a_file_is_written_whole_and_never_over_another_unasked(tmp_path, monkeypatch):
    target = tmp_path / "policy.csv"
    write_whole(target, "one", force=False)
    with pytest.raises(CardError, match="--force"):
        write_whole(target, "two", force=False)
    assert target.read_text() == "one"
    with monkeypatch.context() as full, pytest.raises(CardError, match="No space"):
        full.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left on device")))
        write_whole(target, "two", force=True)
    assert target.read_text() == "one" and list(tmp_path.iterdir()) == [target]
    write_whole(target, "two", force=True)
    assert target.read_text() == "two" and list(tmp_path.iterdir()) == [target]
    with pytest.raises(CardError, match="cannot be written"):
        write_whole(tmp_path / "no" / "policy.csv", "x", force=False)


def test_a_decision_is_the_policys_a_wish_to_keep_or_the_end(run):
    states = [STATES[0], STATES[0], STATES[2], "over", STATES[0]]
    found, which = policy_of(run).decide(states, np.array([0, 1, 1, 1, 0]))
    abstains, tie, mixed, over, again = (found[i] for i in which)
    assert abstains["advice"] == KEEP and abstains["action"] is None and abstains["actions"] == []
    assert abstains is again and abstains["vetoed"] == ["plain"]
    assert (tie["action"], tie["tie"], tie["vetoed"]) == ("@go", True, ["plain"])
    assert mixed["action"] is None and [a["probability"] for a in mixed["actions"]] == [1 / 3, 2 / 3]
    assert over["advice"] == OVER and over["state"] == "over"


def test_a_sample_follows_the_probabilities_and_never_leaves_them(run):
    policy, n = policy_of(run), 30_000
    found, which = policy.decide([STATES[2]] * n, np.ones(n, dtype=np.int64), sample=True)
    drawn = np.array([d["action"] for d in found])[which]
    share = np.mean(drawn == "-3")
    # five standard deviations, and both wrong shares are outside
    assert abs(share - 2 / 3) < 5 * np.sqrt(2 / 9 / n) < 1 / 6
    assert set(drawn) == {"@go", "-3"}
    found, _ = policy.decide([STATES[0]] * 2, np.zeros(2, dtype=np.int64), sample=True)
    assert all(d["action"] is None for d in found)


@pytest.mark.parametrize(
    ("states", "raw", "expected"),
    [
        ({"labels": None, "bins": {"by": "sofa", "edges": [4, 7]}, "ends": ["over"]},
         ["3.9", "4", " 7.5 ", "over", "-1"], [0, 1, 2, 3, 0]),
        ({"labels": None, "bins": {"by": "sofa", "edges": [4, 7]}, "other": True}, ["nan", None, "1e3"], [3, 3, 2]),
        ({"labels": {"low": [1, 2], "high": ["3", "x"]}}, ["1", "2.0", "3", "x", "over"], [0, 0, 1, 1, 2]),
        ({"labels": ["a", "b"], "other": True}, ["a", "?", None, "over"], [0, 2, 2, 3]),
        ({"labels": 3}, ["0", "2.0"], [0, 2]),
    ],
)  # fmt: skip
def test_raw_values_are_read_as_ingest_reads_them(tmp_path, states, raw, expected):
    made = card(**states)
    policy = policy_of(lay_out(tmp_path / "home" / "runs" / "r", made))
    found, which = policy.decide(raw, np.zeros(len(raw), dtype=np.int64), raw=True)
    known = [*made.domain.live_states, *made.domain.states.ends]
    assert [found[i]["state"] for i in which] == [known[i] for i in expected]


def test_raw_numbers_are_read_in_the_notation_and_units_of_the_log(tmp_path):
    made = card(labels=None, bins={"by": "sofa", "edges": [100]}, ends=["over"])
    source = made.source.model_copy(update={"numbers": "1.234,5", "units": {"sofa": {"mg": 1.0, "g": 1000.0}}})
    policy = policy_of(lay_out(tmp_path / "home" / "runs" / "r", made.model_copy(update={"source": source})))
    raw = ["1.234", "1,234", "2 g", "99,9 mg", "0,2 g", "over"]
    found, which = policy.decide(raw, np.zeros(len(raw), dtype=np.int64), raw=True)
    known = [*made.domain.live_states, *made.domain.states.ends]
    assert [known.index(found[i]["state"]) for i in which] == [1, 0, 1, 0, 1, 2]


def test_an_unknown_state_or_step_is_refused_with_what_is_known_and_no_value(run):
    policy, steps = policy_of(run), np.zeros(4, dtype=np.int64)
    for raw in (False, True):
        with pytest.raises(CardError, match="record 2, 4: no declared state; states of some-run: '=1") as e:
            policy.decide(["over", "secret", STATES[1], "secret"], steps, raw=raw)
        assert "secret" not in str(e.value)
    with pytest.raises(CardError, match="steps count from 0 to 1"):
        policy.act(STATES[0], 2)
    labels = json.loads((run / "policy.json").read_text())
    del labels["state_column"]
    (run / "policy.json").write_text(json.dumps(labels))
    (run / "certificate.json").write_text(NO_DIGESTS)
    with pytest.raises(CardError, match="run` its recipe again"):
        policy_of(run).act("x", 0, raw=True)


def test_a_damaged_folder_is_a_line_and_not_a_traceback(run):
    (run / "policy.json").write_text("{")
    (run / "certificate.json").write_text(NO_DIGESTS)
    with pytest.raises(CardError, match="cannot be read"):
        policy_of(run)


def test_the_verbs_say_what_they_cannot_do_in_a_line(tmp_path, run):
    # nobody vouches for a folder that was made up
    r = reticent("policy", "export", "some", "--to", "p.csv", cwd=tmp_path)
    assert r.returncode == 4 and not (tmp_path / "p.csv").exists(), r.stderr
    r = reticent("policy", "act", "some", "--state", STATES[0], "--step", 0, cwd=tmp_path)
    assert KEEP in r.stdout and "never (vetoed): plain" in r.stdout
    states = ("--state", "x", "--step", 0), ("--state", STATES[0])
    for args in (*states, ("--batch", "none.csv"), ("--batch", "-", "--step", 1)):
        r = reticent("policy", "act", "some", *args, cwd=tmp_path)
        assert r.returncode == 2 and len(r.stderr.splitlines()) == 1, r.stderr


@pytest.mark.parametrize(
    "text",
    ['id,step,state\r\n7,1,"two,lines"\r\n8,0,over\r\n',
     '{"step":1,"state":"two,lines"}\n{"state":"over","step":0}\n'],
)  # fmt: skip
def test_a_batch_is_one_decision_a_line_in_order(tmp_path, run, text):
    (tmp_path / "ask").write_bytes(text.encode())
    r = reticent("policy", "act", "some", "--batch", "ask", cwd=tmp_path)
    first, second = map(json.loads, r.stdout.splitlines())
    assert (first["step"], first["action"], second["advice"]) == (1, "@go", OVER)
    r = reticent("policy", "act", "some", "--batch", "ask", "--json", cwd=tmp_path)
    assert json.loads(r.stdout)["decisions"] == [first, second]


@pytest.mark.parametrize(
    "text", ["", "step,x\n1,2\n", "step,state\n1.5,x\n", "state,step\nx,\n", "{not json\n", '{"state":"x"}\n', "a\xff"]
)
def test_a_batch_that_cannot_be_read_is_refused_without_its_values(tmp_path, run, text):
    (tmp_path / "ask").write_bytes(text.encode("latin-1"))
    r = reticent("policy", "act", "some", "--batch", "ask", cwd=tmp_path)
    assert r.returncode == 2 and "ask: " in r.stderr and "1.5" not in r.stderr


def test_people_read_a_state_a_line_and_for_whom_nothing_changes(tmp_path):
    p = np.zeros((3, 12, 2))
    p[:, 0, 0], p[0, 1, 1], p[1:, 1, 0] = 1, 1, 1
    p[2, 1] = 0
    made = card(horizon=3, actions=["go", "stay"], labels=[f"s{i}" for i in range(12)])
    policy = policy_of(lay_out(tmp_path / "home" / "runs" / "r", made, p, tied=[[t, 0] for t in range(3)]))
    cells, lines = policy.to_polars().to_dicts(), repr(policy).splitlines()
    assert len(cells) == 36 and cells[1]["action"] == "stay" and cells[2]["action"] is None
    assert lines[1].split() == ["0", "to", "2", "s0", "go", "(tie:", "others", "are", "as", "good)"]
    assert [line.split()[:3] for line in lines[2:5]] == [["0", "s1", "stay"], ["1", "s1", "go"], ["2", "s1", "–"]]
    assert lines[5] == "elsewhere, in 10 of 12 states, keep current practice: s2, s3, s4, s5, s6, s7, s8, s9 and 2 more"
    assert len(lines) == 6


@pytest.fixture
def runs(tmp_path):
    found = tmp_path / ".reticent" / "runs"
    publish(found, "shop-aaa", 0, 0.5)
    publish(found, "shop-bbb", 1, 0.25)
    return found


def test_compare_runs_says_what_changed(runs, tmp_path):
    done = reticent("compare-runs", "shop-aaa", "shop-bbb", cwd=tmp_path)
    assert done.returncode == 0 and "1 of" in done.stdout
    # a paired difference may tell apart what two intervals do not
    assert "they overlap: alone they do not tell the two policies apart" in done.stdout
    assert "keep current practice" not in done.stdout
    told = json.loads(reticent("compare-runs", "shop-aaa", "shop-bbb", "--json", cwd=tmp_path).stdout)
    assert [(r["step"], r["a"]["action"], r["b"]["action"]) for r in told["cells"]["rows"]] == [(1, "@go", "-3")]
    assert told["value"]["lower_gain"] == -0.25
    missing = reticent("compare-runs", "shop-aaa", "shop-zzz", cwd=tmp_path)
    assert missing.returncode == 2 and "shop-zzz" in missing.stderr


def test_a_report_that_contradicts_itself_is_named_with_what_to_do(tmp_path):
    judged, runs = next((SECOND / "runs").glob("judged-*")), tmp_path / ".reticent" / "runs"
    wrong = {
        "no-gain": lambda facts: facts["verdict"].update(improvement=None),
        "nobody": lambda facts: facts["evaluation"].update(share=0),
        "one-action": lambda facts: facts["dataset"].update(actions=facts["dataset"]["actions"][:1]),
    }
    shutil.copytree(judged, runs / "whole")
    for name, change in wrong.items():
        edit(shutil.copytree(judged, runs / name) / "report.json", change)
    for verb in (*(("report", name) for name in wrong), ("compare-runs", "whole", "no-gain")):
        done = reticent(*verb, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "report.json" in done.stderr and verb[-1] in done.stderr and "run again" not in done.stderr
        assert "`reticent run` its recipe again" in done.stderr


def test_promote_and_back_and_other_verbs_know_current(runs, tmp_path):
    # the verb takes runs that verify; these are folders alone
    for run in ("shop-aaa", "shop-bbb"):
        Alias(runs).promote(run)
    compare = ["compare-runs", "current", "shop-aaa", "--json"]
    assert json.loads(reticent(*compare, cwd=tmp_path).stdout)["a"] == "shop-bbb"
    assert reticent("promote", "--rollback", cwd=tmp_path).stdout == "current is shop-aaa, was shop-bbb\n"
    assert json.loads(reticent(*compare, cwd=tmp_path).stdout)["a"] == "shop-aaa"
    for wrong in (["promote"], ["promote", "shop-aaa", "--rollback"], ["promote", "--rollback"], ["promote", "nix"]):
        assert reticent(*wrong, cwd=tmp_path).returncode == 2, wrong
    assert Alias(runs).now() == "shop-aaa"
    # a pointer is no run: the beginning of its name finds nothing
    assert reticent("report", "curr", cwd=tmp_path).returncode == 2


def test_a_name_does_not_lead_out_of_the_runs(runs, tmp_path):
    outside = publish(tmp_path / "outside", "shop-aaa", 1, 0.0)
    before, there = contents(outside), str(outside)
    for wrong in (
        ["report", "../../outside/shop-aaa"],
        ["policy", "show", "../../outside/shop-aaa"],
        ["compare-runs", "shop-aaa", "../../outside/shop-aaa"],
        ["report", ""],
        ["report", "x" * 300],
        # no run: it has no certificate
        ["promote", "shop-aaa"],
        # what is written as a path from here may be read, but it is no run of this home
        ["promote", there],
        ["promote", "shop-aaa", "--pointer", "../../x"],
        ["policy", "act", "shop-aaa", "--state", "=1+1", "--step", str(10**20)],
    ):
        assert reticent(*wrong, cwd=tmp_path).returncode == 2, wrong
    assert reticent("compare-runs", "shop-aaa", there, cwd=tmp_path).returncode == 0
    assert contents(outside) == before


def test_a_check_before_any_night_asks_for_a_look(tmp_path):
    done = reticent("nightly", lay_out_shop(tmp_path / "shop") / "private.toml", "--check", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert done.returncode == 1 and not told["ok"] and "no night of private" in told["problem"]
    assert "alert: no night of private" in done.stderr


@pytest.fixture
def pointer(tmp_path):
    for name in ("a-1", "b-2", "c-3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text("{}")
    return Alias(tmp_path)


def test_it_points_to_what_was_promoted_and_back_to_what_was_before(pointer):
    assert pointer.now() is None
    for run in ("a-1", "b-2", "c-3"):
        pointer.promote(run)
        assert pointer.now() == run and (pointer.runs / "current").resolve() == pointer.runs / run
    assert (pointer.roll_back(), pointer.now()) == ("b-2", "b-2")
    assert (pointer.roll_back(), pointer.now()) == ("a-1", "a-1")
    assert pointer.rejected == {"b-2", "c-3"}
    with pytest.raises(CardError, match="no earlier run"):
        pointer.roll_back()
    pointer.promote("c-3")
    assert pointer.rejected == {"b-2"} and pointer.roll_back() == "a-1"


def test_where_links_fail_the_pointer_is_a_file(pointer, monkeypatch):
    monkeypatch.setattr(Path, "symlink_to", Mock(side_effect=OSError("no links here")))
    pointer.promote("a-1")
    pointer.promote("b-2")
    assert not (pointer.runs / "current").is_symlink() and pointer.now() == "b-2"
    assert pointer.roll_back() == "a-1" and pointer.now() == "a-1"


@pytest.mark.parametrize("name", ["../../x", "..", ".", "", "a/b", "A", "a\nb", "x" * 64])
def test_a_pointer_is_called_by_a_plain_name(pointer, name):
    with pytest.raises(CardError, match="names no pointer"):
        Alias(pointer.runs, name)
    # put in place of a run it left its pieces among the runs
    before = sorted(pointer.runs.iterdir())
    with pytest.raises(CardError, match="'a-1' is a run's name"):
        Alias(pointer.runs, "a-1").promote("a-1")
    assert sorted(pointer.runs.iterdir()) == before


def test_a_promotion_killed_between_its_two_writes_changes_nothing(pointer, dies_at):
    pointer.promote("a-1")
    pointer.promote("b-2")
    for move in (lambda: pointer.promote("c-3"), pointer.roll_back):
        with dies_at("flows.jobs.promotion.Alias._point"):
            move()
        assert pointer.now() == "b-2" and pointer.rejected == frozenset()
    assert pointer.roll_back() == "a-1"


def test_a_link_in_the_place_of_a_run_is_no_pointer_whatever_stands_beside_it(pointer):
    pointer.promote("a-1")
    (pointer.runs / "demo-0123456789").symlink_to("a-1")
    (pointer.runs / ".demo-0123456789.json").write_bytes((pointer.runs / ".current.json").read_bytes())
    assert is_pointer(pointer.runs / "current") and not is_pointer(pointer.runs / "demo-0123456789")
