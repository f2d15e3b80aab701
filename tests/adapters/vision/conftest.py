"""Adapters of small models of images, each loaded once, what they answer, and how often they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from catalog.options import parse_options
from engine.adapters.base import Adapter
from engine.torch_adapter import TorchAdapter
from engine.types import Outcome
from tests.adapters.case import Case
from tests.adapters.conftest import batch, build, cases_of

Load = Callable[[str, str], Adapter]
Ask = Callable[..., list[Outcome]]
Passes = Callable[[Adapter], AbstractContextManager[list[str]]]


def case_of(family: str, name: str) -> Case:
    """A family's case by its name."""
    return next(case for case in cases_of(family) if case.name == name)


@pytest.fixture(scope="session")
def load() -> Iterator[Load]:
    """The loaded adapter of a family's case; the same call gives the same one."""
    made: dict[tuple[str, str], Adapter] = {}

    def loaded(family: str, name: str) -> Adapter:
        if (family, name) not in made:
            made[family, name] = build(case_of(family, name))
            made[family, name].load()
        return made[family, name]

    yield loaded
    for adapter in made.values():
        adapter.unload()


@pytest.fixture(scope="session")
def ask() -> Ask:
    """The outcomes of some payloads in one batch, each under options of its own or all under the same."""

    def outcomes(
        adapter: Adapter,
        verb: Any,
        payloads: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    ) -> list[Outcome]:
        each = [options] * len(payloads) if isinstance(options, Mapping) else options
        parsed = [parse_options(adapter.spec, verb, {}, one) for one in each]
        return list(adapter.run(batch(verb, payloads, parsed)))

    return outcomes


@pytest.fixture(scope="session")
def passes() -> Passes:
    """The passes of an adapter's module while it is watched: a word for each, with how many items it was of."""

    @contextmanager
    def watched(adapter: Adapter) -> Iterator[list[str]]:
        assert isinstance(adapter, TorchAdapter)
        module: Any = adapter.ready()
        seen: list[str] = []
        hooks = []
        for name, part in module.named_modules():
            if name.endswith(("vision_model", "text_model", "visual", "vision_tower", "model.backbone")):

                def note(_: Any, args: Any, kwargs: Any, name: str = name) -> None:
                    first = next(iter([*args, *kwargs.values()]))
                    seen.append(f"{name.rpartition('.')[2]} {len(first)}")

                hooks.append(part.register_forward_pre_hook(note, with_kwargs=True))
        try:
            yield seen
        finally:
            for hook in hooks:
                hook.remove()

    return watched
