"""Finding a model that no YAML names, without holding up the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from catalog.errors import CatalogError
from catalog.live import LiveCatalog


class Asking:
    """One for each process and event loop. A name that has been looked for lately costs a look-up."""

    def __init__(self, catalog: LiveCatalog, *, threads: int = 4) -> None:
        self._catalog = catalog
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ask")

    async def meet(self, name: str) -> None:
        """Look for a model that is not known yet. What came of it is what the catalog's `find` gives or raises."""
        if self._catalog.must_ask(name):
            with suppress(CatalogError):
                await asyncio.get_running_loop().run_in_executor(self._threads, self._catalog.ask, name)

    def close(self) -> None:
        """Wait for nobody: what is under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
