"""Ending well: those who wait are told where their jobs stand before the server stops waiting for them."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def before_shutdown(tell: Callable[[], None]) -> Iterator[None]:
    """Inside the block, SIGTERM and SIGINT call `tell` on the event loop, besides what they did before.

    The server itself waits at a shutdown until all requests are answered, and only then tells the application; a
    request that waits for a job would use up all that time. Outside the main thread there are no signals to hear.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def hear(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(tell)
        earlier = before[signal.Signals(number)]
        if callable(earlier):
            earlier(number, frame)

    ours = {number for number, earlier in before.items() if callable(earlier)}
    for number in ours:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
