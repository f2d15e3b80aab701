"""What a body becomes is bounded before it is."""

from __future__ import annotations

import msgpack
import pytest

from api.body import loads
from api.values import MOST_CONTAINERS, MOST_VALUES, unpack
from tasks.errors import LimitExceeded


def array(count: int, inside: bytes) -> bytes:
    """A msgpack list of so many times the same."""
    return b"\xdd" + count.to_bytes(4, "big") + inside * count


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b",".join([b"[]"] * (MOST_CONTAINERS + 1)) + b"]",
        b"[" + b",".join([b"1"] * (MOST_VALUES + 2)) + b"]",
        b'{"a":"\\"[[","x":[' + b"{}," * MOST_CONTAINERS + b"{}]}",
    ],
    ids=["lists", "numbers", "objects"],
)
def test_too_many_values_of_json_are_refused_before_they_are_read(body: bytes) -> None:
    with pytest.raises(LimitExceeded, match="send several requests"):
        loads(body)


@pytest.mark.parametrize(
    "body",
    [
        array(MOST_CONTAINERS + 1, b"\x80"),
        array(2, array(MOST_CONTAINERS // 2 + 1, b"\x90")),
        array(2, array(MOST_VALUES // 2 + 1, b"\x01")),
        b"\xdd" + (MOST_VALUES + 1).to_bytes(4, "big") + b"\x01" * 300_000,
    ],
    ids=["maps", "nested", "numbers", "announced"],
)
def test_too_many_values_of_msgpack_are_refused_while_they_are_read(body: bytes) -> None:
    with pytest.raises(LimitExceeded, match="send several requests"):
        unpack(body)


@pytest.mark.parametrize("said", ["[{,", '\\"[{,', "\\\\[{,"])
def test_what_a_text_says_does_not_count(said: str) -> None:
    text = said * (MOST_VALUES // 2 + 1)
    body = msgpack.packb({"text": text})
    assert unpack(body) == {"text": text}
    assert loads(b'{"text":"' + text.replace("\\", "\\\\").replace('"', '\\"').encode() + b'"}') == {"text": text}


def test_a_large_body_within_the_bounds_is_read_as_it_is() -> None:
    value = {"items": [{"text": "a"}] * 50_000, "numbers": [0.5] * 200_000}
    assert unpack(msgpack.packb(value)) == value
