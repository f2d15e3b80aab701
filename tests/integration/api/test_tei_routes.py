"""Paths below a model that are no route of TEI's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.api.conftest import Api


@pytest.mark.parametrize("last", ["nothing", "tokenize"])
async def test_a_path_that_goes_on_after_a_model_names_the_routes_that_there_are(api: Api, last: str) -> None:
    reply = await api.http.post(f"/tei/org/model/{last}", json={"inputs": "a"})
    told = reply.json()
    assert (reply.status_code, told["code"], told["error_type"]) == (404, "route_not_found", "Validation")
    for name in (last, "/tei/org/model", "embed, ", "rerank, ", "info, ", "health"):
        assert name in told["error"]


@pytest.mark.parametrize("path", ["/tei/org/modell", "/tei/org/modell/nothing"])
async def test_a_path_without_a_model_says_that_there_is_no_such_model(api: Api, path: str) -> None:
    reply = await api.http.post(path, json={"inputs": "a"})
    assert (reply.status_code, reply.json()["code"]) == (404, "model_not_found")
