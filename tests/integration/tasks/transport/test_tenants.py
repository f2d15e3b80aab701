"""Tenants take turns in a queue, whatever each has in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import redis

from tasks import keys
from tasks.dispatch import Publisher
from tasks.messages import Submission
from tests.integration.tasks.transport.inbox import depth
from tests.integration.tasks.transport.test_models import QUEUE, Broker

NewJob = Callable[..., Submission]
Publish = Callable[..., list[str]]


@pytest.fixture
def broker(client: redis.Redis) -> Broker:
    return Broker(client)


@pytest.fixture
def publish(publisher: Publisher, new_job: NewJob) -> Publish:
    def publish(caller: str, count: int = 1, model: str = "m") -> list[str]:
        jobs = [new_job(caller=caller, model=model) for _ in range(count)]
        publisher.publish_now(jobs)
        return [str(job.id) for job in jobs]

    return publish


@pytest.mark.parametrize(("many", "few"), [("flood", "small"), ("default", "small"), ("flood", "default")])
def test_one_job_is_in_the_next_pull_however_many_another_tenant_has(
    broker: Broker, publish: Publish, many: str, few: str
) -> None:
    flood = publish(many, 2000)
    broker.pull(64)
    (one,) = publish(few)
    taken = broker.pull(64)
    assert one in taken
    assert [tag for tag in taken if tag != one] == flood[64 : 64 + 63]
    assert depth(broker.client) == 2001 - 128


def test_fifty_tenants_get_alike_of_each_pull_whatever_their_models(broker: Broker, publish: Publish) -> None:
    owner: dict[str, int] = {}
    for n in range(50):
        for model in [f"m{m}" for m in range(1 + n % 10)]:
            owner |= dict.fromkeys(publish(f"tenant-{n}", 20, model), n)
    found = Counter(owner[tag] for _ in range(10) for tag in broker.pull(100))
    assert sum(found.values()) == 1000
    assert set(found.values()) == {20}


def test_the_models_of_a_tenant_share_its_part(broker: Broker, publish: Publish) -> None:
    one, two, other = publish("acme", 50, "a"), publish("acme", 50, "b"), publish("other", 50, "a")
    taken = set(broker.pull(40))
    assert [len(taken & set(tags)) for tags in (one, two, other)] == [10, 10, 20]


def test_the_models_that_a_worker_has_are_pulled_of_all_tenants(broker: Broker, publish: Publish) -> None:
    wanted = [*publish("acme", 3, "here"), *publish("default", 3, "here"), *publish("other", 3, "here")]
    publish("acme", 3, "elsewhere")
    taken = broker.pull(9, "here", named=True)
    assert sorted(taken) == sorted(wanted)
    assert depth(broker.client) == 3


def test_what_a_dead_consumer_held_goes_back_to_its_tenant(broker: Broker, publish: Publish) -> None:
    ours, theirs = publish("acme", 3), publish("other", 3)
    taken = broker.pull(6)
    broker.restore(*reversed(taken))
    assert [broker.client.llen(keys.messages(QUEUE, "m", tenant)) for tenant in ("acme", "other", "")] == [3, 3, 0]
    assert depth(broker.client) == 6
    again = broker.pull(6)
    assert [tag for tag in again if tag in ours] == ours
    assert [tag for tag in again if tag in theirs] == theirs


def test_nothing_is_left_of_tenants_that_have_nothing(broker: Broker, publish: Publish) -> None:
    for tenant in ("acme", "default", "other"):
        publish(tenant, 2)
    broker.ack(*broker.pull(6))
    left = {key.decode() for key in broker.client.scan_iter(f"*{QUEUE}*")}
    assert {key for key in left if not key.startswith("roost:bell:")} == set()
