"""What docs/privacy.md says of a service, tried: another account, a foreign page, who knows the secret, kills."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.documents import blocks
from tests.flows.service import Served, lay_tables, prefect_server, wait_for
from tests.flows.shop import lay_out
from tests.reports.browser import CHROMIUM, Tab, browser

pytestmark = [pytest.mark.service, pytest.mark.slow]

# dropped after the imports: the interpreter may lie where nobody may read
STRANGER = """
import encodings.idna, http.client, json, os, socket, sys, urllib.error, urllib.request
api, home, pid = sys.argv[1:]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
told = {}

def ask(name, path, body=None, method=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", **headers}
    try:
        with urllib.request.urlopen(urllib.request.Request(api + path, data, headers, method=method), timeout=60) as a:
            told[name] = a.status
            return json.loads(a.read() or b"null")
    except urllib.error.HTTPError as e:
        told[name] = e.code

def attempt(name, work):
    try:
        work()
        told[name] = "done"
    except OSError as e:
        told[name] = type(e).__name__

attack = {"parameters": {"world": "subprocess:getoutput", "params": ["cmd=id > /tmp/reticent-was-here"]}}
found = ask("read a deployment", "/deployments/name/simulate/simulate")
number = (found or {}).get("id", "00000000-0000-0000-0000-000000000000")
ask("start it", f"/deployments/{number}/create_flow_run", attack)
ask("guess", "/deployments/filter", {}, authorization="Basic cmV0aWNlbnQ6")
ask("no scheme", "/deployments/filter", {}, authorization="reticent")
ask("bearer", "/deployments/filter", {}, authorization="Bearer x")
ask("by the path of the probe", "/deployments/name/simulate/health")
ask("below the probe", "/health/../deployments/filter", {})
ask("doubled", "//deployments/filter", {})
ask("another method", "/deployments/filter", {}, method="PUT")
ask("probe by post", "/health", {})
ask("the probe alone", "/health")
ask("another host", "/deployments/filter", {}, host="health")
attempt("secret", lambda: open(f"{home}/prefect/access.env").read())
attempt("database", lambda: open(f"{home}/prefect/prefect.db").read())
attempt("environment", lambda: open(f"/proc/{pid}/environ").read())
attempt("kill", lambda: os.kill(int(pid), 9))
attempt("list", lambda: open(f"{home}/allowed.toml", "w"))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "modules").mkdir()
    for name, text in blocks("extend.md"):
        if name == "corridor.py":
            (folder / "modules" / name).write_text(text)
    # others may walk to it: what they may not do then is up to the service
    for parent in (folder, *folder.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    found = Served(folder, PYTHONPATH=f"{folder / 'modules'}:{Path(__file__).resolve().parents[2]}")
    yield found
    found.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another account")
def test_another_account_of_the_machine_gets_nothing(served):
    trace = Path("/tmp/reticent-was-here")
    trace.unlink(missing_ok=True)
    before = len(served.server.runs())
    command = [sys.executable, "-c", STRANGER, served.server.api, str(served.home), str(served.process.pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("the probe alone") == 200
    assert {name: answer for name, answer in told.items() if answer not in (401, "PermissionError")} == {}
    assert len(served.server.runs()) == before and not trace.exists()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                said = (process / "cmdline").read_bytes()
            except OSError:
                continue
            assert served.access["PREFECT_API_AUTH_STRING"].encode() not in said


def failed(served: Served, deployment: str = "simulate", /, **parameters: Any) -> str:
    """A run that must fail; what the service's log says of it."""
    began = served.log.stat().st_size
    assert served.server.ended(deployment, **parameters) == "FAILED"
    return served.said(began).decode()


def test_who_knows_the_secret_starts_what_the_operator_allows_and_nothing_else(served, tmp_path):
    trace = tmp_path / "trace"
    evil = tmp_path / "evil.toml"
    evil.write_text(
        '[recipe]\nname = "evil"\nagent = "evil:agent"\n[world]\nname = "riverswim"\n[runs]\nepisodes = 9\n'
    )
    shell = {"world": "subprocess:getoutput", "params": [f"cmd=touch {trace}"]}
    assert "only what its operator lists" in failed(served, **shell)
    assert "not a recipe this service runs" in failed(served, recipe=str(evil))
    assert "not a home this service works in" in failed(served, world="riverswim", home=f"{tmp_path}/elsewhere")
    code, told = served.trigger("simulate", "--param=world=gymnasium:os:path")
    assert code == 2 and told["error"]["code"] == 2
    assert not trace.exists() and not (tmp_path / "elsewhere").exists()
    # what the operator lists runs
    assert "only what its operator lists" in failed(served, world="corridor:corridor")
    (served.home / "allowed.toml").write_text('plugins = ["corridor:corridor"]\n')
    asked = {"world": "corridor:corridor", "episodes": 50, "name": "walks"}
    assert served.server.ended("simulate", **asked) == "COMPLETED", served.log.read_text()[-3000:]
    assert (served.home / "simulated" / "walks" / "card.toml").exists()
    (served.home / "allowed.toml").chmod(0o666)
    assert "others may write to it" in failed(served, world="riverswim")
    (served.home / "allowed.toml").unlink()


def test_what_a_deployment_says_of_its_code_is_not_read(served, tmp_path):
    trace = tmp_path / "trace"
    ours = served.server.ask("deployments/name/reproduce/reproduce")
    shell = {"prefect.deployments.steps.run_shell_script": {"script": f"touch {trace}"}}
    theirs = {"entrypoint": "subprocess.getoutput", "pull_steps": [shell], "path": str(tmp_path)}
    served.server.ask(f"deployments/{ours['id']}", theirs, method="PATCH")
    assert served.server.ask("deployments/name/reproduce/reproduce")["pull_steps"] == [shell]
    assert "no-such-study" in failed(served, "reproduce", name="no-such-study")
    assert not trace.exists()


@contextmanager
def elsewhere(folder: Path) -> Iterator[str]:
    """The origin of a page of somebody else's."""
    (folder / "page.html").write_text("<!doctype html><title>elsewhere</title>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


FETCH = """fetch({url!r}, {how}).then(r => r.type === "opaque" ? "opaque" : String(r.status), e => e.name)"""


def fetched(tab: Tab, url: str, body: Any = None, **how: str) -> str:
    told: dict[str, Any] = {"method": "GET" if body is None else "POST", **how}
    if body is not None:
        kind = "text/plain" if how.get("mode") == "no-cors" else "application/json"
        told |= {"body": json.dumps(body), "headers": {"content-type": kind}}
    return tab.ask(FETCH.format(url=url, how=json.dumps(told)))


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_foreign_page_in_the_operators_browser_learns_and_starts_nothing(served, tmp_path):
    server = served.server
    deployment = server.ask("deployments/name/simulate/simulate")["id"]
    before = len(server.runs())
    start = f"{server.api}/deployments/{deployment}/create_flow_run"
    attack = {"parameters": {"world": "riverswim"}}
    with browser(tmp_path / "profile") as tab, elsewhere(tmp_path) as origin:
        # the operator is logged in, in this very browser
        log_in(tab, served)
        tab.visit(f"{origin}/page.html")
        assert fetched(tab, f"{origin}/page.html") == "200"
        assert fetched(tab, f"{server.api}/health") == "TypeError"
        assert fetched(tab, f"{server.api}/deployments/filter", {}) == "TypeError"
        assert fetched(tab, start, attack, credentials="include") == "TypeError"
        # sent without asking the server first, and never answered to the page
        assert fetched(tab, start, attack, mode="no-cors", credentials="include") == "opaque"
        framed = server.api.removesuffix("/api")
        tab.ask(f"document.body.append(Object.assign(document.createElement('iframe'), {{src: {framed!r}}}))")
        wait_for(lambda: tab.ask("1") and any("frame-ancestors" in e for e in logged(tab)), 30, "a refused frame")
    assert len(server.runs()) == before


def logged(tab: Tab) -> list[str]:
    return [told["entry"]["text"] for told in tab.said("Log.entryAdded")]


def log_in(tab: Tab, served: Served) -> None:
    """Prefect's page asks for the secret once; the tab is on a page of the server afterwards."""
    tab.visit(served.server.api.removesuffix("/api"))
    tab.wait("document.querySelector('input') !== null")
    tab.ask("document.querySelector('input').focus()")
    tab.call("Input.insertText", text=served.access["PREFECT_API_AUTH_STRING"])
    tab.ask("document.querySelector('button[type=submit], button').click()")
    tab.wait("!location.href.includes('login')")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_servers_own_pages_ask_for_the_secret_show_the_deployments_and_talk_to_nobody_else(served, tmp_path):
    origin = served.server.api.removesuffix("/api")
    with browser(tmp_path / "profile") as tab:
        log_in(tab, served)
        tab.visit(f"{origin}/v2/deployments")
        tab.wait("['nightly', 'simulate', 'reproduce'].every(name => document.body.innerText.includes(name))")
        answered = {told["response"]["url"] for told in tab.said("Network.responseReceived")}
        assert answered and all(url.startswith((origin, "data:")) for url in answered)
        sent = {told["request"]["url"] for told in tab.said("Network.requestWillBeSent")}
        assert all(url.startswith((origin, "data:")) for url in sent)
        # Prefect's pages would call a measuring company, whatever the settings say
        assert any("amplitude" in text and "Content Security Policy" in text for text in logged(tab))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def child(served: Served) -> int:
    """The server of a service: its only child, as a second one that Prefect starts by itself asks for no password."""
    pid = served.process.pid
    (server,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert b"deployments.py" in Path(f"/proc/{server}/cmdline").read_bytes()
    assert b"temporary server" not in served.said()
    return int(server)


def test_a_service_that_is_killed_takes_its_server_with_it_and_a_server_that_is_killed_its_service(tmp_path):
    for victim in ("service", "server"):
        folder = tmp_path / victim
        (folder / "home" / "prefect").mkdir(mode=0o700, parents=True)
        lay_tables(folder / "home" / "prefect")
        served = Served(folder)
        server = child(served)
        os.kill(served.process.pid if victim == "service" else server, signal.SIGKILL)
        wait_for(lambda pid=server: not alive(pid), 60, "an ended server")
        assert served.process.wait(60) == (-signal.SIGKILL if victim == "service" else 1)
        assert not served.registered()
    assert b"the Prefect server ended" in served.said()


def test_a_port_that_somebody_else_has_is_not_trusted(served, tmp_path):
    port = served.server.api.removesuffix("/api").rpartition(":")[2]
    command = [sys.executable, "-P", "-m", "flows.cli", "--home", str(tmp_path / "home"), "serve", "--port", port]
    env = {k: v for k, v in served.server.env.items() if not k.startswith("PREFECT_API")}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and f"port {port} cannot be had" in done.stderr
    assert not (tmp_path / "home" / "prefect" / "access.env").exists()


def test_a_worker_runs_what_its_home_allows(tmp_path):
    secret = "team:a-secret-of-the-test"
    password = {"PREFECT_SERVER_API_AUTH_STRING": secret, "PREFECT_API_AUTH_STRING": secret}
    (tmp_path / "prefect").mkdir()
    home, shop, trace = tmp_path / "home", lay_out(tmp_path / "shop"), tmp_path / "trace"
    home.mkdir()
    with prefect_server(tmp_path / "prefect", **password) as server:
        server.start_worker(RETICENT_HOME=str(home))
        wait_for(lambda: server.ask("work_pools/filter", {}), 300, "a work pool", server)
        for name in ("simulate", "nightly"):
            server.deploy(name)
        shell = {"world": "subprocess:getoutput", "params": [f"cmd=touch {trace}"]}
        assert server.ended("simulate", **shell) == "FAILED"
        assert server.ended("nightly", recipe=str(shop / "private.toml")) == "FAILED"
        (home / "allowed.toml").write_text(f'recipes = ["{shop}"]\n')
        assert server.ended("nightly", recipe=str(shop / "private.toml")) == "COMPLETED", server.logs()
    assert not trace.exists() and list((home / "runs").glob("private-*"))
