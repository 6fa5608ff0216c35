"""Who vouches: the operator's keys and heads, and what a ledger never published, or published under another name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from reticent import BudgetError, CardError
from tests.flows.office import chained, edit, exported, flip_policy, kinds_of, made, office, reticent
from tests.jobs import home_at, ledger_in, register_job, run_job

__all__ = ["made", "office"]


def test_a_head_is_signed_and_checked(office, tmp_path):
    root, _ = office
    _, head = reticent(root, "ledger", "head")
    file = tmp_path / "head.json"
    file.write_text(json.dumps(head))
    assert reticent(root, "ledger", "verify", "--head", file, "--public-key", head["key"])[0] == 0
    file.write_text(json.dumps({**head, "seq": 1}))
    with pytest.raises(CardError, match="not signed"):
        reticent(root, "ledger", "verify", "--head", file, "--public-key", head["key"])


def test_the_key_is_the_operators_alone(office):
    root, _ = office
    file = root / "home" / "store" / ".operator-key.pem"
    assert file.stat().st_mode & 0o777 == 0o600
    public = register_job(str(root / "people"), home_at(root / "home"))["public_key"]
    for right in (0o040, 0o020, 0o010, 0o004, 0o002, 0o001):
        file.chmod(0o600 | right)
        with pytest.raises(BudgetError, match=r"others may read.*chmod 600"):
            register_job(str(root / "people"), home_at(root / "home"))
    file.chmod(0o600)
    assert register_job(str(root / "people"), home_at(root / "home"))["public_key"] == public


def test_a_second_host_has_its_own_key_and_the_chain_knows_both(office, tmp_path):
    root, _run = office
    other = home_at(tmp_path / "other")
    shutil.copytree(root / "home" / "store" / "shop", other.store / "shop")
    run_job(str(root / "people" / "private.toml"), other)
    # the files are the same, so the first host's word is enough
    assert kinds_of(root) == ["REGISTER", "KEY", "INTENT", "COMMIT", "PUBLISH", "KEY"]
    run_job(str(root / "people" / "both.toml"), other)
    assert kinds_of(root)[6:] == ["INTENT", "COMMIT", "PUBLISH"]
    book = ledger_in(root / "people").entries()
    assert len({e.body["public_key"] for e in book if e.kind == "KEY"}) == 2
    assert reticent(root, "ledger", "verify")[0] == 0


def test_an_entry_signed_by_nobody_the_ledger_knows_is_damage(office, tmp_path):
    root, _run = office
    entries = exported(root, tmp_path / "all.json")
    edited = [e | ({"body": e["body"] | {"run": "another"}} if e["kind"] == "PUBLISH" else {}) for e in entries]
    for told, problem in (
        (entries, None),
        ([e for e in entries if e["kind"] != "KEY"], "another key"),
        (edited, "signature is wrong"),
    ):
        _, found = reticent(root, "ledger", "verify", "--ledger", chained(told, tmp_path / "told.json"), card=False)
        assert found["problem"] is None if problem is None else problem in found["problem"]


def test_without_a_ledger_nothing_is_promoted_or_exported(office, tmp_path):
    root, run = office
    with pytest.raises(BudgetError, match="--card"):
        reticent(root, "promote", run, card=False)
    with pytest.raises(BudgetError, match="--card"):
        reticent(root, "policy", "export", run, "--to", tmp_path / "p.csv", card=False)
    assert reticent(root, "promote", run)[1]["vouched"] is True


def test_a_page_that_another_version_draws_does_not_replace_the_vouched_one(office, request):
    """The vouched page stands, and is the report; where it is gone, no other takes its place."""
    root, run = office
    page = root / "home" / "runs" / run / "report.html"
    before = page.read_bytes()
    page.unlink()
    reticent(root, "report", run)
    assert page.read_bytes() == before
    request.getfixturevalue("newer")
    assert reticent(root, "report", run)[0] == 0
    assert page.read_bytes() == before
    page.unlink()
    with pytest.raises(BudgetError, match="other pages"):
        reticent(root, "report", run)
    assert not page.exists()


@pytest.mark.parametrize("place", ["without its card", "under another name"])
def test_no_page_is_drawn_from_a_report_that_no_ledger_vouches_for(office, place):
    root, run = office
    folder = root / "home" / "runs" / run
    page, name = (folder / "report.html").read_bytes(), run
    assert reticent(root, "report", run, card=False)[0] == 0

    def weaker(facts):
        facts["guarantee"]["epsilon"] = 0.01
        facts["run"] = name

    if place == "under another name":
        name = "shop-0123456789"
        folder = folder.rename(folder.with_name(name))
    edit(folder / "report.json", weaker)
    with pytest.raises(BudgetError, match="made it with --home, or" if name == run else "no PUBLISH entry"):
        reticent(root, "report", name, card=name != run)
    assert (folder / "report.html").read_bytes() == page


def test_the_maker_knows_its_arithmetic():
    from pipeline.ledger.publication import maker, other_maker

    now = maker()
    assert set(now) >= {"reticent", "source", "python", "platform", "numpy", "arithmetic"}
    assert other_maker(now, now) is None
    assert "numpy 1.0, here" in (other_maker({**now, "numpy": "1.0"}, now) or "")
    assert other_maker(None, now) is not None


def another_dataset(folder: Path) -> None:
    """A certificate of a dataset that no ledger knows: nothing vouches for it, and its digests are its own."""
    flip_policy(folder)
    edit(folder / "certificate.json", lambda facts: facts.update(dataset="elsewhere"))


def another_name(folder: Path) -> None:
    """The files of a run in a folder of another name, whose digests and claims are brought up to date."""
    flip_policy(folder)
    edit(folder / "report.json", lambda facts: facts.update(run="private-0123456789"))
    folder.rename(folder.with_name("private-0123456789"))


@pytest.mark.parametrize("change", [another_dataset, another_name])
@pytest.mark.parametrize("verb", [["policy", "act", "RUN", "--state", "cold", "--step", 0], ["policy", "show", "RUN"]])
def test_no_policy_is_shown_that_the_ledger_at_hand_never_published(office, change, verb) -> None:
    root, run = office
    assert reticent(root, *[run if word == "RUN" else word for word in verb])[0] == 0
    change(root / "home" / "runs" / run)
    [found] = [p.name for p in (root / "home" / "runs").iterdir() if p.is_dir()]
    with pytest.raises(BudgetError):
        reticent(root, *[found if word == "RUN" else word for word in verb])


@pytest.mark.parametrize(
    "put",
    [
        "copy",
        pytest.param("link with a history", marks=pytest.mark.slow),
        *(pytest.param(p, marks=pytest.mark.slow) for p in ("link", "its name in a file")),
    ],
)
def test_another_valid_run_in_the_place_of_a_run_is_not_taken_for_it(office, put):
    root, run = office
    runs = root / "home" / "runs"
    other = run_job(str(root / "people" / "pure.toml"), home_at(root / "home"))["run"]
    shutil.rmtree(runs / run)
    if put == "copy":
        shutil.copytree(runs / other, runs / run)
    elif put == "its name in a file":
        (runs / run).write_text(other)
    else:
        (runs / run).symlink_to(other)
    if put not in ("copy", "link"):
        history = {"schema_version": 1, "history": [other], "rejected": []}
        (runs / f".{run}.json").write_text(json.dumps(history))
    refused = f"no run begins with .*{run}" if put == "its name in a file" else f"{other}, not {run}"
    for verb in (["ledger", "verify", run], ["promote", run], ["policy", "show", runs / run]):
        with pytest.raises((BudgetError, CardError), match=refused):
            code, proof = reticent(root, *verb)
            raise BudgetError(proof["problem"] if code == 4 else f"{code}")
    with pytest.raises((BudgetError, CardError)):
        reticent(root, "report", run)
    assert run in reticent(root, "ledger", "verify")[1]["problem"]
    reticent(root, "promote", other)
    assert reticent(root, "ledger", "verify", "current")[1]["run"] == other
    with pytest.raises(CardError, match="is a run's name"):
        reticent(root, "promote", other, "--pointer", run)


@pytest.mark.parametrize(
    ("form", "where"),
    [
        pytest.param(form, where, marks=pytest.mark.slow if i and j else ())
        for i, form in enumerate(("current", "runs/current", "a prefix of a path"))
        for j, where in enumerate(("elsewhere", "beside, by its path", "a name in a file"))
    ],
)
def test_a_pointer_leads_to_a_run_beside_it_and_nowhere_else(office, tmp_path, monkeypatch, form, where):
    """A forged folder of the same name elsewhere, to which the pointer was redirected, passed for the run in use."""
    root, run = office
    runs = root / "home" / "runs"
    reticent(root, "promote", run)
    forged = tmp_path / "elsewhere" / run
    shutil.copytree(runs / run, forged)
    flip_policy(forged)
    (runs / "current").unlink()
    if where == "a name in a file":
        (runs / "current").write_text(f"{forged}\n")
    else:
        (runs / "current").symlink_to(forged if where == "elsewhere" else runs / ".." / "runs" / run)
    monkeypatch.chdir(runs)
    named = {"current": "current", "runs/current": runs / "current", "a prefix of a path": "./current"}[form]
    for verb in (["ledger", "verify", named], ["policy", "show", named], ["report", named], ["promote", named]):
        with pytest.raises(CardError, match=r"leads to|no run begins|link, and no pointer"):
            reticent(root, *verb)
    code, said = reticent(root, "ledger", "verify")
    assert code == 4 and "leads to" in said["problem"]
    # what to do, as it says
    (runs / "current").unlink()
    assert reticent(root, "promote", run)[1]["now"] == run
    assert reticent(root, "ledger", "verify", named)[1]["run"] == run and reticent(root, "ledger", "verify")[0] == 0


def test_what_is_behind_a_pointer_is_what_is_verified(office):
    """The run beside it, whatever form its name takes."""
    root, run = office
    runs = root / "home" / "runs"
    reticent(root, "promote", run)
    flip_policy(runs / run)
    for named in ("current", runs / "current", runs / run, run):
        code, proof = reticent(root, "ledger", "verify", named)
        assert code == 4 and proof["run"] == run
