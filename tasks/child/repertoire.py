"""Which models this worker can have, told to its parent: the jobs of others are left to those that can, if any."""

from __future__ import annotations

import time
from collections.abc import Callable

from catalog.live import LiveCatalog
from engine.snapshot import EngineSnapshot, Phase


class Repertoire:
    """Says which models the catalog knows, at the start and when that changes, and which of them cannot be had now."""

    def __init__(
        self, catalog: LiveCatalog, send: Callable[..., None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._catalog = catalog
        self._send = send
        self._clock = clock
        self._unable: frozenset[str] = frozenset()
        self.tell()

    def tell(self) -> None:
        """Say what the catalog has now."""
        self._send("knows", list(self._catalog.keys), self._catalog.finds_more)
        if self._unable:
            self._send("unable", sorted(self._unable))

    def look(self, snapshot: EngineSnapshot) -> None:
        """Tell what changed: models too large for the device, or that failed to load and are not yet tried again."""
        cooling = (
            model.model
            for model in snapshot.models
            if model.phase is Phase.FAILED and (model.retry_at is None or model.retry_at > self._clock())
        )
        unable = frozenset((*snapshot.too_large, *cooling))
        if unable != self._unable:
            self._send("unable", sorted(unable))
            self._unable = unable
