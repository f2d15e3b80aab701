"""The arithmetic of a shared device: who may hold how much beside the others. Pure: no clock, no file, no device.

Two things bound what a process may hold. What all of ours hold together stays under the device's total less the
reserve. And what they hold but have not taken yet must fit into what the device says is free, which is how memory
counts that somebody else has taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from engine.account import Share
from engine.memory import Memory, Use

_KEPT_FREE = 20
"""One part in so many of the device stays free whatever is asked for, if the reserve is that large."""


def together(shares: Iterable[Share]) -> Share:
    """What several processes hold in all."""
    held = pending = 0
    for share in shares:
        held += share.held
        pending += share.pending
    return Share(held, pending)


def fits(wish: Share, mine: Share, others: Share, memory: Memory, reserve: int) -> bool:
    """Whether a process that holds `mine` may hold `wish` instead. Holding no more than before always fits."""
    if wish.held <= mine.held:
        return True
    if others.held + wish.held > memory.total - reserve:
        return False
    return others.pending + wish.pending <= _takeable(memory, reserve)


def room(mine: Share, others: Share, memory: Memory, reserve: int) -> int:
    """Bytes that a process may hold besides what it holds."""
    by_account = memory.total - reserve - others.held - mine.held
    by_device = _takeable(memory, reserve) - others.pending - mine.pending
    return max(0, min(by_account, by_device))


def short(pending: int, memory: Memory, reserve: int) -> int:
    """Bytes that a process was given and has not taken yet, and that the device has free no more."""
    return max(0, pending - _takeable(memory, reserve))


def foreign(memory: Memory, ours: Share) -> int:
    """Bytes that are used on the device and that no process of ours has taken on account."""
    return max(0, memory.total - memory.free - max(0, ours.held - ours.pending))


def tell_foreign(count: int, users: Iterable[Use], ours: Collection[int] = ()) -> str:
    """For a message: `foreign 12.0 GiB, of which pid 4711 has 11.5 GiB`; `ours` are left out."""
    told = f"foreign {_gib(count)}"
    largest = max((use for use in users if use.pid not in ours), key=lambda use: use.bytes, default=None)
    if largest is None or not largest.bytes:
        return told
    return f"{told}, of which pid {largest.pid} has {_gib(largest.bytes)}"


def _takeable(memory: Memory, reserve: int) -> int:
    """What of the free memory may be taken. Foreign memory uses the reserve up, but not to the last byte."""
    return memory.free - min(reserve, memory.total // _KEPT_FREE)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
