"""The keys that links are signed with: read from the database once for each process."""

from __future__ import annotations

from tasks.db import AsyncDatabase
from tasks.store.secrets import secret


class Signing:
    """Gives keys by their names. All processes of the service give the same ones."""

    def __init__(self, database: AsyncDatabase) -> None:
        self._database = database
        self._keys: dict[str, bytes] = {}

    async def key(self, name: str) -> bytes:
        """The key of this name. Raises StoreUnavailable or Overloaded when it was never read."""
        if (known := self._keys.get(name)) is not None:
            return known
        return self._keys.setdefault(name, await self._database.run(secret, name))
