"""The family's models come with its package: real weights."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog.schema import ExtractFacts, ExtractKind, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload

LINES = (("Claim 48213",), ("Water damage", "in the kitchen"))


def model() -> tuple[Spec, Path | None]:
    spec = Spec(
        id="rapidocr",
        family="rapidocr",
        tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.TEXT,))),
        parameters=0,
        max_length=1,
        unit="tiles",
        inputs=("image",),
    )
    return spec, None


def picture(lines: Sequence[str], form: str = "PNG") -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    # The library scales the shorter side up to 736 pixels: a square costs least.
    image = Image.new("RGB", (320, 320), "white")
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        draw.text((40, 40 + 80 * row), line, fill="black", font=ImageFont.load_default(32))
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


def items() -> list[Payload]:
    return [{"images": [{"data": picture(lines)}]} for lines in LINES]


def reference(folder: Path | None, device: str) -> Answers:
    import numpy as np
    from PIL import Image
    from rapidocr import RapidOCR

    one = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    library: Any = RapidOCR(params={"Global.log_level": "error", **one})

    def answers(items: Sequence[Payload]) -> list[Any]:
        found = []
        for item in items:
            image = Image.open(io.BytesIO(item["images"][0]["data"])).convert("RGB")
            read = library(np.asarray(image)[:, :, ::-1])
            found.append([[text, float(score)] for text, score in zip(read.txts, read.scores, strict=True)])
        return found

    return answers


def lines(output: Output) -> list[list[Any]]:
    return [[line["text"], line["score"]] for line in output.fields["data"]["lines"]]


CASES = [
    Case(
        name="text",
        model=model,
        verb=Verb.EXTRACT,
        items=items,
        bad=({}, {"images": [{"data": b"no image"}]}, {"images": [{"data": picture(["cut"])[:200]}]}),
        reference=reference,
        found=lines,
        tolerance=1e-3,
    )
]
