"""What the contract suite needs: every family found by itself, its cases, and batches made of payloads.

A family `engine/adapters/<family>.py` has its cases in `families/<family>.py`: see `case.py`.
"""

from __future__ import annotations

import importlib.util
import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import engine.adapters
from catalog.options import EncodeOptions, parse_options
from catalog.terms import Lane, Verb
from engine.adapters.base import Adapter
from engine.families import adapter_class
from engine.types import Batch, Entry, Item, Outcome, Output, Work
from tests.adapters.case import Case

FAMILIES = sorted(m.name for m in pkgutil.iter_modules(engine.adapters.__path__) if m.name != "base")
FOLDER = Path(__file__).parent / "families"
DEVICE = os.environ.get("TEST_DEVICE", "cpu")

Run = Callable[..., list[Outcome]]


@cache
def cases_of(family: str) -> tuple[Case, ...]:
    """The cases of a family; none for one that has no file, which a test of its own finds out."""
    file = FOLDER / f"{family}.py"
    if not file.is_file():
        return ()
    module_spec = importlib.util.spec_from_file_location(f"family_cases_{family}", file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return tuple(module.CASES)


NAMED = [(f"{family}-{case.name}", case) for family in FAMILIES for case in cases_of(family)]
CASES = [pytest.param(case, id=name) for name, case in NAMED]


def build(case: Case) -> Adapter:
    """An adapter of the case's model, not loaded. Skips the test where this machine lacks what the case needs."""
    lacking = None if case.needs is None else case.needs()
    if lacking is not None:
        pytest.skip(lacking)
    spec, folder = case.model()
    family = adapter_class(spec.family)
    return family(spec, family.options.model_validate({**spec.load, **case.load}), folder, DEVICE)


def batch(verb: Verb, payloads: Sequence[Mapping[str, Any]], options: Sequence[Any]) -> Batch:
    """One batch with a work of its own for each payload."""
    entries = []
    for index, (payload, own) in enumerate(zip(payloads, options, strict=True)):
        text = payload.get("text")
        item = Item(index=0, payload=payload, length=len(text) // 4 + 2 if isinstance(text, str) else 1, cost_ms=1.0)
        work = Work(
            id=str(index),
            model="m",
            verb=verb,
            items=(item,),
            options=own,
            lane=Lane.INTERACTIVE,
            priority=5,
            arrived=0.0,
        )
        entries.append(Entry(work, item))
    return Batch(id=1, model="m", verb=verb, entries=tuple(entries))


def answers(adapter: Adapter, case: Case, payloads: Sequence[Mapping[str, Any]], **more: Any) -> list[Outcome]:
    """The outcomes of a case's payloads in one batch, under the case's options and these."""
    options = parse_options(adapter.spec, case.verb, adapter.spec.run, {**case.options, **more})
    return list(adapter.run(batch(case.verb, payloads, [options] * len(payloads))))


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small are quicker on one thread, and far quicker where others compute on the machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def device() -> str:
    return DEVICE


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def adapter(case: Case) -> Iterator[Adapter]:
    built = build(case)
    built.load()
    yield built
    built.unload()


@pytest.fixture(scope="session")
def new_adapter() -> Callable[[Case], Adapter]:
    return build


@pytest.fixture(scope="session")
def run() -> Run:
    """Vectors of texts, where None stands for an item without one."""

    def run_texts(
        adapter: Adapter,
        texts: Sequence[object],
        options: EncodeOptions | Sequence[EncodeOptions] | None = None,
    ) -> list[Outcome]:
        each = [options or EncodeOptions()] * len(texts) if not isinstance(options, Sequence) else options
        payloads = [{} if text is None else {"text": text} for text in texts]
        return list(adapter.run(batch(Verb.ENCODE, payloads, each)))

    return run_texts


@pytest.fixture(scope="session")
def read_vector() -> Callable[[Outcome], NDArray[np.float32]]:
    def values(outcome: Outcome) -> NDArray[np.float32]:
        assert isinstance(outcome, Output), outcome
        dense = outcome.fields["dense"]
        assert dense["dtype"] == "float32"
        return np.frombuffer(dense["values"], dtype="<f4")

    return values
