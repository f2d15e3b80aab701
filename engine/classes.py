"""What a classifier says of a text: the scores of its windows brought together, and which labels are told. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.findings import classification

Scores = NDArray[np.float32]
Activation = Literal["softmax", "sigmoid"]


def combined(scores: Sequence[Scores], sizes: Sequence[int], alarm: Sequence[int], *, each: bool) -> Scores:
    """The scores of a text by those of its windows.

    With `each` the labels do not exclude each other and a label has the highest score of any window. Otherwise the
    window in which the `alarm` labels score highest together speaks for the text; without such labels it is the mean
    over the windows, each by its size.
    """
    table = np.stack(scores)
    if each:
        return np.asarray(table.max(axis=0))
    if alarm:
        return np.asarray(table[int(table[:, list(alarm)].sum(axis=1).argmax())])
    return np.asarray(np.average(table, axis=0, weights=sizes), dtype=np.float32)


def told(
    labels: Sequence[str],
    scores: Scores,
    *,
    wanted: Collection[str] | None = None,
    threshold: float | None = None,
    top_k: int | None = None,
) -> list[dict[str, Any]]:
    """The labels with their scores, the highest first and equal ones in the order of `labels`."""
    found = sorted(
        ((label, score) for label, score in zip(labels, scores.tolist(), strict=True) if not wanted or label in wanted),
        key=lambda pair: -pair[1],
    )
    return [classification(label, score) for label, score in found if threshold is None or score >= threshold][:top_k]


def activation_of(problem: str | None, labels: int) -> Activation | None:
    """How logits become scores, by a model's config; None for a regression, whose number is no score of a class."""
    if problem == "regression":
        return None
    return "sigmoid" if problem == "multi_label_classification" or labels == 1 else "softmax"
