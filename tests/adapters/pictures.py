"""Pictures for the families that see: each of its own content, in sizes and formats that differ."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from tests.adapters.case import Payload


def picture(number: int, size: tuple[int, int] = (80, 60), kind: str = "PNG") -> bytes:
    """The file of a smooth picture of some colours and shapes, another one for each number."""
    made = np.random.default_rng(number)
    coarse = Image.fromarray(made.integers(0, 255, (5, 6, 3), dtype=np.uint8))
    image = coarse.resize(size, Image.Resampling.BICUBIC)
    left, top = size[0] // 4, size[1] // 4
    image.paste(tuple(made.integers(0, 255, 3).tolist()), (left, top, left + size[0] // 3, top + size[1] // 3))
    written = io.BytesIO()
    image.save(written, kind)
    return written.getvalue()


def item(number: int, size: tuple[int, int] = (80, 60), kind: str = "PNG") -> Payload:
    """An item that holds one picture."""
    return {"images": [{"data": picture(number, size, kind)}]}


def opened(payload: Payload) -> Image.Image:
    """The picture of an item, as Pillow alone reads it."""
    return Image.open(io.BytesIO(payload["images"][0]["data"])).convert("RGB")


def broken() -> Payload:
    """An item whose picture is cut short."""
    whole = picture(1, (120, 120), "JPEG")
    return {"images": [{"data": whole[: len(whole) // 2]}]}
