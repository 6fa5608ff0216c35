"""A share of the people meets the policy: by the hash in its file, in the shell, in Python and over HTTP."""

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import reticent
from flows.server.acting import RefusedError, Served, Server, handler
from pipeline.statistics.played import meets
from tests.flows.service import clean_environment
from tests.flows.shop import lay_out
from tests.flows.verb import answer, invoke, refusal
from tests.learners.lq_shop import lay_out_plant

pytestmark = pytest.mark.usefixtures("unread")

PLAY = "[play]\nshare = 0.3\n"
PEOPLE = [f"c{i}" for i in range(4000)]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = lay_out(tmp_path_factory.mktemp("share") / "shop")
    for name, text in (("shared", PLAY), ("wider", PLAY.replace("0.3", "0.8"))):
        (folder / f"{name}.toml").write_text((folder / "private.toml").read_text().replace("private", name) + text)
    store = reticent.Store(folder.parent / "home")
    store.register(folder)
    store.ingest(folder)
    return folder, store


@pytest.fixture(scope="module")
def runs(shop):
    folder, store = shop
    return {name: reticent.run(folder / f"{name}.toml", store=store) for name in ("private", "shared", "wider")}


def of_the_rule(play, person):
    """The rule as ``policy.json`` words it, written once more."""
    drawn = hashlib.sha256(f"{play['id']}:{person}".encode()).digest()[:8]
    return int.from_bytes(drawn, "big") / 2**64 < play["share"]


def test_the_policy_file_says_who_meets_it_and_the_release_is_the_same(shop, runs, tmp_path):
    play = json.loads((runs["shared"].folder / "policy.json").read_text())["play"]
    assert play["share"] == 0.3 and len(play["id"]) == 16 and "sha256" in play["rule"]
    assert "play" not in json.loads((runs["private"].folder / "policy.json").read_text())
    releases = {(run.folder / "release.parquet").read_bytes() for run in runs.values()}
    assert len(releases) == 1 and runs["wider"].said.replayed and runs["wider"].said.ledger.spent_rho == 1.0
    proof = runs["shared"].verify()
    assert proof.ok and proof.vouched and any("policy.json, made again" in c.what and c.ok for c in proof.checks)
    runs["shared"].export_policy(tmp_path / "policy.json")
    told = json.loads((tmp_path / "policy.json").read_text())
    assert told["play"] == play and {row["probability"] for row in told["rows"] if row["action"]} <= {0.0, 1.0}


def test_the_share_is_that_of_the_recipe_and_another_policy_is_met_by_others(runs):
    met = {}
    for name, share in (("shared", 0.3), ("wider", 0.8)):
        met[name] = [runs[name].policy.act("warm", 0, person=p)["arm"] == "policy" for p in PEOPLE[:500]]
        play = runs[name].policy.stored.of.play
        by_rule = [of_the_rule(play, p) for p in PEOPLE]
        # six deviations
        assert abs(sum(by_rule) / len(PEOPLE) - share) < 6 * (share * (1 - share) / len(PEOPLE)) ** 0.5
        assert met[name] == by_rule[:500]
    other = {**runs["shared"].policy.stored.of.play, "id": "0" * 16}
    assert [of_the_rule(other, p) for p in PEOPLE[:500]] != met["shared"]


def test_an_answer_has_the_chance_of_its_action_and_the_others_keep_practice(runs):
    policy = runs["shared"].policy
    seen = {a["arm"]: a for a in (policy.act("warm", 0, person=p) for p in PEOPLE[:50])}
    plain = policy.decide(["warm"], np.zeros(1, dtype=np.int64))[0][0]
    assert seen["policy"] == {"policy_id": policy.stored.of.play["id"], "arm": "policy", "propensity": 1.0, **plain}
    kept = seen["practice"]
    assert kept["action"] is None and kept["propensity"] is None and kept["advice"].startswith("keep current practice")
    with pytest.raises(reticent.CardError, match="say who is there"):
        policy.act("warm", 0)
    with pytest.raises(reticent.CardError, match="name nobody"):
        runs["private"].policy.act("warm", 0, person="c1")


def test_whoever_is_named_in_another_spelling_has_the_arm_that_nights_count_them_in(runs):
    play, policy = runs["shared"].policy.stored.of.play, runs["shared"].policy
    for i in range(40):
        for spelt, form in ((f"{i}.0", f"{i}"), (f" c{i} ", f"c{i}"), (f"Jose\u0301 {i}", f"Jos\u00e9 {i}")):
            met = policy.act("warm", 0, person=spelt)["arm"] == "policy"
            assert met == meets(play, form), spelt
    with pytest.raises(reticent.CardError, match="say who is there"):
        policy.act("warm", 0, person="  ")


