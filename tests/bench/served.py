"""The embedded stack in a process of its own: `python -m tests.bench.served FOLDER`.

Says on stdout where it listens once it is ready, keeps its pieces alive until stdin ends, then stops them. Settings
come from the environment, as for any other start.
"""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from deploy.embedded.stack import Stack
from deploy.environment import exported
from tasks.settings import Settings


def main(folder: Path) -> None:
    """Start, tell, watch, stop."""
    stack = Stack(Settings(data_dir=folder, port=0), lambda line: print(line, file=sys.stderr))
    try:
        stack.start()
        told = {
            "url": stack.url,
            "database_url": stack.settings.database_url,
            "redis_url": stack.settings.redis_url,
            "environment": exported(stack.settings),
        }
        sys.stdout.write(orjson.dumps(told).decode() + "\n")
        sys.stdout.flush()
        stack.supervisor.watch(sys.stdin)
    finally:
        stack.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
