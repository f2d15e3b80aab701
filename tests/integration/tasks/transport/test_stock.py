"""We read what stock kombu wrote, and each restores what the other left."""

from __future__ import annotations

from collections.abc import Callable

import redis
from kombu import Connection, Producer

from tasks.dispatch import Publisher
from tasks.envelope import envelope
from tasks.messages import Submission
from tasks.settings import plain_redis
from tests.integration.tasks.transport.inbox import LEASE_S, Inbox, depth

NewJob = Callable[..., Submission]
Connect = Callable[..., Connection]


def test_one_of_ours_reads_what_a_stock_publisher_sent_beside_ours(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob, broker_url: str
) -> None:
    job = new_job()
    publisher.publish_now([job])
    stock = Producer(connect(plain_redis(broker_url), priority_steps=[0]))
    stock.publish({}, routing_key="interactive.xs", headers={"id": "x", "model": "roost/fake"})
    assert depth(client) == 2
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(2)
    assert set(inbox.ids) == {"x", str(job.id)}
    for message in inbox.messages:
        message.ack()
    assert not client.exists("unacked")
    assert not depth(client)


def test_a_stock_consumer_restores_what_one_of_ours_left(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob, broker_url: str
) -> None:
    job = new_job()
    publisher.publish_now([job])
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(1)
    stock = connect(plain_redis(broker_url), priority_steps=[0])
    stock.channel().qos.restore_by_tag(str(job.id))
    again = inbox.wait(2)[1]
    assert again.headers["redelivered"]


def test_a_stock_publisher_is_heard_within_a_second_or_so(connect: Connect, broker_url: str) -> None:
    inbox = Inbox(connect(), "interactive.xs")
    Producer(connect(plain_redis(broker_url))).publish({}, routing_key="interactive.xs", headers={"id": "x"})
    inbox.wait(1, timeout_s=2.0)


def test_one_of_ours_restores_what_a_stock_consumer_left(
    client: redis.Redis, connect: Connect, new_job: NewJob, broker_url: str
) -> None:
    client.lpush("interactive.xs", envelope(new_job()))
    url = plain_redis(broker_url)
    Inbox(connect(url, priority_steps=[0], visibility_timeout=LEASE_S), "interactive.xs").wait(1)
    inbox = Inbox(connect(visibility_timeout=LEASE_S, unacked_restore_throttle=1), "interactive.xs")
    (message,) = inbox.wait(1)
    assert message.headers["redelivered"]
