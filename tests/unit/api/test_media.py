from __future__ import annotations

from datetime import UTC, datetime

import msgpack
import numpy as np
import orjson
import pytest

from api.errors import NotAcceptable
from api.media import Media, dumps, dumps_in_pieces, media_of


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        (None, Media.JSON),
        ("", Media.JSON),
        ("*/*", Media.JSON),
        ("application/json", Media.JSON),
        ("application/msgpack", Media.MSGPACK),
        ("application/x-msgpack", Media.MSGPACK),
        ("text/html, */*;q=0.8", Media.JSON),
        ("application/json;q=0.5, application/msgpack", Media.MSGPACK),
        ("application/msgpack;q=0.5, application/json;q=0.9", Media.JSON),
        ("APPLICATION/MSGPACK", Media.MSGPACK),
        ("application/msgpack;q=0, */*", Media.JSON),
    ],
)
def test_the_best_form_that_we_have_is_chosen(accept: str | None, media: Media) -> None:
    assert media_of(accept) is media


@pytest.mark.parametrize("accept", ["text/html", "image/png, text/plain", "application/json;q=0", "nonsense", "a;q=x"])
def test_a_form_that_we_have_not_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptable):
        media_of(accept)


def test_times_are_the_same_in_both_forms() -> None:
    value = {"at": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC), "none": None, "tags": ("a",)}
    wanted = {"at": "2026-01-02T03:04:05.678000Z", "none": None, "tags": ["a"]}
    assert orjson.loads(dumps(value)) == wanted
    assert msgpack.unpackb(dumps(value, Media.MSGPACK)) == wanted


def test_numpy_numbers_and_arrays_are_the_same_in_both_forms() -> None:
    value = {"n": np.float32(0.5), "a": np.array([1, 2], dtype=np.int32)}
    wanted = {"n": 0.5, "a": [1, 2]}
    assert orjson.loads(dumps(value)) == wanted
    assert msgpack.unpackb(dumps(value, Media.MSGPACK)) == wanted


def test_a_number_that_json_has_not_becomes_null() -> None:
    assert dumps({"a": float("nan"), "b": float("inf")}) == b'{"a":null,"b":null}'


@pytest.mark.parametrize(
    "value",
    [
        [[0.5, 1.0], [2.0]],
        {"object": "list", "data": [{"embedding": np.array([0.5, 1.0], "<f4")}], "usage": {"tokens": 3}, "none": []},
        "a text",
    ],
)
@pytest.mark.parametrize("media", Media)
def test_what_is_written_in_pieces_has_the_same_bytes(value: object, media: Media) -> None:
    assert dumps_in_pieces(value, media) == dumps(value, media)
