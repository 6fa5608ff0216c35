"""What dead runs left is settled before anything new: committed once, or deleted; what lives is left alone."""

import json
import platform
import shutil

import pytest

from pipeline.files import DISK
from pipeline.learners import tabular
from pipeline.ledger.chain import AttemptLostError
from pipeline.privacy.release import total_rho
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.transaction import drawn_folders, one_at_a_time, recover, refuse_old_ledger
from reticent import BudgetError
from tests.flows.verb import reticent
from tests.jobs import home_at, ingest_job
from tests.transaction.released import ledger_of, release


@pytest.fixture
def people(tmp_path, opened):
    return opened(tmp_path, cap=10.0)


@pytest.fixture
def died_before_commit(people, monkeypatch, dies_at):
    """A renamed release whose COMMIT was never written; its lease still runs, as after kill -9."""
    with monkeypatch.context() as m, dies_at("pipeline.ledger.ledger.Ledger.commit"):
        m.setattr("pipeline.ledger.attempts.end_leases", lambda *_: None)
        release(people)
    return people


def test_a_finished_release_of_a_dead_run_is_committed_and_never_drawn_again(died_before_commit):
    again = release(died_before_commit)
    ledger = ledger_of(died_before_commit)
    assert again.replayed and [e.kind for e in ledger.entries()] == ["REGISTER", "KEY", "INTENT", "DRAW", "COMMIT"]
    assert "committed attempt 1" in str(again.recovered) and "stays spent" in str(again.recovered)
    assert "\n" not in str(again.recovered) and not str(release(died_before_commit).recovered)


def test_any_run_of_the_lineage_settles_it(died_before_commit):
    other = release(died_before_commit, "pure")
    assert not other.replayed and len(other.recovered.committed) == 1


def test_an_unfinished_draw_is_deleted_and_its_cost_stays(people, monkeypatch):
    def die(path, to):
        if to.parent.name == "releases":
            raise KeyboardInterrupt
        path.replace(to)

    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(DISK, "move", die)
        # the dead clean nothing up
        m.setattr("shutil.rmtree", lambda *_, **_more: None)
        m.setattr("pipeline.transaction.transaction.remember_head", lambda *_: None)
        release(people)
    _, home = people
    left = list((home.store / "shop" / "releases").glob("*.attempt-*"))
    assert len(left) == 1
    again = release(people)
    assert again.recovered.deleted == 1 and not left[0].exists() and not again.replayed
    kinds = [e.kind for e in ledger_of(people).entries()]
    assert kinds == ["REGISTER", "KEY", "INTENT", "DRAW", "INTENT", "DRAW", "COMMIT"]


def test_a_living_attempt_elsewhere_is_neither_committed_nor_deleted(died_before_commit):
    """The same store seen from another machine: its lock proves nothing here, so the lease must run out."""
    _, home = died_before_commit
    ledger = ledger_of(died_before_commit)
    assert not str(recover("shop", ledger, home.store, "another place"))
    assert len(drawn_folders(home.store, "shop")) == 1
    with one_at_a_time(home.store / "shop") as place:
        assert len(recover("shop", ledger, home.store, place).committed) == 1


def test_a_copy_of_the_store_on_another_machine_takes_nothing_over_while_the_first_may_live(
    died_before_commit, tmp_path, monkeypatch
):
    """The copy has the lock's token too: only the machine's name says that this lock holds nobody back there."""
    folder, home = died_before_commit
    shutil.copytree(home.root, tmp_path / "copy")
    copy, run = home_at(tmp_path / "copy"), ("run", folder / "private.toml", "--home", tmp_path / "copy")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(platform, "node", lambda: "another machine")
        refused = reticent(*run, cwd=tmp_path)
        assert refused.returncode == 4 and "being drawn elsewhere" in refused.stderr
    assert [e.kind for e in ledger_of(died_before_commit).entries()].count("COMMIT") == 0
    assert len(drawn_folders(copy.store, "shop")) == len(drawn_folders(home.store, "shop")) == 1
    # on its own machine it is dead: the lock is free
    assert reticent("run", folder / "private.toml", "--home", home.root, cwd=tmp_path).returncode == 0
    assert [e.kind for e in ledger_of(died_before_commit).entries()].count("DRAW") == 1


def test_two_stores_with_one_ledger_draw_a_release_once(people, tmp_path, monkeypatch):
    """While one store draws, the other is refused; afterwards it is told where the release is."""
    folder, _ = people
    other = home_at(tmp_path / "other")
    ingest_job(str(folder), other)
    aggregate, told = tabular.aggregate, []

    def meanwhile(*args):
        if not told:
            told.append("")
            with pytest.raises(BudgetError, match="being drawn elsewhere") as refused:
                release(people, home=other)
            told.append(str(refused.value))
        return aggregate(*args)

    monkeypatch.setattr(tabular, "aggregate", meanwhile)
    first = release(people)
    assert len(told) == 2
    with pytest.raises(BudgetError, match=f"Copy its folder {first.run_key[:24]} here"):
        release(people, home=other)
    shutil.copytree(first.folder, other.store / "shop" / "releases" / first.folder.name)
    assert release(people, home=other).replayed
    assert ledger_of(people).account("shop").spent == total_rho(first.release.mechanisms)


