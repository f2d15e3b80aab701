"""A pass that fails leaves its sequences as they were: tried again, each ends as if nothing had happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from catalog.options.generate import GenerateOptions
from catalog.terms import Verb
from engine.adapters.base import Part, TokenSequence
from engine.errors import NotFinite, OutOfMemory
from engine.generation.decoding import Decoder, Feed
from engine.steprunner import run_step
from tests.adapters.causal_lm.conftest import answers, decoder, outcomes
from tests.adapters.conftest import batch

TEXTS = ["What is a roost?", "Count to ten.", "Where do owls sleep? " * 3]


class Failing:
    """A decoder that does its work and then says that memory was out, at every third call."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner
        self.whole = inner.whole
        self.calls = 0

    def feed(self, feeds: Sequence[Feed]) -> list[torch.Tensor | None]:
        found = self._inner.feed(feeds)
        self.calls += 1
        if self.calls % 3 == 0:
            raise OutOfMemory
        return found


class Spoiling:
    """A decoder whose second sequence gets no numbers."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner
        self.whole = inner.whole

    def feed(self, feeds: Sequence[Feed]) -> list[torch.Tensor | None]:
        found = self._inner.feed(feeds)
        return [row if row is None or place != 1 else row * torch.nan for place, row in enumerate(found)]


@pytest.mark.parametrize("name", ["tiny_qwen3", "tiny_qwen3_5"])
def test_memory_that_runs_out_midway_changes_no_text(name: str) -> None:
    adapter = decoder(name)
    adapter.load()
    expected: list[Any] = list(answers(adapter, TEXTS))
    adapter._loaded = replace(adapter.loaded, decoder=Failing(adapter.loaded.decoder))
    payloads = [{"text": text} for text in TEXTS]
    joined = [adapter.join(one) for one in batch(Verb.GENERATE, payloads, [GenerateOptions()] * 3).entries]
    sequences = [one for one in joined if isinstance(one, TokenSequence)]
    found: dict[int, Any] = {}
    while len(found) < len(sequences):
        going = [place for place in range(len(sequences)) if place not in found]
        parts = [Part(sequences[place], min(7, sequences[place].unread)) for place in going]
        came = run_step(adapter, parts, clear=lambda: None, relieve=lambda: False)
        found.update({p: outcome for p, outcome in zip(going, came.outcomes, strict=True) if outcome is not None})
    adapter.unload()
    assert [found[place] for place in range(3)] == expected


def test_a_text_without_numbers_fails_alone() -> None:
    adapter = decoder("tiny_qwen3")
    adapter.load()
    expected = answers(adapter, TEXTS[:2])
    adapter._loaded = replace(adapter.loaded, decoder=Spoiling(adapter.loaded.decoder))
    first, second = outcomes(adapter, TEXTS[:2])
    adapter.unload()
    assert isinstance(second, NotFinite)
    assert first == expected[0]
