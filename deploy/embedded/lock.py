"""One stack for each data folder: a lock that the kernel drops with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from deploy.embedded.errors import AlreadyRunningError


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock, with our pid in the file, which goes with it. Raises AlreadyRunningError when another holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path) as file:
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _locked(path: Path) -> TextIO:
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise AlreadyRunningError(
                f"a stack (pid {_written(path) or 'unknown'}) already runs on {path.parent}: "
                "`roost status` shows it, `roost down` stops it; for a second one set another ROOST_DATA_DIR"
            ) from error
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        # Its last holder removed it after we had opened it: the next one would not see our lock.
        file.close()


def holder(path: Path) -> int | None:
    """The pid of the process that holds the lock; None when nobody does."""
    try:
        file = path.open("r")
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return _written(path)
    return None


def _written(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isdecimal() else None
