"""The engine alone, called in process: what the way through the service is compared with. Answers on stdin and stdout.

Each JSON line in asks for a number of calls, one at a time as a single caller would make them; the line out has the
milliseconds of each, from `submit` until the listener has the outcome.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence

import orjson

from catalog.loader import Catalog
from catalog.options import EncodeOptions
from catalog.terms import Lane, Verb
from engine.device import choose_device
from engine.engine import Engine, EngineLimits
from engine.errors import EngineError
from engine.types import Batch, Entry, Finished, Item, Output, Piece, Work
from tests.bench.jobs import FAKE

PATIENCE_S = 30.0


class Waiter:
    """The listener of one caller: wakes it when its work is finished."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._last: Finished | None = None

    def wait(self, patience_s: float = PATIENCE_S) -> Finished:
        """The work that finished. Raises TimeoutError."""
        if not self._done.wait(patience_s) or self._last is None:
            raise TimeoutError("the engine did not finish")
        self._done.clear()
        return self._last

    def finished(self, done: Sequence[Finished]) -> None:
        """Wake the caller."""
        self._last = done[-1]
        self._done.set()

    def batch_started(self, batch: Batch, limit_s: float) -> None:
        """Nothing to do."""

    def batch_ended(self, batch: Batch, ended: Sequence[Entry]) -> None:
        """Nothing to do."""

    def said(self, pieces: Sequence[Piece]) -> None:
        """Nothing to do."""

    def load_started(self, model: str, limit_s: float) -> None:
        """Nothing to do."""

    def load_ended(self, model: str) -> None:
        """Nothing to do."""

    def residents(self, models: Mapping[str, float]) -> None:
        """Nothing."""

    def device_lost(self, error: EngineError) -> None:
        """Cannot happen without a real device."""


def main() -> None:
    """Start the engine, then answer until stdin ends."""
    waiter = Waiter()
    engine = Engine(Catalog.load([]), choose_device("cpu"), EngineLimits(budget_bytes=2**30), waiter)
    engine.start()
    _call(engine, waiter, 0)
    _say({"ready": True})
    count = 1
    for line in sys.stdin:
        latencies = []
        for _ in range(orjson.loads(line)["calls"]):
            latencies.append(_call(engine, waiter, count))
            count += 1
        _say({"latencies_ms": latencies})
    engine.stop()


def _call(engine: Engine, waiter: Waiter, number: int) -> float:
    """Milliseconds of one call with one short text."""
    began = time.perf_counter()
    work = Work(
        id=str(number),
        model=FAKE,
        verb=Verb.ENCODE,
        items=(Item(0, {"text": f"a short text, number {number % 64}-0"}, 8, 0.05),),
        options=EncodeOptions(),
        lane=Lane.INTERACTIVE,
        priority=5,
        arrived=time.monotonic(),
    )
    engine.submit([work])
    done = waiter.wait()
    spent = (time.perf_counter() - began) * 1000
    if not isinstance(done.outcomes[0], Output):
        raise done.outcomes[0]
    return spent


def _say(body: dict[str, object]) -> None:
    sys.stdout.write(orjson.dumps(body).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
