"""One API process on a socket that the supervisor holds: `python -m deploy.embedded.serve FD LOG_LEVEL`.

The port stays open while the process is replaced, so that callers wait instead of being refused, and several
processes may share it. Port 0 is decided once, when the socket is bound.
"""

from __future__ import annotations

import socket
import sys

import uvicorn

from deploy.serve import SERVED


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM; open requests get five seconds."""
    listener = socket.socket(fileno=int(arguments[0]))
    uvicorn.Server(uvicorn.Config(**SERVED, log_level=arguments[1])).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1:])
