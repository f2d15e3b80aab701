"""A page that never ends, in an engine with other work behind it: its job ends in time, and the others are read."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import pytest

from catalog.loader import Catalog
from catalog.options import ExtractOptions
from catalog.terms import Lane, Verb
from engine.adapters.docling import DoclingAdapter
from engine.device import choose_device
from engine.engine import Engine, EngineLimits
from engine.errors import DeadlinePassed
from engine.types import Item, Output, Work
from tests.adapters.docling import files
from tests.adapters.docling.conftest import codes, new_adapter, reader
from tests.unit.engine.recorder import Recorder

MODEL = "docling:native"
BOOK = files.pdf([[f"page {number}"] for number in (1, 2, 3)])
DEADLINE_S = 4.0


@pytest.fixture(scope="module", autouse=True)
def converter() -> Iterator[None]:
    before, DoclingAdapter.converter = DoclingAdapter.converter, "tests.adapters.docling.endless:Endless"
    yield
    DoclingAdapter.converter = before


def work(name: str, deadline_s: float | None = None) -> Work:
    item = Item(0, {"document": {"data": BOOK, "name": name}}, 3, 100.0)
    now = time.monotonic()
    deadline = None if deadline_s is None else now + deadline_s
    return Work(name, MODEL, Verb.EXTRACT, (item,), ExtractOptions(), Lane.BULK, 5, arrived=now, deadline=deadline)


def test_a_job_ends_at_its_deadline_and_ten_behind_it_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # A process takes seconds until it is ready, and here two are waited for.
    monkeypatch.setattr(Recorder, "patience_s", 120.0)
    recorder = Recorder()
    engine = Engine(Catalog.load([]), choose_device("cpu"), EngineLimits(budget_bytes=4 * 2**30), recorder)
    engine.start()
    try:
        first = work("first.pdf")
        engine.submit([first])
        recorder.results(first)
        endless = [work("sleeping.pdf", DEADLINE_S)]
        began = time.monotonic()
        engine.submit(endless)
        others = [work(f"{number}.pdf") for number in range(10)]
        engine.submit(others)
        (stuck,) = recorder.results(*endless)
        assert isinstance(stuck.outcomes[0], DeadlinePassed)
        assert DEADLINE_S - 0.5 < time.monotonic() - began < DEADLINE_S + 3
        for found in recorder.results(*others):
            assert isinstance(found.outcomes[0], Output), found.outcomes[0]
    finally:
        engine.stop()


def test_a_page_that_spins_is_killed_at_the_limit_of_a_document_and_a_late_one_gives_the_pages_it_has() -> None:
    adapter = new_adapter(layout="none", limit_s=1.5)
    adapter.load()
    try:
        read, pids = reader(adapter), adapter.pids
        spun = read(BOOK, "spinning.pdf")
        assert getattr(spun, "code", None) == "timed_out"
        assert not psutil.pid_exists(pids[0])
        late = read(BOOK, "late.pdf")
        assert isinstance(late, Output), late
        data = late.fields["data"]
        assert data["partial"] is True
        assert "partial" in codes(data)
        assert "page 1" in data["text"]
        assert "page 3" not in data["text"]
        whole = read(BOOK, "whole.pdf")
        assert isinstance(whole, Output)
        assert whole.fields["data"]["partial"] is False
        assert whole.usage == {"pages": 3}
    finally:
        adapter.unload()
    assert not any(map(psutil.pid_exists, pids))
