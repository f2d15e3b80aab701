"""Our transport on a real Valkey: a message is always in one place, whatever becomes of its consumer."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from kombu import Connection, Producer
from kombu.asynchronous import Hub

from deploy.embedded.valkey import ValkeyServer
from tasks import keys
from tasks.dispatch import Publisher
from tasks.envelope import queue_of
from tasks.errors import BrokerUnavailable
from tasks.messages import Submission
from tasks.settings import Settings
from tests.integration.tasks.transport.inbox import LEASE_S, Inbox, depth, ids

NewJob = Callable[..., Submission]
Connect = Callable[..., Connection]

LIST = keys.messages("interactive.xs", "roost/fake")


def test_a_taken_message_is_recorded_until_it_is_acked(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    job = new_job()
    publisher.publish_now([job])
    inbox = Inbox(connect(), queue_of(job))
    (message,) = inbox.wait(1)
    assert client.hkeys("unacked") == client.zrange("unacked_index", 0, -1) == [str(job.id).encode()]
    assert publisher.held_now([job.id]) == {job.id}
    message.ack()
    assert not client.exists("unacked", "unacked_index", keys.HELD)
    assert not depth(client)


def test_many_messages_come_in_one_pull_in_the_order_they_were_sent(
    publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    jobs = [new_job() for _ in range(20)]
    publisher.publish_now(jobs)
    inbox = Inbox(connect(), "interactive.xs")
    inbox.connection.drain_events(timeout=5.0)
    assert inbox.ids == ids(jobs)


def test_a_waiting_consumer_is_woken_by_the_bell(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    inbox = Inbox(connect(), "interactive.xs")
    with pytest.raises(socket.timeout):
        inbox.connection.drain_events(timeout=0.05)
    publisher.publish_now([new_job()])
    inbox.wait(1, timeout_s=0.5)


def test_a_prefetch_count_bounds_what_is_taken(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    publisher.publish_now([new_job() for _ in range(10)])
    inbox = Inbox(connect(), "interactive.xs", prefetch=4)
    assert len(inbox.wait(4)) == 4
    assert depth(client) == 6


def test_queues_take_turns(publisher: Publisher, connect: Connect, new_job: NewJob) -> None:
    publisher.publish_now([new_job(bucket=bucket) for bucket in ("xs", "s") for _ in range(3)])
    inbox = Inbox(connect(), "interactive.xs", "interactive.s", prefetch=1)
    seen = []
    for count in range(1, 7):
        message = inbox.wait(count)[-1]
        seen.append(message.delivery_info["routing_key"])
        message.ack()
    assert sorted(seen[:2]) == sorted(seen[2:4]) == sorted(seen[4:]) == ["interactive.s", "interactive.xs"]


def test_a_consumer_that_leaves_messages_wakes_the_next(
    publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    publisher.publish_now([new_job(), new_job()])
    first = Inbox(connect(), "interactive.xs", prefetch=1)
    first.wait(1)
    Inbox(connect(), "interactive.xs").wait(1, timeout_s=0.5)


def test_cancelled_messages_are_dropped_and_forgotten(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    kept, gone = new_job(), new_job()
    publisher.publish_now([gone, kept])
    client.zadd(keys.CANCELLED, {str(gone.id): 1e12})
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(1)
    assert inbox.ids == ids([kept])
    assert publisher.held_now([kept.id, gone.id]) == {kept.id}
    assert client.hkeys("unacked") == [str(kept.id).encode()]


def test_restored_untouched_a_message_is_what_it_was_and_next_in_line(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    jobs = [new_job() for _ in range(5)]
    publisher.publish_now(jobs)
    before = client.lrange(LIST, 0, -1)
    inbox = Inbox(connect(), "interactive.xs", prefetch=3)
    inbox.wait(3)
    inbox.channel.qos.restore(ids(jobs[:3]), marked=False)
    assert client.lrange(LIST, 0, -1) == before
    assert depth(client) == 5
    assert not client.exists("unacked", "unacked_index")


def test_a_requeued_message_comes_back_marked(publisher: Publisher, connect: Connect, new_job: NewJob) -> None:
    publisher.publish_now([new_job()])
    inbox = Inbox(connect(), "interactive.xs")
    (first,) = inbox.wait(1)
    first.requeue()
    second = inbox.wait(2)[1]
    assert not first.headers.get("redelivered")
    assert second.headers["redelivered"]
    assert second.delivery_info["redelivered"]


def test_a_closed_channel_puts_back_what_it_held(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    jobs = [new_job() for _ in range(3)]
    publisher.publish_now(jobs)
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(3)[0].ack()
    inbox.channel.close()
    again = Inbox(connect(), "interactive.xs")
    again.wait(2)
    assert again.ids == ids(jobs[1:])
    assert client.scard(keys.HELD) == 2


def test_the_messages_of_a_silent_consumer_return_marked(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    jobs = [new_job(), new_job()]
    publisher.publish_now(jobs)
    silent = Inbox(connect(visibility_timeout=LEASE_S), "interactive.xs")
    silent.wait(2)
    other = Inbox(connect(visibility_timeout=LEASE_S, unacked_restore_throttle=1), "interactive.xs")
    other.wait(2)
    assert other.ids == ids(jobs)
    assert all(message.headers["redelivered"] for message in other.messages)


def test_a_message_that_cannot_be_read_does_not_keep_a_silent_consumers_others_from_returning(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    job = new_job()
    publisher.publish_now([job])
    client.lpush("interactive.xs", '{"delivery_tag": "torn", ')
    silent = Inbox(connect(visibility_timeout=LEASE_S), "interactive.xs")
    silent.wait(1)
    assert client.hexists("unacked", "torn")
    other = Inbox(connect(visibility_timeout=LEASE_S, unacked_restore_throttle=1), "interactive.xs")
    other.wait(1)
    assert other.ids == ids([job])
    assert client.hkeys("unacked") == [str(job.id).encode()]


def test_a_consumer_that_renews_keeps_its_messages(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    publisher.publish_now([new_job()])
    holder = Inbox(connect(visibility_timeout=LEASE_S), "interactive.xs")
    holder.wait(1)
    other = Inbox(connect(visibility_timeout=LEASE_S, unacked_restore_throttle=1), "interactive.xs")
    for _ in range(6):
        with pytest.raises(socket.timeout):
            other.connection.drain_events(timeout=LEASE_S / 4)
        holder.channel.qos.renew()
    assert not other.messages


def test_nothing_is_renewed_that_was_acked(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    publisher.publish_now([new_job()])
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(1)[0].ack()
    inbox.channel.qos.renew()
    assert not client.exists("unacked_index")


def test_acks_within_an_event_loop_go_out_together_a_moment_later(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    hub, connection = Hub(), connect()
    publisher.publish_now([new_job() for _ in range(3)])
    inbox = Inbox(connection, "interactive.xs")
    connection.transport.register_with_event_loop(connection.connection, hub)
    turns = hub.create_loop()
    while not inbox.messages:
        next(turns)
    for message in inbox.messages:
        message.ack()
    assert client.hlen("unacked") == 3
    while client.hlen("unacked") == 3:
        next(turns)
    assert client.hlen("unacked") == 0
    hub.close()


def test_an_ack_that_could_not_be_sent_in_its_time_goes_with_the_next_renewal(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    publisher.publish_now([new_job()])
    inbox = Inbox(connect(), "interactive.xs")
    (message,) = inbox.wait(1)
    inbox.channel.qos.acked.append(message.delivery_tag)  # as a flush that the server refused leaves it
    inbox.channel.qos.renew()
    assert not client.exists("unacked", keys.HELD)


def test_a_broker_that_says_nothing_is_given_up_after_ten_ticks(connect: Connect) -> None:
    connection = connect()
    inbox = Inbox(connection, "interactive.xs")
    for _ in range(10):
        connection.transport._watch()
    with pytest.raises(connection.connection_errors, match="no word"):
        connection.transport._watch()
    inbox.channel.silent = 0
    connection.transport._watch()


def test_a_consumer_without_room_is_not_taken_for_deaf(publisher: Publisher, connect: Connect, new_job: NewJob) -> None:
    publisher.publish_now([new_job()])
    connection = connect()
    Inbox(connection, "interactive.xs", prefetch=1).wait(1)
    for _ in range(20):
        connection.transport._watch()


def test_what_needs_no_ack_is_not_recorded(client: redis.Redis, connect: Connect) -> None:
    connection = connect()
    inbox = Inbox(connection, "replies", no_ack=True)
    Producer(connection).publish({"pong": 1}, routing_key="replies", serializer="json")
    inbox.wait(1)
    assert not client.exists("unacked", "unacked_index")


def test_a_bell_of_a_passing_queue_does_not_stay_for_ever(client: redis.Redis, connect: Connect) -> None:
    Producer(connect()).publish({"pong": 1}, routing_key="replies", serializer="json")
    assert client.ttl(keys.bell("replies")) > 0


def test_a_message_that_cannot_be_read_does_not_stop_the_next(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    client.lpush("interactive.xs", "no json", '{"json": "but no message"}')
    job = new_job()
    publisher.publish_now([job])
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(1)
    assert inbox.ids == ids([job])


def test_purging_a_queue_frees_its_ids(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    jobs = [new_job() for _ in range(3)]
    publisher.publish_now(jobs)
    assert connect().channel().queue_purge("interactive.xs") == 3
    assert publisher.held_now([job.id for job in jobs]) == set()
    assert depth(client) == 0


def test_consuming_goes_on_when_the_server_is_full(tmp_path: Path, connect: Connect, new_job: NewJob) -> None:
    server = ValkeyServer(tmp_path / "valkey", tmp_path / "valkey.log")
    server.start()
    with ExitStack() as ending:
        ending.callback(server.stop)
        client = ending.enter_context(redis.Redis.from_url(server.url(scheme="redis")))
        publisher = Publisher(Settings(broker_url=server.url()))
        ending.callback(publisher.close)
        jobs = [new_job(inputs=b"x" * 8000) for _ in range(50)]
        publisher.publish_now(jobs)
        client.config_set("maxmemory", "1mb")
        with pytest.raises(BrokerUnavailable):
            publisher.publish_now([new_job()])
        with Connection(server.url()) as connection:
            inbox = Inbox(connection, "interactive.xs")
            inbox.wait(50)
            inbox.channel.qos.renew()
            inbox.channel.qos.restore(ids(jobs[:1]), marked=False)
            for message in inbox.messages[1:]:
                message.ack()
        assert depth(client) == 1
        assert client.scard(keys.HELD) == 1
