"""What the contract suite needs: every family found by itself, its cases, and batches made of plain texts.

A family `engine/adapters/<family>.py` has its cases in `families/<family>.py`: see Cases.
"""

from __future__ import annotations

import importlib.util
import os
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import engine.adapters
from catalog.options import EncodeOptions
from catalog.schema import EncodeFacts, Spec
from catalog.terms import Lane, Verb
from engine.adapters.base import Adapter
from engine.families import adapter_class
from engine.types import Batch, Entry, Item, Outcome, Output, Work

FAMILIES = sorted(m.name for m in pkgutil.iter_modules(engine.adapters.__path__) if m.name != "base")
FOLDER = Path(__file__).parent / "families"
DEVICE = os.environ.get("TEST_DEVICE", "cpu")

Run = Callable[..., list[Outcome]]


class Cases(Protocol):
    """What a family's file of cases defines."""

    LOAD: dict[str, Any]
    """Load-time options."""

    BAD_LOAD: dict[str, Any]
    """Load-time options that must be refused."""

    UNREADABLE: list[object]
    """Texts that are none, so that their items are rejected; None stands for an item without a text."""

    def model(self) -> tuple[Spec, Path | None]:
        """A small model of the family that can be had offline, and where its files are."""

    def texts(self) -> list[str]:
        """Some ten texts of mixed lengths."""

    def reference(self, folder: Path | None, texts: list[str], device: str) -> NDArray[np.float32] | None:
        """The vectors of the library's own call on the same weights; None where the family has no library."""


def cases_of(family: str) -> Cases:
    """The cases of a family. Fails for one that has none: a family without a contract test is not finished."""
    file = FOLDER / f"{family}.py"
    if not file.is_file():
        pytest.fail(
            f"engine/adapters/{family}.py has no cases: write tests/adapters/families/{family}.py", pytrace=False
        )
    module_spec = importlib.util.spec_from_file_location(f"family_cases_{family}", file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return cast("Cases", module)


def build(cases: Cases) -> Adapter:
    """An adapter of the family's model, not loaded."""
    spec, folder = cases.model()
    family = adapter_class(spec.family)
    return family(spec, family.options.model_validate(cases.LOAD), folder, DEVICE)


def batch_of(texts: Sequence[object], options: EncodeOptions | Sequence[EncodeOptions]) -> Batch:
    """One batch with a work for each text, under one set of options or each under its own."""
    each = [options] * len(texts) if isinstance(options, EncodeOptions) else options
    entries = []
    for index, (text, own) in enumerate(zip(texts, each, strict=True)):
        payload = {} if text is None else {"text": text}
        length = len(text) // 4 + 2 if isinstance(text, str) else 1
        item = Item(index=0, payload=payload, length=length, cost_ms=1.0)
        work = Work(
            id=str(index),
            model="m",
            verb=Verb.ENCODE,
            items=(item,),
            options=own,
            lane=Lane.INTERACTIVE,
            priority=5,
            arrived=0.0,
        )
        entries.append(Entry(work, item))
    return Batch(id=1, model="m", verb=Verb.ENCODE, entries=tuple(entries))


@pytest.fixture(scope="session")
def device() -> str:
    return DEVICE


@pytest.fixture(scope="module", params=FAMILIES)
def cases(request: pytest.FixtureRequest) -> Cases:
    return cases_of(request.param)


@pytest.fixture(scope="module")
def adapter(cases: Cases) -> Iterator[Adapter]:
    built = build(cases)
    built.load()
    yield built
    built.unload()


@pytest.fixture(scope="session")
def new_adapter() -> Callable[[Cases], Adapter]:
    return build


@pytest.fixture(scope="session")
def run() -> Run:
    def run_texts(
        adapter: Adapter,
        texts: Sequence[object],
        options: EncodeOptions | Sequence[EncodeOptions] | None = None,
    ) -> list[Outcome]:
        return list(adapter.run(batch_of(texts, options or EncodeOptions())))

    return run_texts


@pytest.fixture(scope="module")
def facts(cases: Cases) -> EncodeFacts:
    """What the family's model says of its vectors; a family that gives none is passed over."""
    found = cases.model()[0].tasks.encode
    if found is None:
        pytest.skip("this family gives no vectors")
    return found


@pytest.fixture(scope="session")
def read_vector() -> Callable[[Outcome], NDArray[np.float32]]:
    def values(outcome: Outcome) -> NDArray[np.float32]:
        assert isinstance(outcome, Output), outcome
        dense = outcome.fields["dense"]
        assert dense["dtype"] == "float32"
        return np.frombuffer(dense["values"], dtype="<f4")

    return values


@pytest.fixture(scope="module")
def vector(
    facts: EncodeFacts, read_vector: Callable[[Outcome], NDArray[np.float32]]
) -> Callable[[Outcome], NDArray[np.float32]]:
    return read_vector
