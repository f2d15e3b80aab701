"""What a feeder takes over when it starts: work of processes of this host that have died under their leases."""

from __future__ import annotations

import os

from api.feeding.services import Feeding
from tasks.store import leases


def lease_name(host: str, pid: int, own: str) -> str:
    """The name of a lease: of a process on a host, and its own."""
    return f"{host}:{pid}:{own}"


async def inherit(it: Feeding, host: str) -> list[str]:
    """End the leases of dead processes of this host, which would else have to run out; their names.

    Call it before this process holds any: in a container it may have the number of the one before it. Hosts of one
    name may end each other's leases so; what works under one is refused then, and another takes it up.
    """
    held = await it.database.run(leases.held, f"{host}:")
    dead = [lease for lease in held if _died(lease.removeprefix(f"{host}:").partition(":")[0])]
    if dead:
        await it.database.run(leases.abandon, dead)
    return dead


def _died(pid: str) -> bool:
    return pid.isdecimal() and (int(pid) == os.getpid() or not lives(int(pid)))


def lives(pid: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
