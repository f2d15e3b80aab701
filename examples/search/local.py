"""A stack for an example: `roost up` in a folder of its own, on free ports, ended with Ctrl-C's signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_END_S = 60.0


class NoStackError(Exception):
    """`roost up` ended before it was ready; what it printed says why."""


@contextmanager
def stack(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run `roost up` as a user would, print what it says, and give the address of the API once it is ready.

    `settings` are more variables for it, such as ROOST_CATALOG.
    """
    environment = {
        "ROOST_PORT": "0",
        "ROOST_FLOWER_PORT": str(_free_port()),
        **os.environ,
        **(settings or {}),
        "ROOST_DATA_DIR": str(folder),
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "deploy.cli", "up"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        try:
            yield _address(running)
        finally:
            running.send_signal(signal.SIGINT)
            # The rest of the output must be read, or a full pipe would stop the stopping.
            rest, _ = running.communicate(timeout=_END_S)
            print(rest.rstrip())
    if running.returncode:
        raise NoStackError(f"`roost up` ended with status {running.returncode}")


def _address(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    for line in running.stdout:
        if not line.startswith("ROOST_"):
            print(line.rstrip(), flush=True)
        if line.startswith("ready in "):
            return line.split()[4]
    raise NoStackError("`roost up` ended before it was ready")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def origin(folder: Path | None) -> str:
    """Where a model's files come from, in words, told by where they lie."""
    if folder is None:
        return "a model without weights"
    if "site-packages" in folder.parts:
        return f"an installed package ({folder})"
    return f"the hub, by way of its cache ({folder})"
