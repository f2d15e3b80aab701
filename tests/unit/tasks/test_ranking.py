from __future__ import annotations

from typing import Any

import pytest

from tasks.ranking import rank

FAILED = {"code": "not_finite", "message": "m", "retryable": False}


def rows() -> list[dict[str, Any]]:
    """Five documents, of which two are the same and two share an id."""
    scores = [0.25, 0.75, 0.25, 0.9, -1.0]
    return [{"id": i, "score": s, "tokens": 3} for i, s in zip(["a", "b", "c", "b", "e"], scores, strict=True)]


def test_the_index_points_into_the_request_and_ties_keep_its_order() -> None:
    listed = rank(rows())
    assert [entry["index"] for entry in listed] == [3, 1, 0, 2, 4]
    assert [entry["rank"] for entry in listed] == [0, 1, 2, 3, 4]
    assert [entry["item_id"] for entry in listed] == ["b", "b", "a", "c", "e"]
    assert [entry["score"] for entry in listed] == [0.9, 0.75, 0.25, 0.25, -1.0]


def test_each_row_gets_its_own_rank_in_the_order_of_the_request() -> None:
    found = rows()
    rank(found)
    assert [row["rank"] for row in found] == [2, 1, 3, 0, 4]


@pytest.mark.parametrize(("top_n", "listed"), [(0, []), (3, [3, 1, 0]), (5, [3, 1, 0, 2, 4]), (99, [3, 1, 0, 2, 4])])
def test_top_n_bounds_the_list_alone(top_n: int, listed: list[int]) -> None:
    found = rows()
    assert [entry["index"] for entry in rank(found, top_n)] == listed
    assert all("rank" in row for row in found)


def test_a_failed_item_has_no_rank_and_moves_no_index() -> None:
    found: list[dict[str, Any]] = [{"score": 0.1}, {"id": "x", "error": FAILED}, {"score": 0.2}]
    assert rank(found) == [{"index": 2, "score": 0.2, "rank": 0}, {"index": 0, "score": 0.1, "rank": 1}]
    assert "rank" not in found[1]


def test_nothing_scored_ranks_nothing() -> None:
    assert rank([{"error": FAILED}]) == []
