"""Bodies in msgpack: the same job as in JSON, and bounded in the same ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from api.schemas import ErrorReply, JobWithResult

if TYPE_CHECKING:
    import httpx

    from tests.integration.api.conftest import Api, Consumer

PLAIN: dict[str, Any] = {"verb": "encode", "model": "org/model", "items": ["cat", {"id": "b", "text": "dog\0"}]}
LIMIT = 1 << 20


async def post(api: Api, raw: bytes, **headers: str) -> httpx.Response:
    return await api.http.post("/v1/jobs", content=raw, headers={"content-type": "application/msgpack", **headers})


def told(response: httpx.Response, status: int = 422) -> tuple[str, str | None]:
    assert response.status_code == status, response.text
    error = ErrorReply.model_validate(response.json()).error
    return error.code, error.param


async def test_a_job_is_the_same_in_either_form(api: Api, consumer: Consumer) -> None:
    packed = await post(api, msgpack.packb(PLAIN), prefer="wait=10")
    plain = await api.http.post("/v1/jobs", json=PLAIN, headers={"Prefer": "wait=10"})
    one, other = (JobWithResult.model_validate(response.json()) for response in (packed, plain))
    assert one.status == "succeeded"
    assert one.result is not None
    assert other.result is not None
    assert one.result.items == other.result.items
    first, second = consumer.taken
    assert first.inputs == second.inputs


async def test_one_key_leads_from_either_form_to_one_job(api: Api) -> None:
    first = await post(api, msgpack.packb(PLAIN), **{"idempotency-key": "k"})
    again = await api.http.post("/v1/jobs", json=PLAIN, headers={"Idempotency-Key": "k"})
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    ("raw", "code", "param"),
    [
        (b"", "invalid_msgpack", "body"),
        (b"\x91" * 100_000, "invalid_msgpack", "body"),
        (b"\xdd\xff\xff\xff\xff" + bytes(1000), "invalid_msgpack", "body"),
        (msgpack.packb(PLAIN) + b"\xc0", "invalid_msgpack", "body"),
        (msgpack.packb({**PLAIN, "model": msgpack.ExtType(3, b"x")}), "invalid_msgpack", "body"),
        (msgpack.packb({**PLAIN, "items": ["a", b"\xed\xa0\xbd"]}, use_bin_type=False), "invalid_msgpack", "items[1]"),
        (msgpack.packb([PLAIN]), "invalid_request", None),
        (msgpack.packb({b"verb": "encode"}), "invalid_request", "b'verb'"),
        (msgpack.packb({**PLAIN, "items": [b"cat"]}), "invalid_request", "items[0]"),
        (msgpack.packb({**PLAIN, "deadline_s": float("nan")}), "invalid_request", "deadline_s"),
        (msgpack.packb({**PLAIN, "deadline_s": float("inf")}), "invalid_request", "deadline_s"),
        (msgpack.packb({**PLAIN, "options": {"dimensions": float("nan")}}), "invalid_option", "options.dimensions"),
        (msgpack.packb({**PLAIN, "options": {"instruction": b"a"}}), "invalid_option", "options.instruction"),
        (
            msgpack.packb({**PLAIN, "verb": "extract", "output_schema": {"a": float("nan")}}),
            "invalid_request",
            "output_schema",
        ),
        (msgpack.packb({**PLAIN, "verb": "extract", "output_schema": {"a": b"x"}}), "invalid_request", "output_schema"),
        (
            msgpack.packb({**PLAIN, "items": [{"images": [{"data": b""}]}]}),
            "invalid_request",
            "items[0].images[0].data",
        ),
    ],
)
async def test_what_is_wrong_is_named(api: Api, raw: bytes, code: str, param: str | None) -> None:
    assert told(await post(api, raw)) == (code, param)


@pytest.mark.parametrize("extra", [0, 1])
async def test_the_limit_is_exact(api: Api, extra: int) -> None:
    body = {**PLAIN, "items": [{"document": {"data": b""}}]}
    room = LIMIT - len(msgpack.packb(body)) - 3 + extra
    body["items"] = [{"document": {"data": bytes(room)}}]
    raw = msgpack.packb(body)
    assert len(raw) == LIMIT + extra
    # Within the limit it is read, and the model takes no documents.
    assert told(await post(api, raw), 413 if extra else 422)[1] == ("body" if extra else "items[0]")


async def test_a_packed_msgpack_body_is_not_unpacked(api: Api) -> None:
    response = await post(api, msgpack.packb(PLAIN), **{"content-encoding": "gzip"})
    assert told(response, 415) == ("unsupported_media_type", "Content-Encoding")
