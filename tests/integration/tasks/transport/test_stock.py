"""Stock kombu reads what we write, and we read what it wrote."""

from __future__ import annotations

from collections.abc import Callable

import redis
from kombu import Connection, Producer

from tasks.dispatch import Publisher
from tasks.messages import Submission
from tasks.settings import plain_redis
from tests.integration.tasks.transport.inbox import LEASE_S, Inbox

NewJob = Callable[..., Submission]
Connect = Callable[..., Connection]


def test_a_stock_consumer_reads_our_messages(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob, broker_url: str
) -> None:
    job = new_job()
    publisher.publish_now([job])
    inbox = Inbox(connect(plain_redis(broker_url), priority_steps=[0]), "interactive.xs")
    (message,) = inbox.wait(1)
    assert message.headers["id"] == str(job.id)
    assert len(message.payload[0]) == 1
    message.ack()
    assert not client.exists("unacked")


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
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob, broker_url: str
) -> None:
    publisher.publish_now([new_job()])
    url = plain_redis(broker_url)
    Inbox(connect(url, priority_steps=[0], visibility_timeout=LEASE_S), "interactive.xs").wait(1)
    inbox = Inbox(connect(visibility_timeout=LEASE_S, unacked_restore_throttle=1), "interactive.xs")
    (message,) = inbox.wait(1)
    assert message.headers["redelivered"]
