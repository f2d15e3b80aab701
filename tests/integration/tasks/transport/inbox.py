"""A consumer in a test's hands."""

from __future__ import annotations

import time
from typing import Any

import redis
from kombu import Connection, Consumer, Queue

from tasks import keys
from tasks.channel import Channel
from tasks.messages import Submission

LEASE_S = 0.4


class Inbox:
    """A consumer of some queues, and what it was given."""

    def __init__(self, connection: Connection, *queues: str, prefetch: int = 0, **options: Any) -> None:
        self.connection = connection
        self.channel: Channel = connection.channel()
        self.messages: list[Any] = []
        self.consumer = Consumer(
            self.channel,
            [Queue(name, routing_key=name) for name in queues],
            on_message=self.messages.append,
            accept=["json"],
            **options,
        )
        self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    def wait(self, count: int, timeout_s: float = 5.0) -> list[Any]:
        end = time.monotonic() + timeout_s
        while len(self.messages) < count:
            try:
                # In steps: messages are restored when nothing comes.
                self.connection.drain_events(timeout=0.1)
            except TimeoutError:
                assert time.monotonic() < end, f"{len(self.messages)} of {count} messages came"
        return self.messages

    @property
    def ids(self) -> list[str]:
        return [message.headers["id"] for message in self.messages]


def ids(jobs: list[Submission]) -> list[str]:
    return [str(job.id) for job in jobs]


def depth(client: redis.Redis, queue: str = "interactive.xs") -> int:
    """How many messages a queue has; that its lists, their index and the tally agree is checked by the way."""
    known: Any = client.zrange(keys.tenants(queue), 0, -1)
    lists: dict[str, int] = {}
    for tenant in {"", *(name.decode() for name in known)}:
        models: Any = client.zrange(keys.models(queue, tenant), 0, -1)
        assert models or not tenant, f"a tenant without models: {tenant}"
        for model in models:
            name = keys.messages(queue, model.decode(), tenant)
            lists[name] = int(client.llen(name))
    assert all(lists.values()), f"models without messages: {lists}"
    assert {name.decode() for name in client.scan_iter(f"{queue}[:@]*")} == set(lists)
    assert client.llen(keys.tally(queue)) == sum(lists.values())
    return int(client.llen(queue)) + sum(lists.values())