def test_the_shell_says_the_same(shop, runs, tmp_path):
    home, name = shop[1].home.root, runs["shared"].name
    asked = ("policy", "act", name, "--state", "warm", "--step", "0")
    for person in PEOPLE[:8]:
        told = answer(home, *asked, "--person", person)
        assert told == {"run": name, **runs["shared"].policy.act("warm", 0, person=person)}
        assert told["advice"] in invoke("--home", home, *asked, "--person", person).stdout
    assert "say who is there" in refusal(home, *asked)
    (tmp_path / "many.csv").write_text("state,step\nwarm,0\n")
    assert "policy serve" in refusal(home, "policy", "act", name, "--batch", tmp_path / "many.csv")
    assert "no run begins" in refusal(home, "policy", "serve", "nobody", "--port", "0")


def test_a_share_beyond_everybody_is_no_share(shop):
    folder, store = shop
    for wrong in ("0.0", "1.5", "true"):
        (folder / "wrong.toml").write_text((folder / "shared.toml").read_text().replace("0.3", wrong))
        with pytest.raises(reticent.CardError, match=r"play\.share|share"):
            reticent.run(folder / "wrong.toml", store=store)


@contextmanager
def served(home: Path, run: str):
    """The endpoint as a process, its address and secret, and at the end what it printed."""
    words = ["--home", str(home), "policy", "serve", run, "--port", "0"]
    command, pipe = [sys.executable, "-P", "-m", "flows.cli", *words], subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=clean_environment())
    printed = []
    try:
        printed.append(process.stdout.readline())
        address = re.search(r"http://127\.0\.0\.1:\d+/act", printed[0])
        assert address, printed + process.stdout.readlines()
        secret = (home / "act" / "access.env").read_text().split("RETICENT_ACT_SECRET=")[1].strip()
        assert (home / "act" / "access.env").stat().st_mode & 0o077 == 0
        yield address[0], secret, printed
    finally:
        process.send_signal(signal.SIGTERM)
        printed += process.communicate(timeout=30)[0].splitlines()
    assert process.returncode == 0


def ask(address, secret, body, method="POST"):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(address, content if method == "POST" else None, method=method)
    if secret:
        request.add_header("Authorization", f"Bearer {secret}")
    try:
        with urllib.request.urlopen(request, timeout=30) as found:
            return found.status, json.loads(found.read())
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def command_of_the_docs():
    """The lines by which docs/operate.md asks ``policy serve``."""
    text = (Path(__file__).parents[2] / "docs" / "operate.md").read_text()
    return textwrap.dedent(re.search(r"( {4}\. HOME/act/access\.env.*?)\n(?! {4})", text, re.DOTALL)[1])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_docs_ask_without_a_secret_or_a_person_on_a_command_line(shop, runs, tmp_path):
    store = shop[1]
    # what every account of the machine sees of it
    seen = tmp_path / "curl"
    seen.write_text(f'#!/bin/sh\nprintf "%s " "$@" > {tmp_path}/words\nexec {shutil.which("curl")} "$@"\n')
    seen.chmod(0o700)
    clean = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with served(store.home.root, runs["shared"].name) as (_, secret, _):
        text = command_of_the_docs().replace("HOME/", f"{store.home.root}/")
        told = subprocess.run(["sh", "-euc", text], capture_output=True, text=True, check=True, env=clean, timeout=60)
    expected = runs["shared"].policy.act("warm", 0, sample=True, person="c17")
    assert json.loads(told.stdout) == {"run": runs["shared"].name, **expected}
    words = (tmp_path / "words").read_text()
    assert words and not [text for text in (secret, "c17", "warm") if text in words]


@pytest.mark.slow
def test_a_program_asks_over_http_and_nothing_of_it_is_kept(shop, runs):
    store = shop[1]
    store.promote(runs["shared"].name)
    question = {"state": "warm", "step": 0, "person": "canary-7421"}
    with served(store.home.root, "current") as (address, secret, printed):
        expected = runs["shared"].policy.act("warm", 0, sample=True, person="canary-7421")
        assert ask(address, secret, question) == (200, {"run": runs["shared"].name, **expected})
        for wrong, status in (
            ({**question, "state": "canary-9"}, 400),
            ({**question, "step": 99}, 400),
            ({**question, "step": True}, 400),
            ({**question, "more": 1}, 400),
            ({"step": 0, "person": "canary-7421"}, 400),
            ({"state": "warm", "step": 0}, 400),
            ({"observation": [1.0, float("1e308")], "step": 0, "person": "canary-7421"}, 400),
            (b"{", 400),
            (b" " * (1 << 17), 413),
        ):
            code, told = ask(address, secret, wrong)
            assert code == status and "canary" not in told, wrong
        assert ask(address, None, question)[0] == ask(address, secret + "x", question)[0] == 401
        assert ask(address + "?person=canary-7421", secret, question)[0] == 404
        assert ask(address, secret, question, "GET")[0] == 405
        # the pointer moves, and the next question is answered by the run that it leads to
        store.promote(runs["wider"].name)
        assert ask(address, secret, question)[1]["run"] == runs["wider"].name
        store.promote(runs["shared"].name)
        file = runs["shared"].folder / "policy.json"
        before = file.read_text()
        file.write_text(before.replace("0.3", "0.9"))
        code, told = ask(address, secret, question)
        file.write_text(before)
        assert code == 503 and "BudgetError" in told
        assert ask(address, secret, question)[0] == 200
    assert "canary" not in "".join(printed) and "warm" not in "".join(printed)
    kept = [p for p in store.home.root.rglob("*") if p.is_file() and b"canary-7421" in p.read_bytes()]
    assert not kept


