"""One pool of each profile that needs nothing from the hub, for all tests of documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from catalog.loader import Catalog
from catalog.options import parse_options
from catalog.terms import Verb
from engine.adapters.docling import DoclingAdapter, DoclingOptions
from engine.types import Outcome, Output
from tests.adapters.conftest import batch

SPEC = Catalog.load([], strict=True).find("docling").spec
Read = Callable[..., Outcome]


def new_adapter(**load: Any) -> DoclingAdapter:
    """An adapter, not loaded."""
    return DoclingAdapter(SPEC, DoclingOptions(**{"threads": 1, **load}), None, "cpu")


def reader(adapter: DoclingAdapter) -> Read:
    """Reads one document with options and gives its outcome."""

    def read(data: bytes, name: str | None = None, format: str | None = None, **options: Any) -> Outcome:  # noqa: A002
        document = {"data": data, "name": name, "format": format}
        parsed = parse_options(SPEC, Verb.EXTRACT, SPEC.run, options)
        return adapter.run(batch(Verb.EXTRACT, [{"document": document}], [parsed]))[0]

    return read


def data_of(outcome: Outcome) -> Any:
    """The data of a document that was read, which every answer and the database can hold."""
    assert isinstance(outcome, Output), repr(outcome)
    data = outcome.fields["data"]
    assert orjson.loads(orjson.dumps(data)) == data
    return data


def codes(data: Any) -> list[str]:
    """The codes of its warnings."""
    return [one["code"] for one in data["warnings"]]


@pytest.fixture(scope="session")
def native() -> Iterator[DoclingAdapter]:
    adapter = new_adapter(layout="none")
    adapter.load()
    yield adapter
    adapter.unload()


@pytest.fixture(scope="session")
def light() -> Iterator[DoclingAdapter]:
    adapter = new_adapter(layout="rapid")
    adapter.load()
    yield adapter
    adapter.unload()


@pytest.fixture(scope="session")
def read(native: DoclingAdapter) -> Read:
    """By the profile without a layout model."""
    return reader(native)


@pytest.fixture
def quick(read: Read) -> Read:
    """As `read`, and it takes no more than a second or so of what a whole machine can do."""

    def timed(*args: Any, **more: Any) -> Outcome:
        began = time.monotonic()
        outcome = read(*args, **more)
        assert time.monotonic() - began < 5.0
        return outcome

    return timed
