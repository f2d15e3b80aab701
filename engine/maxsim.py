"""Late interaction: each vector of a query finds its best match in a document; the sum of these is the score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


def maxsim(query: NDArray[Any], documents: Sequence[NDArray[Any]]) -> list[float]:
    """The score of each document: for each of the query's vectors its highest dot product, summed up.

    `query` is [vectors, width], each document [vectors, width]. All documents are multiplied at once, so nothing is
    padded. A document without a vector scores 0. A score is NaN or infinite where a vector is; raises ValueError where
    widths differ.
    """
    asked: Matrix = np.asarray(query, dtype=np.float32)
    for document in documents:
        if document.ndim != 2 or asked.ndim != 2 or document.shape[1] != asked.shape[1]:
            raise ValueError(f"vectors of shape {document.shape} do not fit a query of shape {asked.shape}")
    filled = [index for index, document in enumerate(documents) if len(document)]
    scores = [0.0] * len(documents)
    if not filled or not len(asked):
        return scores
    lengths = [len(documents[index]) for index in filled]
    rows: Matrix = np.concatenate([np.asarray(documents[index], dtype=np.float32) for index in filled])
    starts = np.cumsum([0, *lengths[:-1]])
    with np.errstate(invalid="ignore", over="ignore"):
        best = np.maximum.reduceat(asked @ rows.T, starts, axis=1)
        for index, score in zip(filled, best.sum(axis=0, dtype=np.float64).tolist(), strict=True):
            scores[index] = score
    return scores
