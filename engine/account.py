"""A device's account as one process sees it: what others on the device hold, and leave to hold more oneself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.device import Device


@dataclass(frozen=True, slots=True)
class Share:
    """What one process holds of a device, in bytes.

    `held` is all it has reserved: weights, and what its batches may take. `pending` is the part of that which it has
    not taken yet, so that the device still counts it as free.
    """

    held: int = 0
    pending: int = 0


class Account(Protocol):
    """The account of one device. Thread-safe. `hold` and `room` take some microseconds."""

    def hold(self, share: Share, *, force: bool = False) -> bool:
        """Set what this process holds; False, and nothing changes, if the device has not that much.

        Holding less always succeeds. `force` records what was taken already, whether it fits or not.
        """

    def room(self) -> int:
        """Bytes that this process may hold besides what it holds now, by the account and by the device's own word."""

    def want(self, count: int) -> None:
        """Tell the others that so many bytes are waited for, which they hold; 0 ends that."""

    def pressed(self, gives: int) -> bool:
        """Whether another process waits for more than there is room for, so that what is idle here should go.

        `gives` is what this process could give up. Where that and all that others hold would not be enough, nothing is
        won by it, and nobody is pressed.
        """

    def short(self, taken: int) -> int:
        """Bytes that this process holds and has not taken yet, and that the device has free no more.

        Somebody who is on no account has grown into them. `taken` is what batches have of the pending bytes just now.
        """

    def others(self) -> Share:
        """What the other live processes on the device hold together."""

    def tell_foreign(self) -> str:
        """Who else is on the device, for a message. May take milliseconds."""

    def close(self) -> None:
        """Hold nothing any more and leave the account."""


class SoleAccount:
    """The account of a device that this process has for itself: only the device's own word bounds it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._share = Share()

    def hold(self, share: Share, *, force: bool = False) -> bool:
        """Set what this process holds."""
        if not force and share.held > self._share.held and share.pending > self._device.probe().free:
            return False
        self._share = share
        return True

    def room(self) -> int:
        """What the device has free, less what this process has reserved and not taken."""
        return max(0, self._device.probe().free - self._share.pending)

    def want(self, count: int) -> None:
        """There is nobody to tell."""

    def pressed(self, gives: int) -> bool:
        """By nobody."""
        return False

    def short(self, taken: int) -> int:
        """What the device lacks of what is pending."""
        from engine.shares import short

        return short(self._share.pending - taken, self._device.probe(), 0)

    def others(self) -> Share:
        """Nobody."""
        return Share()

    def tell_foreign(self) -> str:
        """What is used beside this process's share, and by whom."""
        from engine.shares import foreign, tell_foreign

        return tell_foreign(foreign(self._device.probe(), self._share), self._device.users())

    def close(self) -> None:
        """Nothing to leave."""
        self._share = Share()
