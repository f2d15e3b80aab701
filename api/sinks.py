"""A blob of lines that is made when there is a first one. Its calls block: make them from a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager
from typing import IO

from tasks.blobs import Blobs, new_key


class Sink:
    """Takes bytes until it is finished; then `key` is where they are, or None if there were none."""

    def __init__(self, blobs: Blobs, folder: str) -> None:
        self._blobs = blobs
        self._folder = folder
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None
        self.key: str | None = None
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add these bytes."""
        if self._file is None:
            key = new_key(self._folder)
            self._file = self._stack.enter_context(self._blobs.writing(key))
            self.key = key
        self._file.write(data)
        self.size += len(data)

    def copy(self, keys: Iterable[str]) -> None:
        """Add the content of other blobs, one after the other."""
        for key in keys:
            for chunk in self._blobs.chunks(key):
                self.write(chunk)

    def finish(self) -> None:
        """Make the blob whole."""
        self._stack.close()

    def discard(self, error: BaseException) -> None:
        """Leave nothing of it."""
        self._stack.__exit__(type(error), error, None)


@asynccontextmanager
async def sinks(blobs: Blobs, *folders: str) -> AsyncIterator[tuple[Sink, ...]]:
    """A sink in each folder; all are finished with the block, or discarded when it ends with an error."""
    made = tuple(Sink(blobs, folder) for folder in folders)
    try:
        yield made
        for sink in made:
            await asyncio.to_thread(sink.finish)
    except BaseException as error:
        for sink in made:
            sink.discard(error)
        raise
