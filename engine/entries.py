"""The files by which the processes on a device tell each other what they hold: one lock, and an entry for each process.

A process keeps an exclusive flock on its entry for its life. So an entry whose lock can be had belongs to nobody any
more, however its process ended, and is removed by whoever meets it. A process that is stopped keeps its entry, as it
keeps its memory. Entries come, go and change under the device's lock. Locks are never passed on: descriptors close at
exec, and `abandon` closes them in the child of a fork.

The folder belongs to this user alone. Nothing in it is followed that is a link, and an entry that cannot be read counts
as what was last read there: what its process has taken, the device knows.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from engine.account import Share
from engine.errors import LedgerUnusable
from engine.shares import together

_FORM = struct.Struct("<8sQQQI")
_MAGIC = b"roost\x00v2"
_MOST = 2**64 - 1
_OPEN = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATIENCE_S = 0.25
"""The lock is held for microseconds; only a process that was stopped just then holds it longer."""
_STEP_S = 0.0005


def default_folder() -> Path:
    """A folder of this user in memory, or else among temporary files."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder made there is private and is checked
    root = memory if os.access(memory, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return root / f"roost-{os.geteuid()}"


class Entries:
    """One process's entry for one device, and its view of the others'. Not thread-safe: its owner is.

    Raises LedgerUnusable if the folder is not there for this user alone.
    """

    def __init__(self, folder: Path, device: str) -> None:
        self._folder = folder
        self._device = re.sub(r"[^A-Za-z0-9.-]+", "_", device)[:100]
        self._own = ""
        self.wanted: tuple[int, ...] = ()
        """What each other process waits for that waits for something, as of the last reading."""
        self._patient = True
        self._share, self._want = Share(), 0
        self._last: dict[str, tuple[Share, int]] = {}
        self._folder_fd = self._lock_fd = self._entry_fd = -1
        self._enter()

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the device's lock; False if it could not be had, because its holder was stopped.

        Enters anew if somebody has removed the folder or what is in it. Raises LedgerUnusable if that fails, OSError.
        """
        held = self._lock()
        try:
            yield held
        finally:
            if held:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def others(self) -> dict[int, Share]:
        """What each other live process holds, by its pid. Called under the lock; removes the entries of the dead."""
        found: dict[int, Share] = {}
        seen: dict[str, tuple[Share, int]] = {}
        for name in os.listdir(self._folder_fd):  # noqa: PTH208 - by descriptor, so that it is the folder we checked
            if name == self._own or not (name.startswith(f"{self._device}.") and name.endswith(".share")):
                continue
            told = self._look(name)
            if told is not None:
                seen[name] = told
                share, _ = told
                pid = name.split(".")[-3]
                key = int(pid) if pid.isdecimal() else -1
                found[key] = together((found.get(key, Share()), share))
        self._last = seen
        self.wanted = tuple(want for _, want in seen.values() if want)
        return found

    def write(self, share: Share, want: int = 0) -> None:
        """Tell what this process holds, and how much it waits for that others hold."""
        self._share, self._want = share, want
        counts = (min(max(0, count), _MOST) for count in (share.held, share.pending, want))
        body = _FORM.pack(_MAGIC, *counts, 0)[:-4]
        os.pwrite(self._entry_fd, body + struct.pack("<I", zlib.crc32(body)), 0)

    def leave(self) -> None:
        """Remove this process's entry."""
        with contextlib.suppress(OSError, LedgerUnusable), self.locked():
            os.unlink(self._own, dir_fd=self._folder_fd)
        self.abandon()

    def abandon(self) -> None:
        """Close all files. In the child of a fork this leaves the parent its locks, and it alone."""
        for descriptor in (self._entry_fd, self._lock_fd, self._folder_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._folder_fd = self._lock_fd = self._entry_fd = -1

    def _enter(self) -> None:
        try:
            self._folder_fd = _open_folder(self._folder)
            self._lock_fd = os.open(f"{self._device}.lock", _OPEN | os.O_CREAT, 0o600, dir_fd=self._folder_fd)
            # Under the lock: an entry that is not locked yet would be taken for that of a dead process.
            if not self._take():
                raise self.stuck()
            # A name of its own each time: an entry left in a folder that somebody cleared in part is nobody's.
            self._own = f"{self._device}.{os.getpid()}.{secrets.token_hex(4)}.share"
            try:
                self._entry_fd = os.open(self._own, _OPEN | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._folder_fd)
                fcntl.flock(self._entry_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.write(self._share, self._want)
            finally:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        except OSError as error:
            self.abandon()
            raise LedgerUnusable(
                f"The folder {self._folder}, by which workers on a device share its memory, cannot be used: "
                f"{error.strerror}. Mend that, or name another folder in ROOST_LEDGER_DIR."
            ) from error
        except LedgerUnusable:
            self.abandon()
            raise

    def stuck(self) -> LedgerUnusable:
        """What to say of a lock that cannot be had."""
        return LedgerUnusable(
            f"The lock of {self._device} in {self._folder} is held by a process that does not go on. End that process "
            "(fuser tells which), or name another folder in ROOST_LEDGER_DIR."
        )

    def _lock(self) -> bool:
        for _ in range(3):
            if self._lock_fd < 0:
                self._enter()
            if not self._take():
                return False
            if os.fstat(self._lock_fd).st_nlink and os.fstat(self._entry_fd).st_nlink:
                return True
            # Somebody has cleared the folder: others may be in a new one by now.
            self.abandon()
        return False

    def _take(self) -> bool:
        """Waits once for a holder that does not go on; after that a single try will do until the lock can be had."""
        until = time.monotonic() + (_PATIENCE_S if self._patient else 0.0)
        while True:
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    self._patient = False
                    return False
                time.sleep(_STEP_S)
            else:
                self._patient = True
                return True

    def _look(self, name: str) -> tuple[Share, int] | None:
        """What an entry says; None if it is that of a dead process, which is removed, or is no entry."""
        try:
            descriptor = os.open(name, _OPEN, dir_fd=self._folder_fd)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read(descriptor) or self._last.get(name, (Share(), 0))
            os.unlink(name, dir_fd=self._folder_fd)
        except OSError:
            pass
        finally:
            os.close(descriptor)
        return None


def _read(descriptor: int) -> tuple[Share, int] | None:
    """An entry's content; None if it is not whole."""
    data = os.pread(descriptor, _FORM.size, 0)
    if len(data) != _FORM.size:
        return None
    magic, held, pending, want, check = _FORM.unpack(data)
    if magic != _MAGIC or check != zlib.crc32(data[:-4]):
        return None
    return Share(held, pending), want


def _open_folder(folder: Path) -> int:
    """The folder, made if it is not there. Raises LedgerUnusable unless it is this user's and nobody else may write."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    descriptor = os.open(folder, _FOLDER)
    facts = os.fstat(descriptor)
    if facts.st_uid == os.geteuid() and not facts.st_mode & 0o022:
        return descriptor
    os.close(descriptor)
    raise LedgerUnusable(
        f"The folder {folder}, by which workers on a device share its memory, is not this user's alone: it must belong "
        "to the user that runs the worker, and nobody else may write there. Use chown and chmod 700, or name another "
        "folder in ROOST_LEDGER_DIR."
    )
