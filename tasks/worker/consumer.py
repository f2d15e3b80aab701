"""Celery's consumer, but back soon after the broker is, and with an eye on the engine child meanwhile."""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.worker import consumer
from celery.worker.state import maybe_shutdown

log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _STEP_S, _LONGEST_PAUSE_S = 0.05, 0.15, 0.9
_SAY_EVERY_S = 10.0


class Consumer(consumer.Consumer):  # type: ignore[misc]
    """Stock waits up to 30 s between two tries to connect and does nothing in between."""

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, however long it takes."""
        since = said = 0.0

        def failed(error: BaseException, interval: float) -> None:
            nonlocal since, said
            now = time.monotonic()
            since = since or now
            if now - said > _SAY_EVERY_S:
                said = now
                log.warning("no broker at %s for %.0f s: %s", conn.as_uri(), now - since, error)

        conn.ensure_connection(
            failed,
            interval_start=_FIRST_PAUSE_S,
            interval_step=_STEP_S,
            interval_max=_LONGEST_PAUSE_S,
            callback=self._meanwhile,
        )
        self.first_connection_attempt = False
        if since:
            log.warning("connected to %s again after %.1f s", conn.as_uri(), time.monotonic() - since)
        return conn

    def _meanwhile(self) -> None:
        maybe_shutdown()
        engine = getattr(self.controller, "engine", None)
        if engine is not None:
            engine.idle()
