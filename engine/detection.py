"""What detectors by label have in common: which labels are asked for, which boxes are told, and in which order.

Labels are put to a model once each and in one fixed order, so that neither a duplicate nor the order of a request
changes a score; a box is told under a label exactly as it was sent. No box is dropped for overlapping another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.options import ExtractOptions
from engine.errors import ItemRejected, NotFinite
from engine.findings import detected
from engine.types import Output


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one item's options ask for: labels, each once and sorted, and the least scores; `top_k` bounds the boxes.

    A box needs a score over `box`, and its label one over `text`.
    """

    labels: tuple[str, ...]
    box: float
    text: float
    top_k: int | None


def wanted(options: ExtractOptions, default: float) -> Wanted | ItemRejected:
    """What is asked for. `score_threshold` and `threshold` are other names of `box_threshold`, in this order."""
    labels = tuple(sorted({label for label in options.labels or () if label.strip()}))
    if not labels:
        return ItemRejected("Name what to look for: this model finds what 'labels' says.", param="options.labels")
    asked = (options.box_threshold, options.score_threshold, options.threshold)
    box = next((value for value in asked if value is not None), default)
    text = 0.0 if options.text_threshold is None else options.text_threshold
    return Wanted(labels, box, text, options.top_k)


def corners(boxes: NDArray[Any]) -> NDArray[np.float64]:
    """Boxes of centre, width and height as left, top, right and bottom."""
    values = np.asarray(boxes, dtype=np.float64)
    half = values[:, 2:] / 2
    return np.concatenate([values[:, :2] - half, values[:, :2] + half], axis=1)


def best(scores: NDArray[Any], boxes: NDArray[Any], want: Wanted, labels: Sequence[str]) -> Found | NotFinite:
    """Of each box its best label. `scores` is [boxes, labels] within 0 and 1, `boxes` [boxes, 4] in pixels."""
    if not np.isfinite(scores).all() or not np.isfinite(boxes).all():
        return NotFinite()
    names = scores.argmax(axis=1)
    tops = scores.max(axis=1)
    kept = np.flatnonzero((tops > want.box) & (tops > want.text))
    return [(labels[names[index]], float(tops[index]), boxes[index]) for index in kept]


Found = list[tuple[str, float, NDArray[Any]]]
"""Boxes with their labels and scores: left, top, right and bottom in pixels, perhaps beyond the image."""


def told(found: Found, want: Wanted, size: tuple[int, int], tokens: int) -> Output:
    """The output for an image of this width and height: the best box first, those outside of the image left out."""
    objects = [
        detected(label, score, (float(box[0]), float(box[1]), float(box[2]), float(box[3])), size)
        for label, score, box in found
    ]
    seen = [one for one in objects if one["bbox"][2] and one["bbox"][3]]
    seen.sort(key=lambda one: (-one["score"], one["label"], one["bbox"]))
    return Output({"objects": seen[: want.top_k]}, tokens=tokens, usage={"images": 1})
