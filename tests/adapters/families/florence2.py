"""A Florence-2 of random weights: it proves that images and tasks reach the library as its own call would have them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog.schema import ExtractFacts, ExtractKind, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder


def model() -> tuple[Spec, Path | None]:
    spec = Spec(
        id="random/florence-2",
        family="florence2",
        tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.TEXT, ExtractKind.OBJECTS))),
        parameters=100_000,
        max_length=16,
        unit="tiles",
        inputs=("image",),
    )
    return spec, folder("florence2")


def picture(number: int) -> bytes:
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(number).integers(
        60 * number, 60 * number + 60, (48 + 8 * number, 80, 3), dtype=np.uint8
    )
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "PNG")
    return out.getvalue()


def items() -> list[Payload]:
    return [{"images": [{"data": picture(number)}]} for number in range(4)]


def reference(folder: Path | None, device: str) -> Answers:
    from PIL import Image
    from transformers import AutoTokenizer, CLIPImageProcessorPil, Florence2ForConditionalGeneration, Florence2Processor

    assert folder is not None
    images = CLIPImageProcessorPil.from_pretrained(folder)
    names: dict[str, Any] = {"pure_text": {}}
    processor: Any = Florence2Processor(images, AutoTokenizer.from_pretrained(folder), post_processor_config=names)
    library: Any = Florence2ForConditionalGeneration.from_pretrained(folder)
    library.to(device)

    def answers(items: Sequence[Payload]) -> list[Any]:
        found = []
        for item in items:
            image = Image.open(io.BytesIO(item["images"][0]["data"])).convert("RGB")
            asked = processor(text="<CAPTION>", images=image, return_tensors="pt").to(device)
            ids = library.generate(**asked, max_new_tokens=12, do_sample=False)
            text = processor.batch_decode(ids[:, 1:], skip_special_tokens=False)[0]
            found.append(processor.post_process_generation(text, task="<CAPTION>", image_size=image.size)["<CAPTION>"])
        return found

    return answers


def caption(output: Output) -> str:
    text: str = output.fields["data"]["text"]
    return text


CASES = [
    Case(
        name="caption",
        model=model,
        verb=Verb.EXTRACT,
        items=items,
        options={"task": "caption", "max_new_tokens": 12},
        bad=({}, {"images": [{"data": b"no image"}]}),
        reference=reference,
        found=caption,
    )
]
