"""The API on an address, with all its processes: `python -m deploy.serve HOST PORT PROCESSES LOG_LEVEL`.

uvicorn's own command takes no protocol but its own, and those bound no head of a request.
"""

from __future__ import annotations

import logging
import sys
from copy import deepcopy
from typing import Any

import uvicorn
from uvicorn.config import LOGGING_CONFIG


class SocketChatter(logging.Filter):
    """Leaves out that a watcher came and went, and that its text was none: it is closed with 1007, which tells it."""

    _LEFT_OUT = frozenset(
        {
            '%s - "WebSocket %s" [accepted]',
            "connection open",
            "connection closed",
            "Invalid UTF-8 sequence received from client.",
        }
    )

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is kept."""
        return record.msg not in self._LEFT_OUT


LOGGING = deepcopy(LOGGING_CONFIG)
"""uvicorn's own, in every process that it starts, without that chatter."""
LOGGING["filters"] = {"socket_chatter": {"()": "deploy.serve.SocketChatter"}}
LOGGING["loggers"]["uvicorn.error"]["filters"] = ["socket_chatter"]

SERVED: dict[str, Any] = {
    "app": "api.app:create",
    "factory": True,
    "loop": "uvloop",
    "http": "api.heads:BoundedHeads",
    # Of uvicorn's protocols the one that keeps to its event loop; the older one over `websockets` is being given up.
    "ws": "websockets-sansio",
    # Those who watch say nothing.
    "ws_max_size": 4096,
    "access_log": False,
    "log_config": LOGGING,
    "timeout_graceful_shutdown": 5,
}
"""How the API is served, whoever holds its socket."""


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM; open requests get five seconds."""
    host, port, processes, log_level = arguments
    uvicorn.run(**SERVED, host=host, port=int(port), workers=int(processes), log_level=log_level)


if __name__ == "__main__":
    main(sys.argv[1:])
