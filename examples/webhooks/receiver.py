"""A receiver of webhooks: it verifies what comes, acts on each event once, and answers at once.

    WEBHOOK_SECRET=whsec_… python examples/webhooks/receiver.py --port 9000

Needs the client of Roost and nothing else. Put a proxy that ends TLS in front of it: Roost sends to https:// alone,
unless its operator lets this host through (ROOST_WEBHOOK_ALLOW). docs/webhooks.md tells the rest.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

import roost

Act = Callable[[Mapping[str, Any]], object]

MOST_BYTES = 1 << 20
"""An event is much smaller, a result of 64 KiB in it included."""


class Seen:
    """Ids of the events that came, the last thousands of them. A real receiver has them in its database."""

    def __init__(self, most: int = 10_000) -> None:
        self._begun: set[str] = set()
        self._done: dict[str, None] = {}
        self._most = most
        self._lock = Lock()

    def begin(self, id_: str) -> HTTPStatus | None:
        """How to answer an event that has come before; None: it is new, and `end` is to say what came of it."""
        with self._lock:
            if id_ in self._done:
                return HTTPStatus.NO_CONTENT
            if id_ in self._begun:
                # The sender gave the first one up. To say that we have it would be too early: it may yet fail.
                return HTTPStatus.SERVICE_UNAVAILABLE
            self._begun.add(id_)
            return None

    def end(self, id_: str, *, done: bool) -> None:
        """What was not done may come again."""
        with self._lock:
            self._begun.discard(id_)
            if done:
                self._done[id_] = None
            if len(self._done) > self._most:
                del self._done[next(iter(self._done))]


def receiver(port: int, secret: str, act: Act, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """A server that calls `act` with each event, once; where it raises, the event is sent again later."""
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_POST(self) -> None:
            self._answer(self._take())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            """Say nothing: a URL may hold a secret."""

        def _take(self) -> HTTPStatus:
            length = self.headers.get("content-length", "")
            if not length.isdigit() or int(length) > MOST_BYTES:
                return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            body = self.rfile.read(int(length))
            try:
                event = roost.verify(dict(self.headers), body, secret)
            except roost.NotSigned:
                return HTTPStatus.BAD_REQUEST
            id_ = self.headers["webhook-id"]
            known = seen.begin(id_)
            if known is not None:
                return known
            done = False
            try:
                act(event)
                done = True
            except Exception:  # noqa: BLE001 - whatever it was, the sender is to come again
                return HTTPStatus.INTERNAL_SERVER_ERROR
            finally:
                seen.end(id_, done=done)
            return HTTPStatus.NO_CONTENT

        def _answer(self, status: HTTPStatus) -> None:
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

    return ThreadingHTTPServer((host, port), Handler)


def show(event: Mapping[str, Any]) -> None:
    """What this one does with an event. What takes long belongs into a queue of yours: the sender waits 15 s."""
    told = event["data"]
    print(event["type"], told["id"], told.get("urls", {}).get("self", ""), flush=True)


def main() -> None:
    """Receive until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Print the webhooks that Roost sends.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000)
    options = parser.parse_args()
    secret = os.environ.get("WEBHOOK_SECRET", "")
    if not secret:
        parser.error("set WEBHOOK_SECRET to the secret that `roost webhooks create` printed")
    with receiver(options.port, secret, show, options.host) as server:
        print(f"http://{options.host}:{server.server_port}/", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
