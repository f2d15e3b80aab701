"""Documents by Docling: PDF, DOCX, PPTX, XLSX, HTML, Markdown, CSV and images to markdown, text, tables and JSON.

The work is done in processes of its own (`engine/documents/`) on the host's cores: one that does not end is killed, and
what it holds is bounded. Nothing heavy is imported here.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from catalog.schema import Spec
from catalog.terms import Verb
from engine.adapters.base import Adapter, LoadOptions, Place
from engine.documents.errors import Empty, TimedOut, TooLarge
from engine.documents.pool import Pool
from engine.documents.process import Order
from engine.errors import DeadlinePassed, EngineError, ItemRejected
from engine.machine import cores
from engine.types import Batch, Entry, Footprint, Outcome, Output

_MIB = 2**20
_RESIDENT = {"none": 440 * _MIB, "rapid": 500 * _MIB, "heron": 1000 * _MIB}
"""What a process holds once it is loaded, by its layout. Measured for the first two; docs/documents.md has how."""

_WORKING = 800 * _MIB
"""What a process takes more at the most while it reads a page, OCR included; as measured."""

_TABLES = {"none": "none", "rapid": "slanet", "heron": "tableformer"}


class DoclingOptions(LoadOptions):
    """Which models look at a page, and what a document may take.

    `layout`: `heron` and TableFormer are Docling's own, from the hub or a folder of `artifacts`; `rapid` and
    SLANet-plus are small and come in packages; `none` takes lines as the file has them. `limit_s` is for one document,
    `load_s` for a process until it is ready. `memory` bounds the private bytes of a process. `threads` 0 takes half of
    the cores.
    """

    layout: Literal["heron", "rapid", "none"] = "heron"
    tables: Literal["tableformer", "slanet", "none"] | None = None
    artifacts: str | None = None
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    threads: Annotated[int, Field(ge=0, le=256)] = 0
    limit_s: Annotated[float, Field(gt=0, le=3600)] = 90.0
    load_s: Annotated[float, Field(gt=0, le=3600)] = 300.0
    most_bytes: Annotated[int, Field(ge=1, le=200 * _MIB)] = 16 * _MIB
    memory: Annotated[int, Field(ge=512 * _MIB)] = 4096 * _MIB

    @model_validator(mode="after")
    def _tables_need_a_layout(self) -> DoclingOptions:
        if self.layout == "none" and self.tables not in (None, "none"):
            raise ValueError("layout 'none' finds no tables, so 'tables' can be nothing else")
        return self


class DoclingAdapter(Adapter):
    """A pool of processes that convert. An item is a document, or one image."""

    options = DoclingOptions
    place = Place.HOST
    reentrant = True
    unpadded = True

    converter: ClassVar[str] = "engine.documents.converter:Converter"

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        self._options = DoclingOptions.model_validate(options.model_dump())
        self.most_items = self._options.processes
        self._pool: Pool | None = None

    @classmethod
    def group(cls, verb: Verb, options: Any) -> Hashable:
        """All may be together: every document is read by itself."""
        return None

    def footprint(self) -> Footprint:
        """Host memory of all processes; what one takes more at work, spread over the pages that it reads at most."""
        options = self._options
        each = min(_RESIDENT[options.layout], options.memory)
        return Footprint(options.processes * each, options.processes * _WORKING // self.spec.max_length)

    @property
    def resident(self) -> int:
        """Bytes that the processes had in memory when they last answered."""
        return 0 if self._pool is None else self._pool.resident

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that there are."""
        return [] if self._pool is None else self._pool.pids

    def load(self) -> None:
        """Start the processes, each with its models. Raises LoadFailed."""
        options = self._options
        threads = options.threads or max(1, cores() // 2)
        settings = {
            "layout": options.layout,
            "tables": options.tables or _TABLES[options.layout],
            "artifacts": options.artifacts,
            "threads": threads,
            "most_pages": self.spec.max_length,
        }
        order = Order(self.spec.id, self.converter, settings, memory=options.memory, threads=threads)
        pool = Pool(order, processes=options.processes, load_s=options.load_s, fat=options.memory // 2)
        self._pool = pool
        try:
            pool.start()
        except BaseException:
            self._pool = None
            raise

    def unload(self) -> None:
        """End the processes; their memory is the system's again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def interrupt(self) -> None:
        """Kill the processes: a load or run in progress ends with an error."""
        if self._pool is not None:
            self._pool.close()

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Each document by itself, on as many processes as there are."""
        pool = self._pool
        if pool is None:
            raise RuntimeError("run before load")
        entries = batch.entries
        if len(entries) == 1 or self._options.processes == 1:
            return [self._read(pool, entry) for entry in entries]
        with ThreadPoolExecutor(min(len(entries), self._options.processes)) as threads:
            return list(threads.map(lambda entry: self._read(pool, entry), entries))

    def _read(self, pool: Pool, entry: Entry) -> Outcome:
        document = _document(entry.item.payload)
        if isinstance(document, EngineError):
            return document
        size = len(document["data"])
        if size > self._options.most_bytes:
            most = self._options.most_bytes
            return TooLarge(f"The document has {size:,} bytes, the most is {most:,}; send it in parts.")
        deadline = entry.work.deadline
        if deadline is not None and time.monotonic() >= deadline:
            return DeadlinePassed()
        request = {**document, "options": _options(entry.work.options)}
        found = pool.convert(request, self._options.limit_s, deadline)
        if isinstance(found, TimedOut):
            if deadline is not None and time.monotonic() >= deadline:
                return DeadlinePassed()
            return TimedOut(
                f"The document was not read in {self._options.limit_s:g} s; choose fewer pages by options.pages, or "
                "switch OCR off."
            )
        if isinstance(found, EngineError):
            return found
        pages = max(1, found["pages"] or 0)
        return Output({"data": found}, tokens=pages, usage={"pages": pages})


def _document(payload: Mapping[str, Any]) -> dict[str, Any] | EngineError:
    """The bytes of an item, with what they are said to be; or why it has none."""
    images: Sequence[Any] = payload.get("images") or []
    document = payload.get("document") or (images[0] if len(images) == 1 else None)
    if not isinstance(document, Mapping):
        return ItemRejected("The item has no document; send one, or one image.")
    if document is not payload.get("document") and "text" in payload:
        return ItemRejected("The item has a text beside its image; send the image alone.")
    data = document.get("data")
    if not isinstance(data, bytes):
        return ItemRejected("The document has no bytes.")
    if not data:
        return Empty("The file has no bytes.")
    return {"data": data, "format": document.get("format"), "name": document.get("name")}


def _options(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name, None) for name in ("ocr", "tables", "pages", "password")}
