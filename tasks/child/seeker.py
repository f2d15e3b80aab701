"""Jobs of models that no YAML names and that this process has not met yet: found before the jobs go on.

Finding one reads small files, perhaps from the hub, and neither the parent's frames nor other jobs wait for that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from catalog.errors import CatalogError
from catalog.live import LiveCatalog
from tasks.child.inbox import Arrival, Inbox

log = logging.getLogger(__name__)


class Seeker(Inbox):
    """A thread that looks for the models of what `put` gives it, and passes the jobs on whatever came of that."""

    def __init__(self, catalog: LiveCatalog, deliver: Callable[[Sequence[Arrival]], None]) -> None:
        super().__init__("seeker")
        self._catalog = catalog
        self._deliver = deliver

    def run(self) -> None:
        """Look for one model after another, each with all of its jobs."""
        while True:
            with self.condition:
                self.condition.wait_for(lambda: self.waiting or self.closed)
                if self.closed:
                    return
                model = self.waiting[0].job.model
            try:
                self._catalog.ask(model)
            except CatalogError as error:
                # It is remembered, and is what the jobs will end with.
                log.info("%s", error.message)
            except Exception:
                log.exception("looking for %s failed", model)
            with self.condition:
                found = [a for a in self.waiting if a.job.model == model]
                self.waiting = [a for a in self.waiting if a.job.model != model]
            if found:
                self._deliver(found)
