"""One API process on a socket that the supervisor holds: `python -m deploy.embedded.serve FD LOG_LEVEL`.

The port stays open while the process is replaced, so that callers wait instead of being refused, and several
processes may share it. Port 0 is decided once, when the socket is bound.
"""

from __future__ import annotations

import socket
import sys

import uvicorn

from deploy.serve import HTTP, LOGGING, MAX_MESSAGE_BYTES, WEBSOCKETS


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM; open requests get five seconds."""
    listener = socket.socket(fileno=int(arguments[0]))
    config = uvicorn.Config(
        "api.app:create",
        factory=True,
        loop="uvloop",
        http=HTTP,
        ws=WEBSOCKETS,
        ws_max_size=MAX_MESSAGE_BYTES,
        access_log=False,
        log_config=LOGGING,
        log_level=arguments[1],
        timeout_graceful_shutdown=5,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1:])
