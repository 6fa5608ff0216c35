"""Chromium without a screen, driven over the DevTools protocol: what a reader's browser makes of a page."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)


class Tab:
    """One page: commands go out, events are kept by name."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._last, self._session = socket, 0, ""
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        of_tab = {"sessionId": self._session} if self._session else {}
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params} | of_tab))
        while True:
            told = json.loads(self._socket.recv(timeout=60))
            if told.get("id") == self._last:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']['message']}")
                return told["result"]
            if "method" in told:
                self.events.append((told["method"], told["params"]))

    def open(self, page: Path, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Load a file with the network off and scripts off, on a screen of this size."""
        phone = width < 600
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        self.call("Emulation.setScriptExecutionDisabled", value=True)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.events.clear()
        wrong = self.call("Page.navigate", url=page.resolve().as_uri()).get("errorText")
        assert wrong is None, f"{page}: {wrong}"
        end = time.monotonic() + 60
        while not self.said("Page.loadEventFired"):
            assert time.monotonic() < end, f"{page} did not load"
            self.call("Runtime.evaluate", expression="0")

    def visit(self, url: str) -> None:
        """Load a page from a server, as anybody's browser would."""
        self.call("Emulation.setDeviceMetricsOverride", width=1280, height=800, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def wait(self, expression: str, seconds: float = 60) -> Any:
        end = time.monotonic() + seconds
        while not (found := self.ask(expression)):
            assert time.monotonic() < end, expression
            time.sleep(0.1)
        return found

    def ask(self, expression: str) -> Any:
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"]["exception"]["description"])
        return told["result"].get("value")

    def said(self, *names: str) -> list[dict[str, Any]]:
        return [params for name, params in self.events if name in names]

    def pdf(self, to: Path) -> Path:
        told = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        to.write_bytes(base64.b64decode(told["data"]))
        return to

    def picture(self, to: Path, *, whole: bool = False) -> Path:
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        to.write_bytes(base64.b64decode(told["data"]))
        return to


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """A browser of its own, ended when the block is left; ``folder`` takes its profile."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = folder / "DevToolsActivePort"
        end = time.monotonic() + 60
        while not (port.is_file() and len(port.read_text().splitlines()) == 2):
            assert process.poll() is None and time.monotonic() < end, "chromium did not start"
            time.sleep(0.05)
        number, path = port.read_text().splitlines()
        with connect(f"ws://127.0.0.1:{number}{path}", max_size=None, compression=None) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        process.wait(timeout=30)
