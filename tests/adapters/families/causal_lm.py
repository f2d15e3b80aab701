"""Decoders of random weights: one all of whose layers attend, one with windows, one with linear attention."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from catalog.schema import GenerateFacts, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

NEW = 12
TEXTS = [
    "What is a roost?",
    "Name three birds, each in one word. " * 4,
    "Wo schlafen Krähen?",
    "日本の鳥 🦉 and e\u0301",
    "Count.",
]
BAD: tuple[Payload, ...] = (
    {},
    {"text": 7},
    {"text": "half \ud83d pair"},
    {"text": "too long, " * 500},
    {"messages": []},
)


def model(name: str) -> tuple[Spec, Path | None]:
    facts = GenerateFacts(max_new_tokens=NEW)
    spec = Spec(
        id=f"random/{name}",
        family="causal_lm",
        tasks=Tasks(generate=facts),
        parameters=0,
        max_length=512,
        inputs=("text", "messages"),
    )
    return spec, folder(f"tiny_{name}")


def items() -> list[Payload]:
    several = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Is an owl "}, {"type": "text", "text": "a bird?"}]},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "And a bat?"},
        ]
    }
    return [*({"text": text} for text in TEXTS), several]


def texts() -> list[Payload]:
    return [{"text": text} for text in TEXTS]


def reference(where: Path | None, device: str, *, raw: bool = False, **options: Any) -> Answers:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    auto: Any = AutoModelForCausalLM
    library = auto.from_pretrained(where).eval().to(device)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(where))

    def answers(items: Sequence[Payload]) -> list[Any]:
        found = []
        for item in items:
            turns = [
                {"role": turn["role"], "content": _flat(turn["content"])}
                for turn in item.get("messages", [{"role": "user", "content": item.get("text")}])
            ]
            ids = (
                tokenizer(item["text"], return_tensors="pt")
                if raw
                else tokenizer.apply_chat_template(
                    turns, add_generation_prompt=True, return_tensors="pt", return_dict=True
                )
            ).to(device)
            made = library.generate(**ids, do_sample=False, max_new_tokens=NEW, **options)[
                0, ids["input_ids"].shape[1] :
            ]
            ended = made[-1] == library.generation_config.eos_token_id
            text = str(tokenizer.decode(made, skip_special_tokens=True))
            # A character of which the last token has only the beginning is left out.
            found.append({"text": re.sub("\ufffd{1,3}$", "", text), "finish_reason": "stop" if ended else "length"})
        return found

    return answers


def _flat(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def answer(output: Output) -> Any:
    assert output.usage["completion_tokens"] + output.usage["prompt_tokens"] == output.tokens
    return {"text": output.fields["text"], "finish_reason": output.fields["finish_reason"]}


def case(
    name: str, of: str, items: Callable[[], Sequence[Payload]], bad: Sequence[Payload] = BAD, **options: Any
) -> Case:
    known = {key: value for key, value in options.items() if key in ("raw", "repetition_penalty")}
    return Case(
        name=name,
        model=partial(model, of),
        verb=Verb.GENERATE,
        items=items,
        options=options,
        bad=bad,
        reference=partial(reference, **known),
        found=answer,
        looks_past=frozenset({"thinking"} if "raw" in options else ()),
    )


CASES = [
    case("chat", "qwen3", items),
    case("raw", "qwen3", texts, raw=True, repetition_penalty=1.3, logprobs=True, top_logprobs=2),
    case("windows", "gemma3", items),
    case("one-by-one", "qwen3_5", items, BAD[:1]),
]
