"""A loaded decoder of random weights, and what it makes of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from catalog.options.generate import GenerateOptions
from catalog.schema import GenerateFacts, LoraSource, Spec, Tasks
from catalog.terms import Verb
from engine.adapters.causal_lm import CausalLmAdapter, CausalLmOptions
from engine.types import Outcome, Output
from tests.adapters.conftest import DEVICE, batch
from tests.small import folder


def decoder(name: str, loras: dict[str, LoraSource] | None = None, **load: Any) -> CausalLmAdapter:
    """A decoder of this folder, not loaded."""
    spec = Spec(
        id=f"random/{name}",
        family="causal_lm",
        tasks=Tasks(generate=GenerateFacts(max_new_tokens=16, tools=True)),
        parameters=0,
        max_length=1024,
        inputs=("text", "messages"),
        loras=loras or {},
    )
    return CausalLmAdapter(spec, CausalLmOptions.model_validate(load), folder(name), DEVICE)


def outcomes(adapter: CausalLmAdapter, texts: Sequence[str], *options: dict[str, Any], **every: Any) -> list[Outcome]:
    """What a batch of texts comes to. `options` are for each text its own, `every` are for all."""
    own = [GenerateOptions(**{**every, **one}) for one in options or [{}] * len(texts)]
    return list(adapter.run(batch(Verb.GENERATE, [{"text": text} for text in texts], own)))


def answers(adapter: CausalLmAdapter, texts: Sequence[str], *options: dict[str, Any], **every: Any) -> list[Output]:
    """The same, where all is well."""
    found = outcomes(adapter, texts, *options, **every)
    assert all(isinstance(one, Output) for one in found), found
    return [one for one in found if isinstance(one, Output)]


@pytest.fixture(scope="module")
def qwen3() -> Iterator[CausalLmAdapter]:
    made = decoder("tiny_qwen3")
    made.load()
    yield made
    made.unload()
