from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import msgpack
import numpy as np
import pytest

from api.compat.sie import chunks
from api.compat.sie.chunks import CHUNK_ITEMS, ResultNotFound
from tasks.results import pack_rows

ID = UUID(int=7)
KEY = b"k" * 32


def dense(*values: float) -> dict[str, Any]:
    data = np.array(values, "<f4").tobytes()
    return {"dims": len(values), "dtype": "float32", "values": data}


def test_a_link_has_all_that_it_is_signed_with() -> None:
    link = urlsplit(chunks.link("http://here:1", KEY, ID, 3, 99))
    query = parse_qs(link.query)
    assert (link.netloc, link.path) == ("here:1", f"/v1/jobs/{ID}/chunks/3")
    assert query == {"expires": ["99"], "signature": [chunks.signature(KEY, str(ID), "3", "99")]}


@pytest.mark.parametrize(
    "other", [(b"x" * 32, str(ID), "3", "99"), (KEY, str(UUID(int=8)), "3", "99"), (KEY, str(ID), "39", "9")]
)
def test_a_signature_is_of_one_key_and_one_link(other: tuple[bytes, str, str, str]) -> None:
    assert chunks.signature(*other) != chunks.signature(KEY, str(ID), "3", "99")


@pytest.mark.parametrize(
    ("items", "sizes"),
    [(1, [1]), (CHUNK_ITEMS, [CHUNK_ITEMS]), (CHUNK_ITEMS + 1, [CHUNK_ITEMS, 1])],
)
def test_every_item_is_in_one_chunk(items: int, sizes: list[int]) -> None:
    assert [chunks.size(items, seq) for seq in range(chunks.count(items))] == sizes
    result = pack_rows([{"tokens": 1}] * items)
    told = [msgpack.unpackb(chunks.packed(ID, result, seq)) for seq in range(len(sizes))]
    assert [one["item_index"] for chunk in told for one in chunk] == list(range(items))
    with pytest.raises(ResultNotFound):
        chunks.packed(ID, result, len(sizes))


def test_an_item_carries_what_its_verb_gives_or_why_it_gives_nothing() -> None:
    error = {"code": "empty_text", "message": "It is empty.", "retryable": False}
    rows: list[dict[str, Any]] = [{"id": "a", "tokens": 4, "dense": dense(1.0, 2.0)}, {"error": error}]
    good, bad = msgpack.unpackb(chunks.packed(ID, pack_rows(rows), 0))
    assert (good["id"], good["units"], good["success"], good["error"]) == ("a", 4, True, None)
    values = msgpack.unpackb(good["result_msgpack"])["dense"]["values"]
    assert np.frombuffer(values[b"data"], values[b"type"]).tolist() == [1.0, 2.0]
    assert (bad["success"], bad["error_code"], bad["error"]) == (False, "INVALID_INPUT", "It is empty.")
    assert (bad["result_msgpack"], bad["id"], bad["work_item_id"]) == (None, None, f"{ID}/1")