def test_a_controller_is_met_by_a_share_too(tmp_path):
    folder = lay_out_plant(tmp_path / "shop")
    (folder / "shared.toml").write_text((folder / "private.toml").read_text() + "\n" + PLAY)
    store = reticent.Store(tmp_path / "home")
    store.ingest(folder)
    run = reticent.run(folder / "shared.toml", store=store)
    assert run.verify().ok
    served = Served(store.home, run.name, None)
    names = run.policy.stored.observation.names
    seen = {}
    for person in PEOPLE[:40]:
        question = {"observation": [0.1] * len(names), "step": 0, "person": person}
        told = served.answer(json.dumps(question).encode())
        assert told == {"run": run.name, **run.policy.act([0.1] * len(names), 0, person=person)}
        seen[told["arm"]] = told
    assert seen["policy"]["propensity"] == 1.0 and len(seen["policy"]["action"]) == len(run.policy.stored.action.names)
    assert seen["practice"]["action"] is None and seen["practice"]["propensity"] is None
    for wrong in ({"observation": [0.1], "step": 0, "person": "c1"}, {"state": "warm", "step": 0, "person": "c1"}):
        with pytest.raises(RefusedError) as refused:
            served.answer(json.dumps(wrong).encode())
        assert refused.value.status == 400
    play = {"id": seen["policy"]["policy_id"], "share": 0.3}
    assert_every_question_is_answered(served, len(names), next(p for p in PEOPLE if of_the_rule(play, p)))
    # one number was taken for each of them before
    with pytest.raises(reticent.CardError, match=f"has {len(names)} numbers"):
        run.policy.act([0.1], 0, person="c1")


def assert_every_question_is_answered(served, numbers, person):
    """Over HTTP: an answer of finite numbers, or a status of 4xx and a JSON object that says what was wrong."""
    server = Server(("127.0.0.1", 0), handler(served, "secret"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/act"
    good = {"observation": [0.1] * numbers, "step": 0, "person": person}
    bodies = [b"", b"[]", b"null", b"\xff\xfe", b"{" * 40_000, b'{"step": 0}', b'{"canary-2": 1}']
    odd = ("NaN", "Infinity", "-1e400", '"x"', "[1]", "null")
    values = [*(f"[{x}, 0.1]".encode() for x in odd), b"[]", b"{}"]
    bodies += [b'{"step": 0, "person": "%s", "observation": %s}' % (person.encode(), value) for value in values]
    bodies += [json.dumps({**good, key: value}).encode() for key, value in (
        ("step", -1), ("step", 2**31 - 1), ("step", 2**70), ("step", 0.5), ("step", None), ("person", ""),
        ("person", 3), ("state", "canary-3"), ("raw", "no"),
    )]  # fmt: skip
    try:
        for body in bodies:
            code, told = ask(address, "secret", body)
            assert 400 <= code < 500 and json.loads(told)["error"] and "canary" not in told, (body[:80], code, told)
        for far in (1e308, -1.7e308):
            code, told = ask(address, "secret", {**good, "observation": [far] * numbers})
            assert code == 400 or (code == 200 and json.dumps(told, allow_nan=False)), told
        post, secret = b"POST /act HTTP/1.1\r\nAuthorization: Bearer ", b"secret\r\nContent-Length: "
        for head, status in (
            (post.replace(b"POST", b"PUT") + secret + b"2\r\n\r\n{}", b"405"),
            (post + b"secret\r\n\r\n", b"413"),
            (post + secret + b"-1\r\n\r\n", b"413"),
            (post + secret + b"9" * 5000 + b"\r\n\r\n", b"413"),
            (post + secret + b"9\r\n\r\n{}", b"408"),
            (post + b"\xe9\r\nContent-Length: 2\r\n\r\n{}", b"401"),
        ):
            with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as connection:
                connection.sendall(head)
                connection.shutdown(socket.SHUT_WR)
                told = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            assert status in told.split(b"\r\n")[0] and json.loads(told.split(b"\r\n\r\n")[1])["error"], (head, told)
        assert ask(address, "secret", good)[0] == 200
    finally:
        server.shutdown()
        server.server_close()