@pytest.mark.parametrize("before", ["its DRAW", "its rename"])
def test_a_beaten_attempts_file_is_deleted_and_its_cost_stays(people, tmp_path, monkeypatch, before):
    """The lease ran out while this process slept; another store drew and committed meanwhile."""
    folder, home = people
    other = home_at(tmp_path / "other")
    ingest_job(str(folder), other)
    owner, name = (tabular, "aggregate") if before == "its DRAW" else (PrivateSum, "draw")
    work, slept = getattr(owner, name), []

    def asleep(*args):
        done = work(*args)
        if not slept:
            slept.append(1)
            monkeypatch.setattr("pipeline.ledger.attempts.living", lambda *_: [])
            slept.append(release(people, home=other))
        return done

    monkeypatch.setattr(owner, name, asleep)
    told = "took this one over; nothing was drawn" if before == "its DRAW" else "its spend stays"
    with pytest.raises(AttemptLostError, match=told):
        release(people)
    assert not drawn_folders(home.store, "shop")
    winner = slept[1]
    assert winner.folder.exists()
    ledger = ledger_of(people)
    assert ledger.account("shop").spent == (1 + (before == "its rename")) * total_rho(winner.release.mechanisms)
    assert [e.kind for e in ledger.entries()].count("COMMIT") == 1


def test_a_beaten_file_that_its_dead_run_could_not_delete_is_deleted_later(died_before_commit):
    _, home = died_before_commit
    ledger = ledger_of(died_before_commit)
    first = ledger.entries()[2]
    second = ledger.intent("shop", first.body["run_key"], 1, {"mechanisms": first.body["mechanisms"]})
    ledger.commit(second, {"release_sha256": "0" * 64, "noise": "os", "sampler": "x"})
    with one_at_a_time(home.store / "shop") as place:
        assert recover("shop", ledger, home.store, place).deleted == 1
    assert not drawn_folders(home.store, "shop")


def test_an_uncommitted_release_that_was_cut_is_not_committed(died_before_commit):
    _, home = died_before_commit
    path = drawn_folders(home.store, "shop")[0] / "release.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BudgetError, match="Move it away"):
        release(died_before_commit)
    assert "COMMIT" not in [e.kind for e in ledger_of(died_before_commit).entries()]


def noisier(facts):
    return {"mechanisms": [{**m, "variance": m["variance"] + 1} for m in facts["mechanisms"]]}


@pytest.mark.parametrize("claim", [noisier, lambda _: {"relation": "zero_out"}, lambda _: {"trust_model": "local"}])
def test_a_release_that_claims_another_guarantee_is_neither_committed_nor_replayed(died_before_commit, claim):
    _, home = died_before_commit
    path = drawn_folders(home.store, "shop")[0] / "release.json"
    honest = path.read_text()
    edited = json.dumps(json.loads(honest) | claim(json.loads(honest)))
    for committed, says in ((False, "Move it away"), (True, "edited")):
        path.write_text(edited)
        with pytest.raises(BudgetError, match=says):
            release(died_before_commit)
        assert ("COMMIT" in [e.kind for e in ledger_of(died_before_commit).entries()]) is committed
        path.write_text(honest)
        assert release(died_before_commit).replayed


@pytest.mark.parametrize("name", ["ledger-head.json", "releases/*/attempt.json"])
@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"seq": 1'])
def test_a_damaged_note_in_the_store_is_refused(people, name, content):
    _, home = people
    release(people)
    next((home.store / "shop").glob(name)).write_text(content)
    with pytest.raises(BudgetError, match="is damaged"):
        refuse_old_ledger("shop", ledger_of(people), home.store)


def test_a_ledger_that_lost_a_draw_alone_is_refused_and_nothing_is_drawn_for_its_charge(people, monkeypatch, dies_at):
    """A copy of between INTENT and DRAW: by it nothing was drawn, and the next run would go on for nothing."""
    folder, _ = people
    aggregate = tabular.aggregate

    def copied(*args):
        shutil.copy2(folder / "ledger.db", folder / "copy.db")
        return aggregate(*args)

    with monkeypatch.context() as m, dies_at("pipeline.transaction.transaction.write_attempt"):
        m.setattr(tabular, "aggregate", copied)
        m.setattr("pipeline.ledger.attempts.end_leases", lambda *_: None)
        release(people)
    assert [e.kind for e in ledger_of(people).entries()][-2:] == ["INTENT", "DRAW"]
    shutil.move(folder / "copy.db", folder / "ledger.db")
    with pytest.raises(BudgetError, match="which this store has seen"):
        release(people)


def test_a_draw_that_the_ledger_never_heard_of_means_an_old_ledger(people):
    _, home = people
    (home.store / "shop" / "releases").mkdir()
    (home.store / "shop" / "releases" / f"{'a' * 24}.attempt-1").mkdir()
    with pytest.raises(BudgetError, match="not in the ledger"):
        release(people)


def test_the_lock_names_its_store_and_is_free_when_its_holder_is_gone(tmp_path):
    with one_at_a_time(tmp_path / "a") as first, one_at_a_time(tmp_path / "b") as second:
        assert first != second
        with pytest.raises(BlockingIOError), one_at_a_time(tmp_path / "a", wait=False):
            raise AssertionError
    with one_at_a_time(tmp_path / "a", wait=False) as again:
        assert again == first
