from __future__ import annotations

import time
from functools import reduce
from typing import Any, cast

import pytest
from pydantic import ValidationError

from catalog.errors import InvalidOption
from tasks.errors import InvalidRequest, LimitExceeded
from tasks.items import ItemRequest
from tasks.request import JobRequest, parse_request

PLAIN: dict[str, Any] = {"verb": "encode", "model": "m", "items": ["a"]}


def refused(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse_request({**PLAIN, **fields}, 100)
    return caught.value


def test_a_request_is_read_with_its_defaults() -> None:
    request = parse_request({**PLAIN, "items": ["a", {"id": "b", "text": "c"}]}, 100)
    assert request == JobRequest(verb="encode", model="m", items=["a", ItemRequest(id="b", text="c")])  # type: ignore[arg-type]
    assert (request.lane, request.priority, request.options, request.tags) == ("interactive", 5, {}, [])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"items": []}, "items"),
        ({"items": "abc"}, "items"),
        ({"items": {"text": "a"}}, "items"),
        ({"items": [[]]}, "items[0]"),
        ({"items": [["a"]]}, "items[0]"),
        ({"items": ["a", 3]}, "items[1]"),
        ({"items": ["a", None]}, "items[1]"),
        ({"items": ["a", {"id": "x"}]}, "items[1].text"),
        ({"items": ["a", "b", "c", {"text": 4}]}, "items[3].text"),
        ({"items": [{"text": "a", "id": 3}]}, "items[0].id"),
        ({"items": [{"text": "a", "id": "x\0y"}]}, "items[0].id"),
        ({"items": [{"text": "a", "id": "x\ny"}]}, "items[0].id"),
        ({"items": [{"text": "a", "id": "x" * 257}]}, "items[0].id"),
        ({"verb": 3}, "verb"),
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"options": []}, "options"),
        ({"priority": "5"}, "priority"),
        ({"priority": 10}, "priority"),
        ({"priority": True}, "priority"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"deadline_s": "NaN"}, "deadline_s"),
        ({"tags": "x"}, "tags"),
        ({"tags": ["ok", "a\0"]}, "tags[1]"),
        ({"tags": [""]}, "tags[0]"),
        ({"tags": ["x" * 129]}, "tags[0]"),
        ({"tags": ["x"] * 33}, "tags"),
        ({"retention_s": 59}, "retention_s"),
        ({"retention_s": 61.5}, "retention_s"),
        ({"webhook": "https://example.org/"}, "webhook"),
        ({"webhook": {}}, "webhook.url"),
        ({"webhook": {"url": 3}}, "webhook.url"),
        ({"webhook": {"url": "u", "secret": ""}}, "webhook.secret"),
        ({"webhook": {"url": "u", "inline": "yes"}}, "webhook.inline"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert error.param == param
    assert repr(param) in error.message


@pytest.mark.parametrize("body", [None, [], "text", 3, True])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(InvalidRequest, match="JSON object"):
        parse_request(body, 100)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InvalidRequest, match="'items' is missing") as caught:
        parse_request({"verb": "encode", "model": "m"}, 100)
    assert caught.value.param == "items"


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"modle": "x"}, "'model'"),
        ({"items": [{"text": "a", "idd": "x"}]}, "'id'"),
        ({"verb": "encod"}, "'encode'"),
        ({"lane": "bulky"}, "'bulk'"),
    ],
)
def test_a_near_miss_gets_the_right_name(fields: dict[str, Any], hint: str) -> None:
    assert f"did you mean {hint}?" in refused(**fields).message


def test_an_unknown_field_without_a_near_name_is_refused_all_the_same() -> None:
    assert refused(zzzzzz=1).message == "Unknown field 'zzzzzz'."


def test_too_many_items_are_refused_before_they_are_read() -> None:
    with pytest.raises(LimitExceeded, match="at most 100 items; this one has 101"):
        parse_request({**PLAIN, "items": [object()] * 101}, 100)


def test_ids_may_repeat_and_may_be_empty() -> None:
    items = [{"id": "", "text": "a"}, {"id": "", "text": "b"}]
    assert [item.id for item in parse_request({**PLAIN, "items": items}, 100).items] == ["", ""]  # type: ignore[union-attr]


def test_no_text_of_the_caller_is_in_a_message() -> None:
    secret = "my secret text"
    for items in ([{"text": [secret]}], [[secret]], [{"text": "a", "id": [secret]}]):
        assert secret not in refused(items=items).message


MANY = {f"k{n}": n for n in range(300_000)}
"""As many unknown fields as a body can hold, and a little less; one by one they take seconds to be refused."""
NESTED: Any = reduce(lambda inner, _: [inner], range(1000), cast("Any", "a"))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (MANY, "k0"),
        ({"items": ["a", {"text": "a", **MANY}]}, "items[1].k0"),
        ({"options": MANY}, "options.k0"),
        ({"verb": "score", "options": MANY}, "options.k0"),
        ({"tags": [1] * 300_000}, "tags"),
        ({"verb": MANY}, "verb"),
        ({"verb": NESTED}, "verb"),
        ({"lane": NESTED}, "lane"),
        ({"items": [NESTED]}, "items[0]"),
        ({"tags": NESTED}, "tags[0]"),
        ({"model": MANY}, "model"),
        ({"x" * 10_000_000: 1}, "x" * 200),
    ],
)
def test_a_huge_body_is_refused_at_its_first_fault(fields: dict[str, Any], param: str) -> None:
    start = time.process_time()
    with pytest.raises((InvalidRequest, InvalidOption)) as caught:
        parse_request({**PLAIN, **fields}, 100)
    assert time.process_time() - start < 0.1
    assert caught.value.param == param
    assert len(caught.value.message) < 500


def test_the_first_wrong_label_ends_the_look_at_them() -> None:
    with pytest.raises(ValidationError) as caught:
        JobRequest.model_validate({"verb": "extract", "model": "m", "items": ["a"], "labels": ["a", *[0] * 1000]})
    assert caught.value.error_count() == 1
