"""How much of all batches is under way at once."""

from __future__ import annotations


class Window:
    """How many lines this process has in flight, over all its batches."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    def take(self, lines: int, *, anyhow: bool) -> bool:
        """Make room for so many lines; False when there is none. `anyhow` takes it all the same."""
        if not anyhow and self._taken + lines > self._most:
            return False
        self._taken += lines
        return True

    def give(self, lines: int) -> None:
        """These have ended."""
        self._taken -= lines
