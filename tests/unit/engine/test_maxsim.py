from __future__ import annotations

import numpy as np
import pytest

from engine.maxsim import maxsim

QUERY = np.array([[1, 0], [0, 1]], dtype=np.float32)


def test_each_vector_of_the_query_takes_its_best_match() -> None:
    first = np.array([[0.5, 0.25], [0.75, -1.0]], dtype=np.float32)
    second = np.array([[-1.0, -2.0]], dtype=np.float32)
    assert maxsim(QUERY, [first, second]) == [0.75 + 0.25, -3.0]


def test_a_document_scores_the_same_alone_and_among_others() -> None:
    made = np.random.default_rng(7)
    query = made.normal(size=(5, 16)).astype(np.float32)
    documents = [made.normal(size=(n, 16)).astype(np.float32) for n in (3, 1, 9, 4)]
    expected = [sum(max(float(q @ d) for d in document) for q in query) for document in documents]
    assert maxsim(query, documents) == pytest.approx(expected, abs=1e-4)
    for document, score in zip(documents, expected, strict=True):
        assert maxsim(query, [document]) == pytest.approx([score], abs=1e-4)


def test_nothing_scores_nothing() -> None:
    empty = np.empty((0, 2), dtype=np.float32)
    assert maxsim(QUERY, []) == []
    assert maxsim(QUERY, [empty, QUERY, empty]) == [0.0, 2.0, 0.0]
    assert maxsim(empty, [QUERY]) == [0.0]


def test_half_precision_vectors_are_multiplied_in_single() -> None:
    big = np.array([[300.0, 300.0]], dtype=np.float16)
    assert maxsim(big, [big]) == [180_000.0]


def test_what_is_not_finite_stays_with_its_document() -> None:
    bad = np.array([[np.nan, 1.0]], dtype=np.float32)
    scores = maxsim(QUERY, [QUERY, bad])
    assert scores[0] == 2.0
    assert np.isnan(scores[1])


def test_widths_must_agree() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        maxsim(QUERY, [np.zeros((1, 3), dtype=np.float32)])
