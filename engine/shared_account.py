"""A device's account for all processes of a machine that use it, kept in files: see `engine.entries`.

No server keeps it and nobody has to renew anything: what a process holds ends with the process, by the kernel's hand.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.account import Share
from engine.device import Device
from engine.entries import Entries, default_folder
from engine.errors import LedgerUnusable
from engine.memory import Memory
from engine.shares import fits, foreign, room, short, tell_foreign, together

log = logging.getLogger(__name__)

_FRESH_S = 0.05
"""For so long `room` and `others` make do with what was last read. `hold` never does."""


@dataclass(frozen=True, slots=True)
class _View:
    at: float
    others: Mapping[int, Share]
    memory: Memory

    @property
    def sum(self) -> Share:
        return together(self.others.values())


class SharedAccount:
    """What this process holds of a device, beside others. Thread-safe; not for the child of a fork.

    All of ours together never hold more than the device's total less `reserve`. Without a folder one of this user in
    memory is taken. Raises LedgerUnusable if the folder may be written by others.
    """

    def __init__(
        self,
        device: Device,
        folder: Path | None = None,
        reserve: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._device = device
        self._reserve = reserve
        self._clock = clock
        self._lock = threading.Lock()
        self._share, self._want = Share(), 0
        self._others: Mapping[int, Share] = {}
        self._view: _View | None = None
        self._complained = False
        self._unsaid = False
        self._closed = False
        self._entries = Entries(folder or default_folder(), device.identity)
        _ACCOUNTS.add(self)

    def hold(self, share: Share, *, force: bool = False) -> bool:
        """Set what this process holds; False, and nothing changes, if the device has not that much."""
        with self._lock:
            self._check()
            sure = force or share.held <= self._share.held
            try:
                with self._entries.locked() as locked:
                    if not locked:
                        self._complain(self._entries.stuck())
                    if not sure and not (locked and self._fits(share, locked=True)):
                        return False
                    self._entries.write(share, self._want)
            except (OSError, LedgerUnusable) as error:
                self._complain(error)
                self._unsaid = True
                if not sure and not self._fits(share, locked=False):
                    return False
            if sure or self._unsaid:
                # What is free may have changed with it.
                self._view = None
            self._share = share
            return True

    def room(self) -> int:
        """Bytes that this process may hold besides what it holds now, by the account and by the device's own word."""
        with self._lock:
            self._check()
            view = self._recent()
            return room(self._share, view.sum, view.memory, self._reserve)

    def others(self) -> Share:
        """What the other live processes on the device hold together."""
        with self._lock:
            self._check()
            return self._recent().sum

    def want(self, count: int) -> None:
        """Tell the others that so many bytes are waited for; 0 ends that."""
        with self._lock:
            self._check()
            if count != self._want:
                self._want = count
                try:
                    with self._entries.locked():
                        self._entries.write(self._share, count)
                except (OSError, LedgerUnusable) as error:
                    self._complain(error)
                    self._unsaid = True

    def pressed(self, gives: int) -> bool:
        """Whether another process waits for more than there is room for, and could have it with `gives` bytes of ours.

        What all others hold is counted with that: somebody may give it up at the same time.
        """
        with self._lock:
            self._check()
            view = self._recent()
            free = room(self._share, view.sum, view.memory, self._reserve)
            return any(free < want <= free + gives + view.sum.held for want in self._entries.wanted)

    def short(self, taken: int) -> int:
        """What the device lacks of what this process holds and has not taken yet. Others see to what they lack."""
        with self._lock:
            self._check()
            return short(self._share.pending - taken, self._recent().memory, self._reserve)

    def foreign(self) -> int:
        """Bytes that are used on the device and are on nobody's account."""
        with self._lock:
            self._check()
            view = self._recent()
            return foreign(view.memory, together((self._share, view.sum)))

    def tell_foreign(self) -> str:
        """Who else is on the device, for a message. Takes milliseconds."""
        with self._lock:
            self._check()
            ours = {os.getpid(), *self._recent().others}
        return tell_foreign(self.foreign(), self._device.users(), ours)

    def close(self) -> None:
        """Hold nothing any more and leave the account."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._share = Share()
                self._entries.leave()

    def _fits(self, share: Share, *, locked: bool) -> bool:
        view = self._look(locked=locked)
        return fits(share, self._share, view.sum, view.memory, self._reserve)

    def _recent(self) -> _View:
        view = self._view
        if view is not None and self._clock() - view.at < _FRESH_S:
            return view
        try:
            with self._entries.locked() as locked:
                return self._look(locked=locked)
        except (OSError, LedgerUnusable) as error:
            self._complain(error)
            return self._look(locked=False)

    def _look(self, *, locked: bool) -> _View:
        """Others first, then the device: what they take in between is counted twice, and never not at all."""
        if locked:
            self._others = self._entries.others()
            if self._unsaid:
                # Nobody may ask for another share for long, and the others would go by an old one.
                self._entries.write(self._share, self._want)
                self._unsaid = False
        self._view = _View(self._clock(), self._others, self._device.probe())
        return self._view

    def _complain(self, error: Exception) -> None:
        """Once: a full disk or a folder taken away must not end the work, and the device's own word still holds."""
        if not self._complained:
            self._complained = True
            log.warning("the account of %s cannot be kept: %s", self._device.name, error)

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("this account was closed, or it is that of the process which forked this one")

    def _forked(self) -> None:
        """In the child of a fork: let go of the parent's files without unlocking them."""
        self._lock = threading.Lock()
        if not self._closed:
            self._closed = True
            self._entries.abandon()


_ACCOUNTS: weakref.WeakSet[SharedAccount] = weakref.WeakSet()


def _leave_all() -> None:
    for account in list(_ACCOUNTS):
        account._forked()


os.register_at_fork(after_in_child=_leave_all)
