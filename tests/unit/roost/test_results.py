from __future__ import annotations

import numpy as np
import pytest

from roost.errors import ItemFailed, NoSuchValue
from roost.results import Result

FAILED: dict[str, object] = {
    "id": "b",
    "error": {"code": "empty_text", "message": "The text is empty.", "param": "items[1]"},
}


def vector(*numbers: float) -> dict[str, object]:
    values = np.array(numbers, np.float32).tobytes()
    return {"dense": {"dims": len(numbers), "dtype": "float32", "values": values}, "tokens": 3}


def result(*rows: dict[str, object], **more: object) -> Result:
    return Result.of({"id": "j1", "model": "acme/owl", "items": list(rows), **more})


def test_the_vectors_of_all_items_are_one_array() -> None:
    found = result(vector(1, 2), vector(3, 4))
    assert found.dense.tolist() == [[1, 2], [3, 4]]
    assert [item.index for item in found] == [0, 1]


def test_a_failed_item_is_among_the_failed_and_its_values_raise_its_error() -> None:
    found = result(vector(1, 2), FAILED)
    assert [item.id for item in found.failed] == ["b"]
    assert found[1].error is not None
    assert found[1].error.code == "empty_text"
    assert found[0].error is None
    with pytest.raises(ItemFailed, match="The text is empty") as caught:
        _ = found[1].dense
    assert caught.value.param == "items[1]"
    with pytest.raises(ItemFailed, match="The text is empty"):
        _ = found.dense


def test_a_value_that_was_not_asked_for_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(NoSuchValue, match="has no 'text'; it has dense, tokens"):
        _ = result(vector(1))[0].text
    assert result(vector(1))[0].get("text") is None


def test_a_result_is_a_sequence_of_its_items() -> None:
    found = result(vector(1), vector(2), vector(3))
    assert len(found) == 3
    assert [item.index for item in found[1:]] == [1, 2]


def test_a_ranking_and_the_texts_are_beside_the_items() -> None:
    assert result({"score": 0.5, "rank": 0}, scores=[{"index": 0, "score": 0.5, "rank": 0}]).scores == [
        {"index": 0, "score": 0.5, "rank": 0}
    ]
    assert result({"text": "a"}, {"text": "b"}).texts == ["a", "b"]
    assert result({"text": "a"}).scores is None


def test_the_plain_form_has_no_digits_that_the_dtype_does_not_have() -> None:
    (item,) = result(vector(0.1, 1e-30)).plain()["items"]
    assert item["dense"]["values"] == [0.1, 1e-30]


def test_the_plain_form_has_numbers_where_msgpack_has_bytes() -> None:
    sparse = {
        "dims": 9,
        "dtype": "float32",
        "indices": np.array([2, 7], np.int32).tobytes(),
        "values": np.array([0.5, 1.5], np.float32).tobytes(),
    }
    rows = {"token_dims": 2, "num_tokens": 2, "dtype": "int8", "scale": 0.1, "values": bytes([1, 2, 3, 4])}
    plain = result(vector(1, 2) | {"sparse": sparse, "multivector": rows}, FAILED).plain()
    first, second = plain["items"]
    assert first["dense"] == {"dims": 2, "dtype": "float32", "values": [1, 2]}
    assert (first["sparse"]["indices"], first["sparse"]["values"]) == ([2, 7], [0.5, 1.5])
    assert first["multivector"]["values"] == [[1, 2], [3, 4]]
    assert second == FAILED
    assert (plain["id"], plain["object"], plain["status"]) == ("j1", "result", "succeeded")
