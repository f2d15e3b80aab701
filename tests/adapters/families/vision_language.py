"""Models of random weights that see: one with squares of one size, one with places in two dimensions, one hybrid."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from catalog.schema import GenerateFacts, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

NEW = 10
Inputs = Callable[[str, list[Image.Image]], Any]
"""What a model takes, of a text in its template and the pictures of that text."""

BAD: tuple[Payload, ...] = (
    {},
    {"text": "What?", "images": [{"data": b"no image"}]},
    {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
)
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "From "},
            {"type": "image"},
            {"type": "text", "text": " to "},
            {"type": "image"},
        ],
    },
]


def picture(number: int) -> Image.Image:
    """Noise, of a shape of its own."""
    drawn = np.random.default_rng(number)
    return Image.fromarray(drawn.integers(0, 255, (30 + 9 * number, 70 - 5 * number, 3), dtype=np.uint8))


def media(number: int) -> dict[str, bytes]:
    """The picture as a file."""
    stream = io.BytesIO()
    picture(number).save(stream, "PNG")
    return {"data": stream.getvalue()}


def model(name: str) -> tuple[Spec, Path | None]:
    spec = Spec(
        id=f"random/{name}",
        family="vision_language",
        tasks=Tasks(generate=GenerateFacts(max_new_tokens=NEW)),
        parameters=0,
        max_length=512,
        inputs=("text", "messages", "image"),
    )
    return spec, folder(f"tiny_{name}")


def items() -> list[Payload]:
    return [
        {"text": "What is it?", "images": [media(0)]},
        {"text": "There is none to see."},
        {"messages": MESSAGES, "images": [media(3), media(4)]},
        {"text": "What is it?", "images": [media(1)]},
        {"text": "And these two?", "images": [media(2), media(0)]},
    ]


def conversation(payload: Payload) -> tuple[list[dict[str, Any]], list[Image.Image]]:
    """What an item is to the library's template, and its pictures."""
    if "messages" in payload:
        return MESSAGES, [picture(3), picture(4)]
    pictures = [Image.open(io.BytesIO(one["data"])).convert("RGB") for one in payload.get("images", ())]
    content = [*({"type": "image"} for _ in pictures), {"type": "text", "text": payload["text"]}]
    return [{"role": "user", "content": content}], pictures


def reference(inputs: Callable[[Path | None, Any], Inputs], where: Path | None, device: str) -> Answers:
    from transformers import AutoModelForImageTextToText, AutoTokenizer

    auto: Any = AutoModelForImageTextToText
    library = auto.from_pretrained(where).eval().to(device)
    tokenizer: Any = AutoTokenizer.from_pretrained(str(where))
    read = inputs(where, tokenizer)

    def answers(items: Sequence[Payload]) -> list[Any]:
        found = []
        for turns, pictures in map(conversation, items):
            text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
            given = {name: value.to(device) for name, value in read(text, pictures).items()}
            made = library.generate(**given, do_sample=False, max_new_tokens=NEW)[0, given["input_ids"].shape[1] :]
            ended = bool(made[-1] == library.generation_config.eos_token_id)
            said = str(tokenizer.decode(made, skip_special_tokens=True))
            found.append({"text": re.sub("\ufffd{1,3}$", "", said), "finish_reason": "stop" if ended else "length"})
        return found

    return answers


def squares(where: Path | None, tokenizer: Any) -> Inputs:
    """LLaVA's own processor, with the image processor for Pillow."""
    from transformers import CLIPImageProcessorPil, LlavaProcessor

    processor: Any = LlavaProcessor(
        image_processor=CLIPImageProcessorPil.from_pretrained(str(where)),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    return lambda text, pictures: processor(
        text=text, images=pictures or None, return_tensors="pt", add_special_tokens=False
    )


def grids(where: Path | None, tokenizer: Any) -> Inputs:
    """As Qwen's processor does, which cannot be made without what videos need."""
    from transformers import Qwen2VLImageProcessorPil

    pad = "<|image_pad|>"
    eyes: Any = Qwen2VLImageProcessorPil.from_pretrained(str(where))

    def read(text: str, pictures: list[Image.Image]) -> Any:
        seen: Any = eyes(images=pictures, return_tensors="pt") if pictures else {}
        parts = text.split(pad)
        for place, grid in enumerate(seen.get("image_grid_thw", ())):
            parts[place] += pad * (int(grid.prod()) // 4)
        ids = tokenizer("".join(parts), return_tensors="pt", add_special_tokens=False)["input_ids"]
        kinds = (ids == tokenizer.convert_tokens_to_ids(pad)).int()
        return {"input_ids": ids, **seen, **({"mm_token_type_ids": kinds} if pictures else {})}

    return read


def answer(output: Output) -> Any:
    return {"text": output.fields["text"], "finish_reason": output.fields["finish_reason"]}


def case(of: str, inputs: Callable[[Path | None, Any], Inputs]) -> Case:
    return Case(
        name=of,
        model=partial(model, of),
        verb=Verb.GENERATE,
        items=items,
        bad=BAD,
        reference=partial(reference, inputs),
        found=answer,
    )


CASES = [case("llava", squares), case("qwen3_vl", grids), case("qwen3_5_vl", grids)]
