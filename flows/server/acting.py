"""``reticent policy serve``: the policy in use answers ``POST /act`` over HTTP, and writes nothing down.

A query names a person and their state.  Neither reaches a log, a file or an error's text, there is no other
address, and nothing can be changed.  A caller shows a secret that lies in the home, for its owner alone.
"""

import hmac
import json
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, FiniteFloat, ValidationError

from flows.config.home import CardLike, Home
from flows.jobs.opened import Run, RunPolicy, find_run
from flows.jobs.promotion import PRACTICE, practice_serves
from flows.server.serving import ACCESS, access
from pipeline.declaration.toml import CardError, Strict
from pipeline.files import private_folder
from pipeline.ledger.chain import BudgetError

URL, SECRET = "RETICENT_ACT_URL", "RETICENT_ACT_SECRET"
# most bytes of a query, and seconds that one may take to arrive
_MOST, _PATIENCE = 1 << 16, 10


class Situation(Strict):
    """A query: a state, an observation or both, at a step from 0; ``raw``: as the log's column holds it."""

    step: Annotated[int, Field(ge=0, lt=2**31)]
    state: str | None = None
    observation: list[FiniteFloat] | None = None
    person: str | None = None
    raw: bool = False


class RefusedError(Exception):
    """A refused query: an HTTP status and the text for the caller."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class Served:
    """The policy that a name leads to, read again when it leads to another run."""

    home: Home
    run: str
    card: CardLike | None
    _cached: tuple[Path, RunPolicy] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def policy(self) -> RunPolicy:
        """The one in use now.

        Raises CardError if the name leads nowhere.
        Raises BudgetError if a file of the run is not the one that the ledger vouches for.
        """
        with self._lock:
            folder = find_run(self.home, self.run)
            if self._cached is None or self._cached[0] != folder:
                self._cached = folder, Run(self.home, folder, self.card).policy
            return self._cached[1]

    def answer(self, body: bytes) -> Mapping[str, Any]:
        """The policy's answer to one query.

        Raises RefusedError if the query is malformed, or the policy in use cannot be read.
        """
        policy = None
        try:
            if practice_serves(self.home.runs, self.run) is None:
                policy = self.policy()
        except (CardError, BudgetError, OSError) as e:
            raise RefusedError(503, f"no policy is in use that may be served ({type(e).__name__})") from None
        try:
            query = Situation.model_validate_json(body)
        except ValidationError as e:
            # repeats no value and no unknown key: either may be a person's
            problems = [(w["loc"][0] if w["loc"] else "body", w["msg"]) for w in e.errors(include_input=False)]
            wrong = "; ".join(
                f"{key if key in (*Situation.model_fields, 'body') else 'a key'}: {why}" for key, why in problems
            )
            keys = ", ".join(Situation.model_fields)
            raise RefusedError(400, f"the body is a JSON object with keys among {keys}: {wrong}") from None
        if query.state is None and query.observation is None:
            raise RefusedError(400, "give step, and a state, an observation, or both")
        if policy is None:
            nothing = {"step": query.step, "advice": PRACTICE, "action": None}
            return {"run": None, "policy_id": None, "arm": "practice", "propensity": None, **nothing}
        try:
            if query.observation is None:
                decision = policy.act(query.state, query.step, raw=query.raw, sample=True, person=query.person)
            else:
                observations, step = np.array([query.observation]), np.array([query.step])
                # what overflows is refused below
                with np.errstate(over="ignore", invalid="ignore"):
                    decision = policy.met_by(query.person, policy.observe(observations, step, query.state)[0])
            return {"run": policy.stored.of.run, **_finite(decision)}
        except (CardError, ValueError, TypeError) as e:
            text = str(e) if isinstance(e, CardError) else "that is nowhere where this policy decides"
            raise RefusedError(400, text) from None


def _finite(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises CardError if a number of the answer is not finite."""
    try:
        json.dumps(answer, allow_nan=False)
    except ValueError:
        raise CardError("the answer would not be a finite number: the observation is too large") from None
    return answer


def handler(served: Served, secret: str) -> type[BaseHTTPRequestHandler]:
    """The handler class of a server of ``served``."""

    class Handler(BaseHTTPRequestHandler):
        timeout, server_version, sys_version, protocol_version = _PATIENCE, "reticent", "", "HTTP/1.1"

        def do_POST(self) -> None:
            try:
                self._say(200, served.answer(self._body()))
            except RefusedError as e:
                self.send_error(e.status, str(e), "refused")

        def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
            """Also what http.server refuses by itself: another method, a broken request line."""
            # the unread rest must not be taken for the next query
            self.close_connection = True
            # http.server repeats what it was sent, and that may name a person
            why = (
                message if explain == "refused" else "there is POST alone" if code == 501 else "no request of HTTP/1.1"
            )
            self._say(405 if code == 501 else code, {"error": why})

        def _say(self, status: int, answer: Mapping[str, Any]) -> None:
            content = json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def _body(self) -> bytes:
            shown = self.headers.get("Authorization", "").encode()
            if not hmac.compare_digest(shown, f"Bearer {secret}".encode()):
                raise RefusedError(401, "the secret is missing or wrong: Authorization: Bearer SECRET")
            if self.path != "/act":
                raise RefusedError(404, "there is /act alone")
            length = self.headers.get("Content-Length", "")
            # Python reads no number of thousands of digits
            if not (length.isascii() and length.isdigit() and len(length) < 10 and int(length) <= _MOST):
                raise RefusedError(413, f"a question has a Content-Length of at most {_MOST}")
            try:
                body = self.rfile.read(int(length))
            except TimeoutError:
                body = b""
            if len(body) < int(length):
                raise RefusedError(408, "the body is shorter than its Content-Length")
            return body

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: neither a state nor a person reaches a log."""

    return Handler


class Server(ThreadingHTTPServer):
    """Answers several connections at once, and logs none that break."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a traceback might hold a query."""


def serve_policy(home: Home, run: str, card: CardLike | None, port: int, say: Callable[[str], None]) -> None:
    """Answer until a signal ends it.

    Raises CardError if there is no such run, the port is taken, or others may read the secret.
    Raises BudgetError if a file of the run is not the one that the ledger vouches for.
    """
    served = Served(home, run, card)
    # a wrong run is refused now, not at the first query
    served.policy()
    place = private_folder(home.root / "act")
    try:
        server = Server(("127.0.0.1", port), BaseHTTPRequestHandler)
    except OSError as e:
        raise CardError(f"policy serve: port {port} cannot be had ({e.strerror}); give another --port") from None
    with server, suppress(KeyboardInterrupt):
        address = f"http://127.0.0.1:{server.server_port}/act"
        server.RequestHandlerClass = handler(served, access(place / ACCESS, address, (URL, SECRET), ""))
        # as Ctrl-C does
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        say(f"answering POST {address} by {run}; its secret is in {place / ACCESS}; stop with Ctrl-C or SIGTERM")
        server.serve_forever()
