"""The API on an address, with all its processes: `python -m deploy.serve HOST PORT PROCESSES LOG_LEVEL`.

uvicorn's own command takes no protocol but its own, and those bound no head of a request.
"""

from __future__ import annotations

import sys

import uvicorn

HTTP = "api.heads:BoundedHeads"


def main(arguments: list[str]) -> None:
    """Serve until SIGTERM; open requests get five seconds."""
    host, port, processes, log_level = arguments
    uvicorn.run(
        "api.app:create",
        factory=True,
        host=host,
        port=int(port),
        workers=int(processes),
        loop="uvloop",
        http=HTTP,
        access_log=False,
        log_level=log_level,
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
