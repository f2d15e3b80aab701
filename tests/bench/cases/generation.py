"""A real chat model in this process: eight texts together, one at a time, and by the library's own loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from catalog.options.generate import GenerateOptions
from catalog.schema import GenerateFacts, Spec, Tasks
from catalog.terms import Lane, Verb
from engine.adapters.causal_lm import CausalLmAdapter, CausalLmOptions
from engine.types import Batch, Entry, Item, Output, Work
from tests.bench.case import Found, Pace, Study, Unreliable
from tests.bench.figures import Reading, at_least
from tests.small import folder

MODEL = "smollm2"
SUBJECTS = ("owls", "roosts", "the moon", "old ships", "wrens", "rain in autumn", "a lighthouse", "crows at dusk")
NEW, QUICK_NEW = 48, 12
TOGETHER, ALONE, LIBRARY = "together", "one at a time", "the library, one at a time"

Made = tuple[list[str], int]
"""Texts, and the new tokens of all."""


def measure(pace: Pace, number: int) -> Found:
    """Each way on the same prompts, greedy, in turns; all give the same texts."""
    from transformers import AutoModelForCausalLM

    new = QUICK_NEW if pace.quick else NEW
    prompts = [f"Write a short story about {subject}." for subject in SUBJECTS]
    adapter = _loaded()
    auto: Any = AutoModelForCausalLM
    library = auto.from_pretrained(folder(MODEL), dtype="float32").eval()
    ways: dict[str, Callable[[Sequence[str]], Made]] = {
        TOGETHER: lambda texts: _made(adapter, texts, new),
        ALONE: lambda texts: _joined([_made(adapter, [text], new) for text in texts]),
        LIBRARY: lambda texts: _joined([_by_library(library, adapter.tokenizer_of(), text, new) for text in texts]),
    }
    names = list(ways)
    rates: dict[str, float] = {}
    texts: dict[str, list[str]] = {}
    for name in names[number % len(names) :] + names[: number % len(names)]:
        ways[name](prompts[:1])
        began = time.perf_counter()
        texts[name], tokens = ways[name](prompts)
        rates[name] = tokens / (time.perf_counter() - began)
    adapter.unload()
    if not texts[TOGETHER] == texts[ALONE] == texts[LIBRARY]:
        raise Unreliable("the ways give different texts")
    found = Found()
    for name in names:
        found.add(Reading(f"{len(prompts)} texts, {name}: new tokens", rates[name], "tokens/s"))
    found.add(
        Reading(f"{TOGETHER} over {ALONE}", rates[TOGETHER] / rates[ALONE], "times", at_least(2)),
        Reading(f"{TOGETHER} over {LIBRARY}", rates[TOGETHER] / rates[LIBRARY], "times", at_least(2)),
    )
    return found


def _loaded() -> CausalLmAdapter:
    facts = GenerateFacts(max_new_tokens=NEW)
    spec = Spec(id=MODEL, family="causal_lm", tasks=Tasks(generate=facts), parameters=0, max_length=2048)
    adapter = CausalLmAdapter(spec, CausalLmOptions(), folder(MODEL), "cpu")
    adapter.load()
    return adapter


def _made(adapter: CausalLmAdapter, texts: Sequence[str], new: int) -> Made:
    options = GenerateOptions(max_tokens=new)
    entries = []
    for place, text in enumerate(texts):
        item = Item(0, {"text": text}, 40, 1.0)
        entries.append(
            Entry(Work(str(place), MODEL, Verb.GENERATE, (item,), options, Lane.INTERACTIVE, 5, arrived=0.0), item)
        )
    found = [one for one in adapter.run(Batch(1, MODEL, Verb.GENERATE, tuple(entries))) if isinstance(one, Output)]
    return [one.fields["text"] for one in found], sum(one.usage["completion_tokens"] for one in found)


def _by_library(library: Any, tokenizer: Any, text: str, new: int) -> Made:
    turns = [{"role": "user", "content": text}]
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    made = library.generate(**ids, max_new_tokens=new, do_sample=False)[0, ids["input_ids"].shape[1] :]
    return [str(tokenizer.decode(made, skip_special_tokens=True))], len(made)


def _joined(made: Sequence[Made]) -> Made:
    return [text for texts, _ in made for text in texts], sum(count for _, count in made)


STUDY = Study(
    name="generation",
    title="SmolLM2-135M in float32, eight prompts, greedy: new tokens a second",
    measure=measure,
    notes=("without the engine around it: every step takes all texts; each text is the same whichever way it is made",),
)
