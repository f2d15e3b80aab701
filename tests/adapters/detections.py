"""What a detector's library gives, written as an item's `objects` by nobody's code but this."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def objects(found: Iterable[tuple[str, float, Sequence[float]]], size: tuple[int, int]) -> list[dict[str, Any]]:
    """Labels, scores and boxes (left, top, right, bottom in pixels) of an image of this width and height."""
    told = []
    for label, score, box in found:
        left, right = np.clip(np.rint([box[0], box[2]]), 0, size[0]).astype(int).tolist()
        top, bottom = np.clip(np.rint([box[1], box[3]]), 0, size[1]).astype(int).tolist()
        if right > left and bottom > top:
            told.append((-round(score, 6), label, [left, top, right - left, bottom - top]))
    return [{"label": label, "score": -score, "bbox": box} for score, label, box in sorted(told)]
