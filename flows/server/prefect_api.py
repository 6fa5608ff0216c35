"""The Prefect server that ``reticent serve`` starts: on a socket it is handed, and gone when its service is.

The service opens the socket before it starts this process, so that nobody else can be listening in its place.  Standard
input is a pipe that the service holds: when it closes, however the service died, the server ends.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

# seconds that open connections have to end
GRACE = 5

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Callable[[], Awaitable[Message]], Send], Awaitable[None]]

# Prefect's pages keep the secret in the browser, and call a measuring company whatever the settings say
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


def confined(app: App) -> App:
    """The same server, whose pages may load from it and talk to it alone, and stand in no other page."""

    async def answer(scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY.encode())]
            await send(message)

        await app(scope, receive, headed)

    return answer


def main() -> None:
    """Serve on the socket whose number is the first argument."""
    import uvicorn
    from prefect.server.api.server import create_app

    config = uvicorn.Config(confined(create_app(final=True)), timeout_graceful_shutdown=GRACE, log_level="info")
    server = uvicorn.Server(config)

    def end_with_the_service() -> None:
        while os.read(0, 1):
            pass
        server.should_exit = True
        # a loop that hangs does not look at it
        threading.Timer(2 * GRACE, os._exit, (1,)).start()

    threading.Thread(target=end_with_the_service, daemon=True).start()
    server.run(sockets=[socket.socket(fileno=int(sys.argv[1]))])


if __name__ == "__main__":
    main()
