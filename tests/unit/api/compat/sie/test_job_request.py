from __future__ import annotations

from typing import Any

import pytest

from api.compat.sie.job_request import ConnectorRefused, is_sie_job, to_native
from catalog.errors import RoostError
from tasks.request import parse_request

BODY: dict[str, Any] = {"operation": "encode", "model": "org/model", "items": ["a"]}


def native(**more: Any) -> dict[str, Any]:
    raw = dict(to_native({**BODY, **more}).raw)
    parse_request(raw, 10)
    return raw


@pytest.mark.parametrize(
    ("body", "theirs"),
    [(BODY, True), ({"verb": "encode"}, False), ({"verb": "encode", "operation": "encode"}, False), ([], False)],
)
def test_a_body_tells_whose_it_is(body: object, theirs: bool) -> None:
    assert is_sie_job(body) == theirs


def test_a_job_goes_to_the_bulk_lane() -> None:
    assert native() == {"verb": "encode", "model": "org/model", "items": ["a"], "lane": "bulk", "options": {}}


@pytest.mark.parametrize(
    ("more", "field", "want"),
    [
        ({"output_types": ["dense"]}, "options", {"output_types": ["dense"]}),
        ({"options": {"output_dtype": "binary"}}, "options", {"output_dtype": "ubinary"}),
        ({"options": {"profile": "small"}}, "model", "org/model:small"),
        ({"items": [{"id": 0, "text": "a"}]}, "items", [{"id": "0", "text": "a"}]),
        ({"items": [{"text": "a", "metadata": {"k": 1}}]}, "items", [{"text": "a"}]),
        ({"operation": "score", "options": {"query": "q"}}, "query", "q"),
        ({"operation": "extract", "options": {"labels": ["x"]}}, "options", {"labels": ["x"]}),
        ({"operation": "generate", "options": {"max_new_tokens": 4}}, "options", {"max_tokens": 4, "raw": True}),
        (
            {"operation": "generate", "options": {"grammar": {"regex": "a+"}}},
            "options",
            {"grammar": {"regex": "a+"}, "raw": True},
        ),
    ],
)
def test_what_is_asked_in_the_peers_words(more: dict[str, Any], field: str, want: object) -> None:
    assert native(**more)[field] == want


@pytest.mark.parametrize("name", ["src", "sink", "connection", "execution", "field_map", "output_field", "when"])
def test_a_connector_is_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(ConnectorRefused, match="inline") as caught:
        to_native({**BODY, name: "x"})
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "m", "operation": None}, "operation"),
        ({"operation": "encode"}, "model"),
        ({**BODY, "option": {}}, "option"),
        ({**BODY, "options": 3}, "options"),
        ({**BODY, "model": "org/model:a", "options": {"profile": "b"}}, "options.profile"),
    ],
)
def test_a_fault_names_the_peers_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RoostError) as caught:
        to_native(body)
    assert caught.value.param == param
