"""The shapes of what an extraction finds, the same in every family. Scores are within 0 and 1, rounded to 6 digits.

Offsets are Unicode code points of the text as it was sent: `text[start:end]` is the entity. A box is
`[x, y, width, height]` in whole pixels of the image as it is displayed, EXIF orientation applied.
"""

from __future__ import annotations

from typing import Any


def score_of(value: float) -> float:
    """A score as it is written."""
    return round(float(value), 6)


def entity(text: str, label: str, score: float, start: int, end: int) -> dict[str, Any]:
    """A piece of a text: `text` is that of the whole item."""
    return {"text": text[start:end], "label": label, "score": score_of(score), "start": start, "end": end}


def relation(head: dict[str, Any], tail: dict[str, Any], label: str, score: float) -> dict[str, Any]:
    """Two entities and what is between them."""
    return {"head": head, "tail": tail, "relation": label, "score": score_of(score)}


def classification(label: str, score: float) -> dict[str, Any]:
    """A label of a whole item."""
    return {"label": label, "score": score_of(score)}


def detected(label: str, score: float, box: tuple[float, float, float, float], size: tuple[int, int]) -> dict[str, Any]:
    """Something in an image. `box` is (left, top, right, bottom) in pixels, `size` the image's (width, height)."""
    left, top = (min(max(round(value), 0), most) for value, most in zip(box[:2], size, strict=True))
    right, bottom = (min(max(round(value), 0), most) for value, most in zip(box[2:], size, strict=True))
    return {"label": label, "score": score_of(score), "bbox": [left, top, max(0, right - left), max(0, bottom - top)]}
