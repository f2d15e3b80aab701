"""A real decoder inside the engine: sequences come and go between steps, and each text is what it is alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.loader import Catalog
from catalog.options.generate import GenerateOptions
from catalog.schema import GenerateFacts, Source, Spec, Tasks
from catalog.terms import Lane, Verb
from engine.adapters.causal_lm import CausalLmAdapter, CausalLmOptions
from engine.device import CpuDevice
from engine.engine import Engine, EngineLimits
from engine.types import Batch, Entry, Item, Output, Work
from tests.small import folder
from tests.unit.engine.recorder import Recorder

MIB = 2**20
NAME = "random/qwen3"


def spec() -> Spec:
    return Spec(
        id=NAME,
        family="causal_lm",
        source=Source(path=str(folder("tiny_qwen3"))),
        tasks=Tasks(generate=GenerateFacts(max_new_tokens=24)),
        parameters=0,
        max_length=1024,
        inputs=("text", "messages"),
    )


def work(number: int, text: str, **options: Any) -> Work:
    own = GenerateOptions(**options)
    item = Item(0, {"text": text}, len(text) // 2, 5.0)
    return Work(f"w{number}", NAME, Verb.GENERATE, (item,), own, Lane.INTERACTIVE, 5, arrived=time.monotonic())


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def engine(recorder: Recorder) -> Iterator[Engine]:
    made = Engine(Catalog([spec()]), CpuDevice(), EngineLimits(budget_bytes=300 * MIB), recorder)
    made.start()
    yield made
    made.stop()


def test_each_text_is_what_it_is_alone_though_all_run_together(engine: Engine, recorder: Recorder) -> None:
    varied: list[dict[str, Any]] = [
        {"stream": True},
        {"temperature": 1.0, "seed": 3},
        {"max_tokens": 3},
        {"grammar": {"regex": "[a-z]{6}"}},
        {"repetition_penalty": 1.4, "logprobs": True},
    ]
    works = [work(n, f"Bird {n}. " * (7 * n % 31 + 1), **varied[n % 5]) for n in range(15)]
    for begin in range(0, len(works), 4):
        engine.submit(works[begin : begin + 4])
    done = recorder.results(*works)
    alone = CausalLmAdapter(spec(), CausalLmOptions(), folder("tiny_qwen3"), "cpu")
    alone.load()
    for one in done:
        entry = Entry(one.work, one.work.items[0])
        (expected,) = alone.run(Batch(1, NAME, Verb.GENERATE, (entry,)))
        (found,) = one.outcomes
        assert isinstance(found, Output), found
        assert isinstance(expected, Output)
        assert (found.fields["text"], found.usage) == (expected.fields["text"], expected.usage)
    alone.unload()
    assert max(len(batch.entries) for batch in recorder.started) > 4
    told = "".join(piece.text for call in recorder.pieces for piece in call if piece.work == works[0].id)
    (first,) = done[0].outcomes
    assert isinstance(first, Output)
    assert told
    assert first.fields["text"].startswith(told)
