"""OpenAI's official client, sync and async, on a running stack: each call is made with both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import APIStatusError, AsyncOpenAI, OpenAI

PATIENCE_S = 150.0
"""Longer than a call is held."""


def sync_client(url: str, **options: Any) -> OpenAI:
    """A client as its users make one, but that it tries once."""
    return OpenAI(**{**_options(url), **options})


def async_client(url: str, **options: Any) -> AsyncOpenAI:
    """The same, to be awaited."""
    return AsyncOpenAI(**{**_options(url), **options})


class Both:
    """The same call by both clients, one after the other."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sync = sync_client(url)

    def close(self) -> None:
        self.sync.close()

    def call(self, call: Callable[[Any], Any]) -> list[Any]:
        """What each client gave, the sync one first. `call` gets a client."""
        return [call(self.sync), asyncio.run(self._awaited(call))]

    def refused(self, call: Callable[[Any], Any], kind: type[APIStatusError] = openai.BadRequestError) -> list[Any]:
        """The error that each client raised, which must be of this class and in OpenAI's envelope."""
        with pytest.raises(kind) as first:
            call(self.sync)
        with pytest.raises(kind) as second:
            asyncio.run(self._awaited(call))
        for error in (first.value, second.value):
            body: Any = error.body
            assert {"message", "type", "param", "code"} <= body.keys()
        return [first.value, second.value]

    async def _awaited(self, call: Callable[[Any], Any]) -> Any:
        async with async_client(self.url, base_url=f"{self.url}/v1/") as client:
            return await call(client)


def _options(url: str) -> dict[str, Any]:
    return {"base_url": f"{url}/v1", "api_key": "any", "max_retries": 0, "timeout": PATIENCE_S}
