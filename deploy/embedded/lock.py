"""One stack for each data folder: a lock that the kernel drops with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.embedded.errors import AlreadyRunningError


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock, with our pid in the file. Raises AlreadyRunningError when another process does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AlreadyRunningError(
                f"a stack (pid {_written(path) or 'unknown'}) already runs on {path.parent}: "
                "`roost status` shows it, `roost down` stops it; for a second one set another ROOST_DATA_DIR"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
        file.truncate(0)


def holder(path: Path) -> int | None:
    """The pid of the process that holds the lock; None when nobody does."""
    if not path.exists():
        return None
    with path.open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return _written(path)
    return None


def _written(path: Path) -> int | None:
    text = path.read_text().strip()
    return int(text) if text.isdecimal() else None
