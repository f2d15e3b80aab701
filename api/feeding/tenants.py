"""What tenants may, as their rows say it, for a process that no key tells of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tasks.db import AsyncDatabase
from tasks.store import api_keys

FRESH_S = 5.0
"""So long a row holds that was read."""

_MOST_KNOWN = 10_000


class Tenants:
    """One for each feeder."""

    def __init__(self, database: AsyncDatabase) -> None:
        self._database = database
        self._known: dict[str, tuple[float, Mapping[str, Any]]] = {}

    async def look(self, name: str) -> None:
        """See that what is known of a tenant is fresh. Raises StoreUnavailable, Overloaded."""
        now = time.monotonic()
        if name in self._known and now - self._known[name][0] <= FRESH_S:
            return
        rows = await self._database.run(api_keys.tenants, name)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[name] = (now, rows[0].limits if rows else {})

    def limits_of(self, name: str) -> Mapping[str, Any]:
        """What its row says, as it was looked at last."""
        known = self._known.get(name)
        return {} if known is None else known[1]
