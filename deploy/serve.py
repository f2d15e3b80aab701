"""The API on an address, with all its processes: `python -m deploy.serve HOST PORT PROCESSES LOG_LEVEL`.

uvicorn's own command takes no protocol but its own, and those bound no head of a request.
"""

from __future__ import annotations

import sys

import uvicorn

HTTP = "api.heads:BoundedHeads"
WEBSOCKETS = "websockets-sansio"
"""Of uvicorn's protocols the one that keeps to its event loop; the older one over `websockets` is being given up."""
MAX_MESSAGE_BYTES = 4096
"""Those who watch say nothing."""


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
        ws=WEBSOCKETS,
        ws_max_size=MAX_MESSAGE_BYTES,
        access_log=False,
        log_level=log_level,
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
