"""Results that are too large for a row: written to the blob store by a few threads before their jobs are committed.

A store that is away for long keeps no result from its caller: it goes into its row, large as it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tasks.contents import Contents
from tasks.errors import StoreUnavailable
from tasks.messages import Completion

log = logging.getLogger(__name__)

THREADS = 4
"""Blobs written at once."""

PATIENCE_S = 5.0
"""How long a store that is away is waited for. Less than the lease of a running job."""

PAUSE_S = 0.5


class Shelf:
    """Safe to share between threads."""

    def __init__(self, contents: Contents, *, patience_s: float = PATIENCE_S) -> None:
        self._contents = contents
        self._patience_s = patience_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="shelf")

    def takes(self, completion: Completion) -> bool:
        """Whether this one's result is too large for a row."""
        return completion.result is not None and len(completion.result) > self._contents.most

    def put(self, completion: Completion, ready: Callable[[Completion], None]) -> None:
        """Write the result, and give what is to be committed to `ready`, in another thread. Returns at once."""
        self._threads.submit(self._put, completion, ready)

    def discard(self, keys: Sequence[str]) -> None:
        """These were written for nothing. What cannot be removed now is swept as belonging to nothing."""
        if keys:
            self._threads.submit(self._contents.delete, keys)

    def close(self) -> None:
        """Wait for what is under way."""
        self._threads.shutdown()

    def _put(self, completion: Completion, ready: Callable[[Completion], None]) -> None:
        try:
            completion = self._written(completion)
        except Exception:
            log.exception("the result of job %s could not be put away; it goes into its row", completion.submission.id)
        ready(completion)

    def _written(self, completion: Completion) -> Completion:
        until = time.monotonic() + self._patience_s
        while True:
            try:
                key = self._contents.put(completion.submission.id, completion.result or b"")
            except StoreUnavailable:
                if time.monotonic() >= until:
                    log.warning("the result of job %s goes into its row", completion.submission.id)
                    return completion
                time.sleep(PAUSE_S)
            else:
                return replace(completion, result=None, result_blob=key)
