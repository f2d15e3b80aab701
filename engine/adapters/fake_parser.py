"""No parser at all: the pages of a text and their words. For tests of what runs on the host beside the device.

It is as heavy, slow and faulty as its load options declare. Pages end with a form feed. The same text gives the same
pages everywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from catalog.schema import Spec
from engine.adapters.base import Adapter, LoadOptions, Place
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, TextTooLong
from engine.faults import WITHOUT_VECTORS, FaultRule, Faults, only, short_by_one
from engine.types import Batch, Entry, Footprint, Outcome, Output


class FakeParserOptions(LoadOptions):
    """What the parser pretends to be: `page_seconds` is what each page takes, `page_bytes` the memory it takes."""

    bytes: Annotated[int, Field(ge=0)] = 0
    page_bytes: Annotated[int, Field(ge=0)] = 0
    load_seconds: Annotated[float, Field(ge=0)] = 0.0
    page_seconds: Annotated[float, Field(ge=0)] = 0.0
    faults: Annotated[tuple[FaultRule, ...], AfterValidator(only(WITHOUT_VECTORS))] = ()


class FakeParserAdapter(Adapter):
    """The weightless parser. Waits end early on `interrupt`."""

    options = FakeParserOptions
    place = Place.HOST
    reentrant = True
    unpadded = True

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        self._options = FakeParserOptions.model_validate(options.model_dump())
        self._lock = threading.Lock()
        self._interrupted = threading.Event()
        self._faults = Faults(self._options.faults, self._interrupted)
        self._runs = 0
        self._loaded = False

    def footprint(self) -> Footprint:
        """As declared."""
        return Footprint(self._options.bytes, self._options.page_bytes)

    def held(self) -> int | None:
        """As declared."""
        return self._options.bytes if self._loaded else 0

    def load(self) -> None:
        """Take as long as declared."""
        if self._options.load_seconds and self._interrupted.wait(self._options.load_seconds):
            raise LoadFailed(f"The load of {self.spec.id} was interrupted.", LoadReason.UNKNOWN)
        self._loaded = True

    def unload(self) -> None:
        """Nothing is held."""
        self._loaded = False

    def interrupt(self) -> None:
        """End every wait, now and from now on."""
        self._interrupted.set()

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """The pages of each document, after the declared time and faults."""
        texts = [text if isinstance(text := entry.item.payload.get("text"), str) else "" for entry in batch.entries]
        with self._lock:
            self._runs += 1
            rules = self._faults.due(self._runs, texts)
        outcomes = [self._parse(entry) for entry in batch.entries]
        pages = sum(outcome.tokens for outcome in outcomes if isinstance(outcome, Output))
        if self._options.page_seconds and self._interrupted.wait(pages * self._options.page_seconds):
            raise RuntimeError("interrupted")
        self._faults.meet(rules, texts)
        if short_by_one(rules):
            outcomes.pop()
        return outcomes

    def _parse(self, entry: Entry) -> Output | EngineError:
        text = entry.item.payload.get("text")
        if not isinstance(text, str):
            return ItemRejected("The item has no text.")
        pages = text.split("\f")
        if len(pages) > self.spec.max_length:
            most = self.spec.max_length
            return TextTooLong(f"The document has {len(pages)} pages, the model reads {most}; send fewer.")
        found = {"text": text, "pages": [{"words": page.split()} for page in pages]}
        return Output({"data": found}, tokens=len(pages), usage={"pages": len(pages)})
