"""Items of every kind: what reaches the adapter, and how what is wrong with them is named."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from tasks.errors import InvalidRequest, LimitExceeded, TaskError
from tasks.items import MAX_IMAGE_BYTES, ItemRequest, as_payload, texts_of
from tasks.request import parse_request

PNG = b"\x89PNG and so on"
SENT = base64.b64encode(PNG).decode()
MANY = {f"k{n}": n for n in range(300_000)}


def payload(**fields: Any) -> dict[str, Any]:
    return as_payload(ItemRequest.model_validate(fields))


def refused(item: object, kind: type[TaskError] = InvalidRequest) -> TaskError:
    with pytest.raises(kind) as caught:
        parse_request({"verb": "extract", "model": "m", "items": ["a", item]}, 10)
    return caught.value


@pytest.mark.parametrize("data", [PNG, SENT])
def test_files_reach_the_adapter_as_bytes_however_they_came(data: object) -> None:
    found = payload(
        images=[{"data": data, "format": "png"}, {"data": data}],
        audio={"data": data, "sample_rate": 16_000},
        document={"data": data, "name": "a.csv"},
    )
    assert found == {
        "images": [{"data": PNG, "format": "png"}, {"data": PNG}],
        "audio": {"data": PNG, "sample_rate": 16_000},
        "document": {"data": PNG, "name": "a.csv"},
    }


def test_images_of_a_conversation_are_taken_out_of_it_in_order() -> None:
    parts = [{"type": "image", "image": {"data": SENT}}, {"type": "text", "text": "What is it?"}]
    found = payload(id="x", messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}])
    assert found == {
        "id": "x",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
        ],
        "images": [{"data": PNG}],
    }
    assert texts_of(found) == ["Be brief.", "What is it?"]


def test_a_text_and_an_image_may_be_one_item() -> None:
    assert payload(text="a cat", images=[{"data": SENT}]) == {"text": "a cat", "images": [{"data": PNG}]}


TURN = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("item", "param", "says"),
    [
        ({}, "items[1].text", "is missing"),
        ({"images": []}, "items[1].images", "at least 1"),
        ({"images": [{"data": SENT}] * 17}, "items[1].images", "at most 16"),
        ({"images": [{}]}, "items[1].images[0].data", "is missing"),
        ({"images": [{"data": "%%%"}]}, "items[1].images[0].data", "base64"),
        ({"images": [{"data": SENT[:-1]}]}, "items[1].images[0].data", "base64"),
        ({"images": [{"data": ""}]}, "items[1].images[0].data", "at least 1"),
        ({"images": [{"data": 3}]}, "items[1].images[0].data", "bytes"),
        ({"images": [{"data": "https://a.b/c.png"}]}, "items[1].images[0].data", "give it as 'url'"),
        ({"images": [{"data": f"data:image/png;base64,{SENT}"}]}, "items[1].images[0].data", "as base64"),
        ({"images": ["https://a.b/c.png"]}, "items[1].images[0]", "or 'url'"),
        ({"images": [{"image_url": {"url": "x"}}]}, "items[1].images[0].image_url", "under 'data'"),
        ({"images": [{"data": SENT, "formt": "png"}]}, "items[1].images[0].formt", "'format'"),
        ({"images": [{"data": SENT, "format": "p\0"}]}, "items[1].images[0].format", "control"),
        ({"document": "https://a.b/c.pdf"}, "items[1].document", "as bytes in msgpack"),
        ({"document": {"uri": "https://a.b/c.pdf"}}, "items[1].document.uri", "a URL under 'url'"),
        ({"document": {"url": "https://a.b/c.pdf", "data": SENT}}, "items[1].document.url", "besides 'data'"),
        ({"document": {"url": f"data:application/pdf;base64,{SENT}"}}, "items[1].document.url", "under 'data'"),
        ({"document": {"url": ""}}, "items[1].document.url", "at least 1"),
        ({"document": {"data": None, "url": None}}, "items[1].document.data", "is missing"),
        ({"audio": {"data": SENT, "sample_rate": 1}}, "items[1].audio.sample_rate", "1000"),
        ({"messages": []}, "items[1].messages", "at least 1"),
        ({"messages": [TURN] * 1001}, "items[1].messages", "at most 1000"),
        ({"messages": [TURN], "text": "a"}, "items[1].messages", "alone"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "items[1].messages[0].role", "'user'"),
        ({"messages": [{"role": "user", "content": 3}]}, "items[1].messages[0].content", "list of parts"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "items[1].messages[0].content[0]",
            '"image": {"data"',
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "image": {"data": "%"}}]}]},
            "items[1].messages[0].content[0].image.data",
            "base64",
        ),
        ({"messages": [{**TURN, "tool_calls": [{"a": float("nan")}]}]}, "items[1].messages[0].tool_calls[0]", "finite"),
        ({"messages": [{**TURN, "tool_calls": [{"a": b"x"}]}]}, "items[1].messages[0].tool_calls[0]", "texts"),
        ({"multivector": [[1.0], [1.0, 2.0]]}, "items[1].multivector", "one length"),
        ({"multivector": [[float("inf")]]}, "items[1].multivector", "finite"),
        ({"multivector": [[1.0]], "text": "a"}, "items[1].multivector", "alone"),
    ],
)
def test_what_is_wrong_with_an_item_is_named(item: object, param: str, says: str) -> None:
    error = refused(item)
    assert error.param == param
    assert repr(param) in error.message or "Unknown field" in error.message
    assert says in error.message


def test_an_image_over_the_limit_is_refused_as_such() -> None:
    error = refused({"images": [{"data": b"x" * (MAX_IMAGE_BYTES + 1)}]}, LimitExceeded)
    assert error.param == "items[1].images[0].data"
    assert str(MAX_IMAGE_BYTES) in error.message


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"images": [{"data": SENT, **MANY}]}, "items[1].images[0].k0"),
        ({"messages": [MANY] * 10}, "items[1].messages[0].k0"),
        ({"messages": [{"role": "user", "content": [3] * 300_000}]}, "items[1].messages[0].content"),
        ({"messages": [{**TURN, "tool_calls": [{"a": list(range(3_000_000))}]}]}, "items[1].messages[0].tool_calls[0]"),
        ({"messages": [{**TURN, "tool_calls": [3] * 300_000}]}, "items[1].messages[0].tool_calls"),
        ({"text": "a", "entities": [3] * 300_000}, "items[1].entities"),
        ({"text": "a", "entities": [MANY]}, "items[1].entities[0].k0"),
        ({"multivector": [3] * 3_000_000}, "items[1].multivector"),
    ],
)
def test_a_huge_item_is_refused_at_its_first_fault(item: object, param: str) -> None:
    start = time.process_time()
    error = refused(item)
    assert time.process_time() - start < 0.1
    assert error.param == param
    assert len(error.message) < 500
