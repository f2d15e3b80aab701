from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgpack
import orjson
import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from api.body import (
    BodyTimeout,
    BodyTooLarge,
    ClientGone,
    Refusal,
    check_length,
    check_media,
    diagnose,
    diagnose_msgpack,
    loads,
    read,
)
from api.errors import InvalidJson, InvalidMsgpack, UnsupportedMediaType
from api.media import Media
from api.values import unpack


class Pieces:
    """A request body that comes in pieces, and counts how many were asked for."""

    def __init__(self, pieces: Sequence[bytes], *, leaves: bool = False) -> None:
        self._messages: Iterator[Message] = iter(
            [
                {"type": "http.request", "body": piece, "more_body": leaves or n < len(pieces) - 1}
                for n, piece in enumerate(pieces)
            ]
            + [{"type": "http.disconnect"}]
        )
        self.taken = 0

    async def receive(self) -> Message:
        self.taken += 1
        return next(self._messages)


def fault(body: bytes) -> InvalidJson:
    with pytest.raises(orjson.JSONDecodeError) as caught:
        orjson.loads(body)
    return diagnose(body, caught.value)


async def test_a_body_is_put_together_from_its_pieces() -> None:
    assert await read(Pieces([b"ab", b"", b"cd"]).receive, 4) == b"abcd"


async def test_a_body_in_one_piece_may_be_as_long_as_the_limit() -> None:
    assert await read(Pieces([b"abcd"]).receive, 4) == b"abcd"
    with pytest.raises(BodyTooLarge):
        await read(Pieces([b"abcde"]).receive, 4)


async def test_reading_stops_at_the_first_piece_over_the_limit() -> None:
    pieces = Pieces([b"abc"] * 100)
    with pytest.raises(BodyTooLarge, match="4 bytes"):
        await read(pieces.receive, 4)
    assert pieces.taken == 2


async def test_a_last_piece_over_the_limit_counts() -> None:
    with pytest.raises(BodyTooLarge):
        await read(Pieces([b"abc", b"de"]).receive, 4)


async def test_a_client_that_leaves_in_the_middle_is_noticed() -> None:
    with pytest.raises(ClientGone):
        await read(Pieces([b"abc"], leaves=True).receive, 100)


async def test_a_body_that_stalls_is_given_up() -> None:
    pieces = Pieces([b"abc"], leaves=True)

    async def receive() -> Message:
        return await pieces.receive() if pieces.taken == 0 else await asyncio.Future()

    with pytest.raises(BodyTimeout, match=r"0\.01 s") as caught:
        await read(receive, 100, stall_s=0.01)
    assert Refusal(caught.value).status_code == 408


@pytest.mark.parametrize(
    ("length", "fits"), [("4", True), ("5", False), ("2147483648", False), ("99999999999999999999", False)]
)
def test_an_announced_length_is_checked_before_reading(length: str, *, fits: bool) -> None:
    headers = Headers({"content-length": length})
    if fits:
        check_length(headers, 4)
    else:
        with pytest.raises(BodyTooLarge, match="ROOST_MAX_BODY_BYTES"):
            check_length(headers, 4)


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "gzip, identity"])
def test_a_packed_body_is_refused(encoding: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        check_media(Headers({"content-encoding": encoding}))
    assert caught.value.param == "Content-Encoding"


@pytest.mark.parametrize(
    "media", [None, "application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/x+json"]
)
def test_json_is_taken_under_its_usual_names(media: str | None) -> None:
    given = {} if media is None else {"content-type": media}
    assert check_media(Headers({"content-encoding": "identity"} | given)) is Media.JSON


@pytest.mark.parametrize("media", ["application/msgpack", "application/x-msgpack", "Application/vnd.msgpack; v=1"])
def test_msgpack_is_taken_under_its_usual_names(media: str) -> None:
    assert check_media(Headers({"content-type": media})) is Media.MSGPACK


@pytest.mark.parametrize(
    "media", ["multipart/form-data; boundary=x", "text/plain", "application/x-www-form-urlencoded"]
)
def test_another_content_type_is_refused(media: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        check_media(Headers({"content-type": media}))
    assert caught.value.param == "Content-Type"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"options": {"threshold": NaN}}', "options.threshold"),
        (b'{"deadline_s": Infinity}', "deadline_s"),
        (b'{"deadline_s": -Infinity}', "deadline_s"),
        (b'{"deadline_s": 1e400}', "deadline_s"),
        (b'{"items": ["a", "\\ud83d"]}', "items[1]"),
        (b'{"items": ["a", "b", "c", {"text": "\\ude00"}]}', "items[3].text"),
        (b'{"items": ["a", {"text": "\xff"}]}', "items[1].text"),
        (b'{"model": "\\ud83d"}', "model"),
        (b'{"options": {"\\ud83d": 1}}', "options"),
        (b"NaN", "body"),
    ],
)
def test_what_json_cannot_hold_is_named(body: bytes, param: str) -> None:
    error = fault(body)
    assert error.param == param
    assert repr(param) in error.message
    assert error.message.isascii()


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"a":1}x', b"{'a':1}", b'{"a":1}{"b":2}', b"[" * 100_000, b"\xef\xbb\xbf{}"]
)
def test_what_is_no_json_is_told_with_its_place(body: bytes) -> None:
    error = fault(body)
    assert error.param == "body"
    assert "at byte" in error.message


