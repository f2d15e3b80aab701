"""Documents beside interactive work: pages a minute by each way of reading them, and what a short call then takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from catalog.loader import Catalog
from catalog.options import EncodeOptions, ExtractOptions
from catalog.terms import Lane, Verb
from engine.device import choose_device
from engine.engine import Engine, EngineLimits
from engine.errors import EngineError
from engine.types import Batch, Entry, Finished, Item, Output, Piece, Work
from tests.adapters.docling import files
from tests.bench.case import Found, Pace, Study, Unreliable
from tests.bench.figures import Reading, at_most, latency
from tests.bench.jobs import FAKE

PATIENCE_S = 300.0
LINES = tuple(f"{row:02d} the quick brown fox jumps over the lazy dog, and again" for row in range(17))
TEXT_PAGES = 10
"""Of one document of text."""


@dataclass(frozen=True, slots=True)
class Way:
    """A profile, and a document with its pages."""

    name: str
    model: str
    document: bytes
    pages: int


@dataclass(slots=True)
class Desk:
    """The listener of several callers: each waits for its own work."""

    waits: dict[str, threading.Event] = field(default_factory=dict)
    done: dict[str, Finished] = field(default_factory=dict)

    def expect(self, work: Work) -> None:
        """Note a work before it is submitted."""
        self.waits[work.id] = threading.Event()

    def wait(self, work: Work) -> None:
        """Until it is finished well. Raises Unreliable."""
        if not self.waits[work.id].wait(PATIENCE_S):
            raise Unreliable(f"{work.model} did not finish")
        outcome = self.done.pop(work.id).outcomes[0]
        if not isinstance(outcome, Output):
            raise Unreliable(f"{work.model} failed: {outcome}")

    def finished(self, done: Sequence[Finished]) -> None:
        """Wake the callers."""
        for one in done:
            self.done[one.work.id] = one
            self.waits[one.work.id].set()

    def said(self, pieces: Sequence[Piece]) -> None:
        """Nothing."""

    def batch_started(self, batch: Batch, limit_s: float) -> None:
        """Nothing."""

    def batch_ended(self, batch: Batch, ended: Sequence[Entry]) -> None:
        """Nothing."""

    def load_started(self, model: str, limit_s: float) -> None:
        """Nothing."""

    def load_ended(self, model: str) -> None:
        """Nothing."""

    def residents(self, models: Mapping[str, float]) -> None:
        """Nothing."""

    def device_lost(self, error: EngineError) -> None:
        """Cannot happen without a real device."""


@dataclass(slots=True)
class Bench:
    """One engine, and calls to it."""

    engine: Engine
    desk: Desk
    count: int = 0

    def document(self, way: Way) -> Work:
        """A document that is submitted, in the bulk lane."""
        item = Item(0, {"document": {"data": way.document, "name": "bench.pdf"}}, way.pages, 500.0 * way.pages)
        return self._submit(way.model, Verb.EXTRACT, item, ExtractOptions(), Lane.BULK)

    def text(self) -> Work:
        """A short text for the weightless model, in the interactive lane."""
        item = Item(0, {"text": f"a short text, number {self.count}"}, 8, 0.05)
        return self._submit(FAKE, Verb.ENCODE, item, EncodeOptions(), Lane.INTERACTIVE)

    def calls_ms(self, seconds: float, until: threading.Event | None = None) -> list[float]:
        """Milliseconds of calls one after the other, some fifty a second, for so long or until something happens."""
        found, end, pause = [], time.monotonic() + seconds, threading.Event()
        while time.monotonic() < end and not (until is not None and until.is_set()):
            began = time.perf_counter()
            self.desk.wait(self.text())
            found.append((time.perf_counter() - began) * 1000)
            pause.wait(0.02)
        return found

    def _submit(self, model: str, verb: Verb, item: Item, options: EncodeOptions | ExtractOptions, lane: Lane) -> Work:
        self.count += 1
        work = Work(f"w{self.count}", model, verb, (item,), options, lane, 5, arrived=time.monotonic())
        self.desk.expect(work)
        self.engine.submit([work])
        return work


def measure(pace: Pace, number: int) -> Found:
    """Each way alone, then with interactive calls beside it."""
    found, desk = Found(), Desk()
    engine = Engine(Catalog.load([]), choose_device("cpu"), EngineLimits(budget_bytes=6 * 2**30), desk)
    engine.start()
    bench = Bench(engine, desk)
    try:
        desk.wait(bench.text())
        quiet = bench.calls_ms(pace.seconds)
        found.add(*latency("a call, no document", quiet))
        for way in _ways():
            desk.wait(bench.document(way))
            times = 1 if pace.quick else 3
            alone = _read(bench, way, times)
            found.add(Reading(f"{way.name}: pages", 60 * times * way.pages / alone, "/min"))
            beside, calls = _beside(bench, way, times)
            found.add(Reading(f"{way.name}: pages, with calls beside", 60 * times * way.pages / beside, "/min"))
            found.add(*latency(f"a call beside {way.name}", calls, p99=at_most(25)))
    finally:
        engine.stop()
    return found


def _beside(bench: Bench, way: Way, times: int) -> tuple[float, list[float]]:
    """Seconds for so many documents, and milliseconds of the calls meanwhile. Raises Unreliable."""
    ended, spent = threading.Event(), list[float]()

    def read() -> None:
        try:
            spent.append(_read(bench, way, times))
        finally:
            ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    calls = bench.calls_ms(PATIENCE_S, ended)
    reader.join()
    if not spent:
        raise Unreliable(f"{way.name} failed beside interactive calls")
    return spent[0], calls


def _read(bench: Bench, way: Way, times: int) -> float:
    """Seconds for so many documents, all submitted at once."""
    began = time.monotonic()
    works = [bench.document(way) for _ in range(times)]
    for work in works:
        bench.desk.wait(work)
    return time.monotonic() - began


def _ways() -> list[Way]:
    book = files.pdf([LINES] * TEXT_PAGES)
    scan = files.scan(files.picture(LINES, (1240, 1400)))
    return [
        Way("native", "docling:native", book, TEXT_PAGES),
        Way("light", "docling:light", book, TEXT_PAGES),
        Way("light, OCR", "docling:light", scan, 1),
    ]


STUDY = Study(
    name="documents",
    title="documents by Docling in a process of their own, and interactive calls in the same engine",
    measure=measure,
    notes=(
        "a page has seventeen lines of text; the scan is the same as a picture of 1240 by 1400 pixels",
        "a call is one short text on the weightless model, from submit until the listener has the vector",
    ),
)
