"""A Donut of random weights: it proves that images and the task reach the library as its own call would have them."""

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
        id="random/donut",
        family="donut",
        tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.TEXT,), task="<s_receipt>")),
        parameters=100_000,
        max_length=16,
        unit="tiles",
        inputs=("image",),
    )
    return spec, folder("donut")


def picture(number: int) -> bytes:
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(number).integers(
        60 * number, 60 * number + 60, (64, 48 + 8 * number, 3), dtype=np.uint8
    )
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "PNG")
    return out.getvalue()


def items() -> list[Payload]:
    return [{"images": [{"data": picture(number)}]} for number in range(4)]


def reference(folder: Path | None, device: str) -> Answers:
    from PIL import Image
    from transformers import AutoTokenizer, DonutImageProcessorPil, VisionEncoderDecoderModel

    assert folder is not None
    images, words = DonutImageProcessorPil.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    library: Any = VisionEncoderDecoderModel.from_pretrained(folder)
    library.to(device)
    begun = words("<s_receipt>", add_special_tokens=False, return_tensors="pt").input_ids.to(device)

    def answers(items: Sequence[Payload]) -> list[Any]:
        found = []
        for item in items:
            image = Image.open(io.BytesIO(item["images"][0]["data"])).convert("RGB")
            pixels = images(image, return_tensors="pt").pixel_values.to(device)
            ids = library.generate(pixel_values=pixels, decoder_input_ids=begun, max_new_tokens=12, do_sample=False)
            found.append(str(words.decode(ids[0, begun.shape[1] :], skip_special_tokens=True)).strip())
        return found

    return answers


def text(output: Output) -> str:
    found: str = output.fields["data"]["text"]
    return found


CASES = [
    Case(
        name="text",
        model=model,
        verb=Verb.EXTRACT,
        items=items,
        options={"max_new_tokens": 12},
        bad=({}, {"images": [{"data": b"no image"}]}),
        reference=reference,
        found=text,
    )
]
