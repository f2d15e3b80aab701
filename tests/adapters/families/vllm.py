"""A Qwen3 of random weights in vLLM, where that is installed and there is a card. It has not been run yet."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from catalog.schema import GenerateFacts, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

NEW = 12
LEASE = 6 * 2**30
TEXTS = ("What is a roost?", "Name three birds, each in one word. " * 4, "Wo schlafen Krähen?", "Count.")


def model() -> tuple[Spec, Path | None]:
    spec = Spec(
        id="random/qwen3-in-vllm",
        family="vllm",
        tasks=Tasks(generate=GenerateFacts(max_new_tokens=NEW)),
        parameters=0,
        max_length=512,
        inputs=("text", "messages"),
    )
    return spec, folder("tiny_qwen3")


def lacking() -> str | None:
    from tests.adapters.conftest import DEVICE

    if find_spec("vllm") is None:
        return "vllm is not installed here"
    return None if DEVICE.startswith("cuda") else "vLLM needs a card: TEST_DEVICE=cuda:0"


def items() -> list[Payload]:
    return [{"text": text} for text in TEXTS]


def reference(where: Path | None, device: str) -> Answers:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    auto: Any = AutoModelForCausalLM
    library = auto.from_pretrained(where).eval().to(device)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(where))

    def answers(items: Sequence[Payload]) -> list[Any]:
        found = []
        for item in items:
            ids = tokenizer(item["text"], return_tensors="pt").to(device)
            made = library.generate(**ids, do_sample=False, max_new_tokens=NEW)[0, ids["input_ids"].shape[1] :]
            found.append(tokenizer.decode(made, skip_special_tokens=True))
        return found

    return answers


def text(output: Output) -> str:
    found: str = output.fields["text"]
    return found


CASES = [
    Case(
        name="generate",
        model=model,
        verb=Verb.GENERATE,
        items=items,
        load={"dtype": "float32", "bytes": LEASE, "eager": True},
        options={"raw": True, "max_tokens": NEW},
        bad=({}, {"text": 7}, {"text": "too long, " * 500}),
        reference=reference,
        found=text,
        needs=lacking,
    )
]
