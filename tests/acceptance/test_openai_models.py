"""The list of models and each of them by OpenAI's official client, sync and async."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.acceptance.fakes import fake
from tests.acceptance.openai_clients import Both

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

NAMED = {"org/owl": fake(), "org/with.dots-and_more": fake()}


def retrieved(name: str) -> Callable[[Any], Any]:
    return lambda c: c.models.retrieve(name)


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models=NAMED)


@pytest.fixture(scope="module")
def clients(stack: Any) -> Iterator[Both]:
    both = Both(stack.url)
    yield both
    both.close()


def test_every_model_of_the_list_can_be_had_by_its_id(clients: Both) -> None:
    listed = {model.id: model for model in clients.sync.models.list()}
    assert {"roost/fake", *NAMED} <= listed.keys()
    for name in ("roost/fake", *NAMED):
        for model in clients.call(retrieved(name)):
            assert (model.id, model.object) == (name, "model")
            assert model.created == listed[name].created <= time.time()
            assert model.owned_by == listed[name].owned_by


def test_a_slash_may_be_encoded_or_not(stack: Any) -> None:
    plain, encoded = (stack.client.get(f"/v1/models/{name}").json() for name in ("roost/fake", "roost%2Ffake"))
    assert plain == encoded
    assert plain["id"] == "roost/fake"


@pytest.mark.parametrize(
    "name", ["org/nobody", "org/../roost/fake/..", "ns:name:more", "名前/模型", "x" * 300, "org/name with blanks"]
)
def test_a_model_that_is_not_there_is_not_found(clients: Both, name: str) -> None:
    for error in clients.refused(retrieved(name), openai.NotFoundError):
        assert error.code == "model_not_found"
