"""A client, a publisher and connections to one empty database of a real Valkey."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from kombu import Connection

from tasks import transport
from tasks.dispatch import Publisher
from tasks.settings import Settings, plain_redis

Connect = Callable[..., Connection]


@pytest.fixture
def client(broker_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(plain_redis(broker_url)) as client:
        yield client


@pytest.fixture
def publisher(broker_url: str) -> Iterator[Publisher]:
    publisher = Publisher(Settings(broker_url=broker_url))
    yield publisher
    publisher.close()


@pytest.fixture
def connect(broker_url: str) -> Iterator[Connect]:
    transport.register()
    with ExitStack() as stack:

        def connect(url: str = broker_url, **options: Any) -> Connection:
            return stack.enter_context(Connection(url, transport_options=options))

        yield connect
