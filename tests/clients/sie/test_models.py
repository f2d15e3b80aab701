"""`list_models` and `get_model` of the peer's client."""

from __future__ import annotations

import pytest
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk.client.errors import RequestError


def test_models_are_listed(url: str) -> None:
    with SIEClient(url) as client:
        models = {model["name"]: model for model in client.list_models()}
    assert {"fake/vectors", "fake/writer", "sentence-transformers/all-MiniLM-L6-v2"} <= models.keys()
    minilm = models["sentence-transformers/all-MiniLM-L6-v2"]
    assert (minilm["outputs"], minilm["dims"], minilm["inputs"]) == (["dense"], {"dense": 384}, ["text"])
    assert models["fake/writer"]["capabilities"]["streaming"]


@pytest.mark.parametrize("name", ["fake/vectors", "fake__vectors", "fake%2Fvectors"])
def test_a_model_is_found_by_any_spelling(url: str, name: str) -> None:
    with SIEClient(url) as client:
        info = client.get_model(name)
    assert (info["name"], info["dims"]["dense"]) == ("fake/vectors", 8)
    assert info["state"] in {"available", "loading", "loaded"}
    assert info["profiles"]["default"]["is_default"]


def test_an_unknown_model_is_a_request_error_with_the_nearest(url: str) -> None:
    with SIEClient(url) as client, pytest.raises(RequestError, match="Did you mean 'fake/vectors'") as caught:
        client.get_model("fake/vectros")
    assert (caught.value.status_code, caught.value.code) == (404, "MODEL_NOT_FOUND")


async def test_the_async_client_sees_the_same(url: str) -> None:
    async with SIEAsyncClient(url) as client:
        listed = await client.list_models()
        one = await client.get_model("fake/writer")
    assert one["name"] in {model["name"] for model in listed}
