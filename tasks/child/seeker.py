"""Jobs of models that no YAML names and that this process has not met yet: found before the jobs go on.

Finding one reads small files, perhaps from the hub, and neither the parent's frames nor other jobs wait for that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from catalog.errors import CatalogError
from catalog.live import LiveCatalog
from tasks.child.claimer import Arrival

log = logging.getLogger(__name__)


class Seeker:
    """A thread that looks for the models of what `put` gives it, and passes the jobs on whatever came of that."""

    def __init__(self, catalog: LiveCatalog, deliver: Callable[[Sequence[Arrival]], None]) -> None:
        self._catalog = catalog
        self._deliver = deliver
        self._waiting: list[Arrival] = []
        self._condition = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="seeker", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, arrivals: Sequence[Arrival]) -> None:
        """Hand over jobs. Returns at once."""
        with self._condition:
            self._waiting.extend(arrivals)
            self._condition.notify()

    def take_back(self, keys: Sequence[str] | None = None) -> list[str]:
        """Forget those of `keys` (or all) that still wait here, and name them."""
        with self._condition:
            gone = {a.key for a in self._waiting if keys is None or a.key in keys}
            self._waiting = [a for a in self._waiting if a.key not in gone]
            return sorted(gone)

    def close(self) -> None:
        """End the thread; what waits is delivered again by the broker."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                model = self._waiting[0].job.model
            try:
                self._catalog.ask(model)
            except CatalogError as error:
                # It is remembered, and is what the jobs will end with.
                log.info("%s", error.message)
            except Exception:
                log.exception("looking for %s failed", model)
            with self._condition:
                found = [a for a in self._waiting if a.job.model == model]
                self._waiting = [a for a in self._waiting if a.job.model != model]
            if found:
                self._deliver(found)
