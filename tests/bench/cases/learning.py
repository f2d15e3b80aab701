"""The engine with a wrong guess: how near its predictions come, and which size of batch it settles on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from itertools import cycle, islice

from catalog.loader import Catalog
from catalog.options import EncodeOptions
from catalog.schema import Spec
from catalog.terms import Lane, Verb
from catalog.weights import locate
from engine.costs import CostBook, Pass, Ran
from engine.device import choose_device
from engine.engine import Engine, EngineLimits
from engine.types import Finished, Item, Work
from tests.bench.case import Found, Pace, Study
from tests.bench.figures import Reading, at_least
from tests.bench.inprocess import Waiter
from tests.bench.jobs import MINILM
from tests.bench.texts import Text, load_tokenizer, texts

COUNT, DEEP, PART = 2048, 512, 64
"""Texts in the set, texts kept waiting, texts of one work."""

FIRST = 6144
"""The size of batch to begin with: six times what is known to be good for a CPU."""

FULL_S, QUICK_S = 420.0, 120.0


class Watched(CostBook):
    """A cost book that keeps what it was told, with what it would have said."""

    def __init__(self, hardware: str, lanes: int) -> None:
        super().__init__(hardware, lanes=lanes, first_tokens=FIRST)
        self.passes: list[tuple[float, int, float]] = []
        """Of each pass the logarithm of actual over predicted time, its tokens and its seconds."""

    def observe(self, ran: Ran, spec: Spec) -> None:
        """Note, then learn."""
        said = self.predict(ran.model, spec, ran.lengths, kind=Pass.RUN, padded=ran.padded, threads=ran.threads)
        self.passes.append((math.log(ran.seconds * 1000 / said), sum(ran.lengths), ran.seconds))
        super().observe(ran, spec)


class Feed(Waiter):
    """Keeps so many works waiting that no batch is small for want of texts."""

    def __init__(self, chosen: Sequence[Text]) -> None:
        super().__init__()
        self._texts = cycle(chosen)
        self._count = 0
        self._lock = threading.Lock()
        self.engine: Engine | None = None
        self.closed = False

    def finished(self, done: Sequence[Finished]) -> None:
        """Put in as many as came out."""
        if not self.closed:
            self.add(len(done))

    def add(self, works: int) -> None:
        """Submit so many works."""
        with self._lock:
            made = [self._work() for _ in range(works)]
        if self.engine is not None:
            self.engine.submit(made)

    def _work(self) -> Work:
        self._count += 1
        items = tuple(
            Item(place, {"text": text.text}, text.tokens, text.tokens * 0.2)
            for place, text in enumerate(islice(self._texts, PART))
        )
        now = time.monotonic()
        return Work(f"w{self._count}", MINILM, Verb.ENCODE, items, EncodeOptions(), Lane.BULK, 5, arrived=now)


def measure(pace: Pace, number: int) -> Found:
    """Let the engine begin with a guess of the cost, and with batches that are too large for a CPU."""
    spec = Catalog.load([]).find(MINILM).spec
    folder = locate(spec)
    assert folder is not None, "this model has weights"
    device = choose_device("cpu")
    book = Watched("cpu", device.cores)
    feed = Feed(texts(COUNT, load_tokenizer(folder), spec.max_length))
    engine = feed.engine = Engine(Catalog.load([]), device, EngineLimits(budget_bytes=2**32), feed, costs=book)
    engine.start()
    try:
        feed.add(DEEP // PART * device.cores)
        end = time.monotonic() + (QUICK_S if pace.quick else FULL_S)
        while time.monotonic() < end and engine.snapshot().running + engine.snapshot().waiting_items:
            threading.Event().wait(0.5)
        feed.closed = True
        size = book.batch_tokens(MINILM, 1, 2**20)
    finally:
        engine.stop()
    third = max(4, len(book.passes) // 3)
    first, last = book.passes[: max(4, third // 4)], book.passes[-third:]
    return Found(
        [
            Reading("passes", len(book.passes), ""),
            Reading("tokens of a batch, first", sum(one[1] for one in first) / len(first), "tokens"),
            Reading("tokens of a batch, last third", sum(one[1] for one in last) / len(last), "tokens"),
            Reading("size settled on", float(size or 0), "tokens"),
            Reading("tokens a second, last third over first", _rate(last) / _rate(first), "times", at_least(1)),
            Reading("error of the prediction, first (mean size of the logarithm)", _error(first), ""),
            Reading("error of the prediction, last third", _error(last), ""),
        ]
    )


def _rate(passes: Sequence[tuple[float, int, float]]) -> float:
    return sum(tokens for _, tokens, _ in passes) / sum(seconds for _, _, seconds in passes)


def _error(passes: Sequence[tuple[float, int, float]]) -> float:
    return sum(abs(off) for off, _, _ in passes) / len(passes)


STUDY = Study(
    name="learning",
    title="MiniLM on a CPU, begun with too large batches and a guess of the cost: what the engine learns",
    measure=measure,
    notes=(
        "in process, as many texts waiting as any size of batch can take; rates are tokens over the seconds of passes",
        f"begins with {FIRST} tokens a batch",
    ),
)