def test_a_proper_pair_of_surrogates_is_text() -> None:
    assert orjson.loads(b'["\\ud83d\\ude00"]') == ["\N{GRINNING FACE}"]


def msgpack_fault(body: bytes) -> InvalidMsgpack:
    with pytest.raises((ValueError, msgpack.UnpackException)) as caught:
        unpack(body)
    return diagnose_msgpack(body, caught.value)


def test_a_msgpack_body_may_hold_bytes() -> None:
    assert unpack(msgpack.packb({"items": [{"document": {"data": b"\x00\xff"}}]})) == {
        "items": [{"document": {"data": b"\x00\xff"}}]
    }


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not valid msgpack"),
        (b"\xc1", "not valid msgpack"),
        (b"\x81\xa1a", "not valid msgpack"),
        (b"\xdd\xff\xff\xff\xff", "not valid msgpack"),
        (b"\xdf\xff\xff\xff\xff", "not valid msgpack"),
        (b"\xc6\xff\xff\xff\xffabc", "not valid msgpack"),
        (b"\x80\x80", "more after its end"),
        (b"\x91" * 100_000, "nested too deep"),
        (b"\x81\x01\x02", "not valid msgpack"),
        (msgpack.packb({"a": msgpack.ExtType(5, b"x")}), "extension type 5"),
    ],
)
def test_what_is_no_msgpack_is_told(body: bytes, says: str) -> None:
    error = msgpack_fault(body)
    assert (error.code, error.param) == ("invalid_msgpack", "body")
    assert says in error.message
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ({"items": ["a", {"text": b"\xed\xa0\xbd"}]}, "items[1].text"),
        ({"model": b"\xff"}, "model"),
        ({"tags": ["a", b"\xed\xb8\x80"]}, "tags[1]"),
    ],
)
def test_a_text_in_msgpack_that_is_no_utf_8_is_named(value: object, param: str) -> None:
    # The old form of msgpack writes bytes as texts.
    error = msgpack_fault(msgpack.packb(value, use_bin_type=False))
    assert error.param == param
    assert repr(param) in error.message


async def test_a_refusal_is_sent_whole_before_the_rest_is_thrown_away() -> None:
    pieces = Pieces([b"x" * 1000] * 5)
    sent: list[tuple[Message, int]] = []

    async def send(message: Message) -> None:
        sent.append((message, pieces.taken))

    await Refusal(BodyTooLarge("too large"))({}, pieces.receive, send)
    head, body, end = (message for message, _ in sent)
    assert head["status"] == 413
    assert (b"connection", b"close") in head["headers"]
    assert orjson.loads(body["body"])["error"]["code"] == "limit_exceeded"
    assert body["more_body"]
    assert not end["more_body"]
    assert [taken for _, taken in sent] == [0, 0, 5]


async def test_a_refusal_ends_when_the_client_leaves() -> None:
    pieces = Pieces([b"x"] * 2, leaves=True)

    async def send(message: Message) -> None:
        pass

    await Refusal(BodyTooLarge("too large"))({}, pieces.receive, send)
    assert pieces.taken == 3


@pytest.mark.parametrize("body", [b"[" + b"[]," * 200_000 + b"[]]", b"[" + b"[]," * 200_000])
def test_the_collector_runs_on_after_a_large_body_read_or_not(body: bytes) -> None:
    with suppress(orjson.JSONDecodeError):
        loads(body)
    assert gc.isenabled()
