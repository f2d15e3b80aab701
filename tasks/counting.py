"""Counting tokens without holding up the event loop: short texts in place, long ones and first times in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from catalog.schema import Source, Spec
from catalog.tokenizer import Counts, TokenCounter

INLINE_CHARS = 2_000
"""Texts up to this many characters together are counted in less time than a thread takes to be asked."""

_WEIGHTLESS = Source()


class Counting:
    """One for each process and event loop."""

    def __init__(self, counter: TokenCounter | None = None, *, threads: int = 2) -> None:
        self._counter = counter or TokenCounter()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="count")
        self._ready = {_WEIGHTLESS}

    @property
    def counter(self) -> TokenCounter:
        """What counts, for threads of one's own."""
        return self._counter

    async def count(self, spec: Spec, texts: Sequence[str], chars: int) -> Counts:
        """Tokens of each text; `chars` says how long they are together."""
        if spec.source in self._ready and (chars <= INLINE_CHARS or spec.source == _WEIGHTLESS):
            return self._counter.count(spec, texts)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._count, spec, texts)

    def close(self) -> None:
        """End the threads; counts under way are finished first."""
        self._threads.shutdown()

    def _count(self, spec: Spec, texts: Sequence[str]) -> Counts:
        # Until its tokenizer is there a model may have to be looked for again, and that is no work for the event loop.
        if self._counter.prepare(spec):
            self._ready.add(spec.source)
        return self._counter.count(spec, texts)
