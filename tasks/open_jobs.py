"""Taking out of the sets of open jobs what a crash left in them: a tenant must not be kept out by jobs that ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import redis

from tasks import keys
from tasks.db import Database
from tasks.store import sweep

AGE_S = 10.0
"""What was let in later may be on its way to its row."""

_SET = 1000


def heal(
    valkey: redis.Redis,
    database: Database,
    held: Callable[[Sequence[UUID]], set[UUID] | None],
    clock: Callable[[], float] = time.time,
) -> int:
    """Take out jobs that have ended, or never came to be; how many. `held` are those with a message: they are open.

    Raises StoreUnavailable, BrokerUnavailable or a RedisError.
    """
    count = 0
    for name in valkey.scan_iter(f"{keys.OPEN_JOBS}*"):
        found: Any = valkey.zrangebyscore(name, "-inf", clock() - AGE_S)
        old = [UUID(member.decode()) for member in found]
        for ids in (old[start : start + _SET] for start in range(0, len(old), _SET)):
            open_ = database.run(sweep.still_open, ids)
            over = set(ids) - open_
            over -= held(sorted(over)) or set()
            if over:
                count += valkey.zrem(name, *map(str, over))
    return count
