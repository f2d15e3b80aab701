"""What a device says of its memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """A device's bytes at one moment: all, free for anybody, and held by this process."""

    total: int
    free: int
    ours: int


@dataclass(frozen=True, slots=True)
class Use:
    """What one process takes of a device, by the system's or the driver's word."""

    pid: int
    bytes: int
