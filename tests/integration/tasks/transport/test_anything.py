"""Whatever publishers and consumers do, in whatever order: each message is in one place, is seen, leaves nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis
from kombu import Connection

from catalog.terms import Lane
from tasks import keys
from tasks.dispatch import Publisher
from tasks.envelope import envelope, queue_of
from tasks.messages import Submission
from tests.integration.tasks.transport.inbox import Inbox, depth

NewJob = Callable[..., Submission]
Connect = Callable[..., Connection]

QUEUES = ("interactive.xs", "bulk.m")
MODELS = ("a", "b", "org/c:fast", "D" * 200, "no ascii: ä", 'a "quoted" name')
STEPS = 120
SEEDS = range(2)


class Chaos:
    """Publishers and three consumers, of which any may die at any moment, and what must be true of their messages."""

    def __init__(
        self, client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob, rng: random.Random
    ) -> None:
        self.client = client
        self.publisher = publisher
        self.rng = rng
        self.new_job = new_job
        self.connect = connect
        self.open = set[str]()
        self.cancelled = set[str]()
        self.seen = set[str]()
        self.inboxes = [self.inbox() for _ in range(3)]

    def inbox(self) -> Inbox:
        inbox = Inbox(self.connect(), *QUEUES, prefetch=self.rng.choice([0, 1, 4, 16]))
        inbox.channel.opened = float("-inf")
        return inbox

    def job(self) -> Submission:
        job = self.new_job(model=self.rng.choice(MODELS), bucket=self.rng.choice(["xs", "m"]))
        return job if job.bucket == "xs" else self.new_job(model=job.model, bucket="m", lane=Lane.BULK)

    def publish(self) -> None:
        jobs = [self.job() for _ in range(self.rng.randint(1, 12))]
        self.publisher.publish_now(jobs)
        self.open |= {str(job.id) for job in jobs}

    def publish_as_before(self) -> None:
        """As an earlier version does, or a stock publisher: into the plain list."""
        job = self.job()
        self.client.sadd(keys.HELD, str(job.id))
        self.client.lpush(queue_of(job), envelope(job))
        self.open.add(str(job.id))

    def pull(self) -> None:
        inbox = self.rng.choice(self.inboxes)
        inbox.channel.pull()
        self.seen |= set(inbox.ids)

    def take(self) -> tuple[Inbox, list[Any]]:
        """Some of what one consumer holds, which it holds no more."""
        inbox = self.rng.choice(self.inboxes)
        some = self.rng.sample(inbox.messages, self.rng.randint(0, len(inbox.messages)))
        for message in some:
            inbox.messages.remove(message)
        return inbox, some

    def ack(self) -> None:
        _, some = self.take()
        for message in some:
            message.ack()
            self.open.discard(message.delivery_tag)

    def requeue(self) -> None:
        for message in self.take()[1]:
            message.requeue()

    def give_back(self) -> None:
        inbox, some = self.take()
        tags = [message.delivery_tag for message in some]
        inbox.channel.qos.restore(tags, marked=False)
        for tag in tags:
            inbox.channel.qos._quick_ack(tag)

    def close(self) -> None:
        """A consumer ends as it should, and another one comes."""
        inbox = self.rng.choice(self.inboxes)
        inbox.connection.close()
        self.inboxes[self.inboxes.index(inbox)] = self.inbox()

    def die(self) -> None:
        """A consumer dies, so that its leases end; another one comes."""
        inbox = self.rng.choice(self.inboxes)
        for message in inbox.messages:
            self.client.zadd("unacked_index", {message.delivery_tag: 1.0}, xx=True)
        inbox.channel.do_restore = False
        inbox.connection.close()
        self.inboxes[self.inboxes.index(inbox)] = self.inbox()

    def lease_ends(self) -> None:
        self.rng.choice(self.inboxes).channel.qos.restore_visible()

    def renew(self) -> None:
        self.rng.choice(self.inboxes).channel.qos.renew()

    def cancel(self) -> None:
        for tag in self.rng.sample(sorted(self.open), min(len(self.open), 2)):
            self.client.zadd(keys.CANCELLED, {tag: 1e12})
            self.cancelled.add(tag)

    def purge(self) -> None:
        if self.rng.random() < 0.2:
            queue = self.rng.choice(QUEUES)
            self.open -= set(self.waiting(queue))
            self.inboxes[0].channel.queue_purge(queue)

    def waiting(self, queue: str) -> list[str]:
        lists = [name for name in self.client.scan_iter(f"{queue}*") if name != keys.tally(queue).encode()]
        return [_tag(raw) for name in lists for raw in self._all(name)]

    def _all(self, name: bytes) -> list[bytes]:
        found: Any = self.client.lrange(name.decode(), 0, -1)
        return list(found)

    def check(self) -> None:
        """One place for each, and the index and the count of each queue agree with its lists."""
        in_hand: Any = self.client.hkeys("unacked")
        places = Counter(tag.decode() for tag in in_hand)
        for queue in QUEUES:
            waiting = self.waiting(queue)
            assert depth(self.client, queue) == len(waiting)
            places.update(waiting)
        assert set(places.values()) <= {1}
        # A pull drops what is cancelled.
        self.open -= self.cancelled - set(places)
        assert set(places) == self.open
        held: Any = self.client.smembers(keys.HELD)
        assert {tag.decode() for tag in held} == self.open
        assert self.client.zcard("unacked_index") == len(in_hand)


def _tag(raw: bytes) -> str:
    return raw.replace(b'"delivery_tag": "', b'"delivery_tag":"').split(b'"delivery_tag":"')[1].split(b'"')[0].decode()


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_is_in_one_place_and_is_seen_and_nothing_is_left(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob, seed: int
) -> None:
    chaos = Chaos(client, publisher, connect, new_job, random.Random(seed))
    often = [chaos.publish, chaos.pull, chaos.pull, chaos.ack]
    seldom = [chaos.publish_as_before, chaos.requeue, chaos.give_back, chaos.close, chaos.die, chaos.lease_ends]
    for _ in range(STEPS):
        chaos.rng.choice([*often, *seldom, chaos.renew, chaos.cancel, chaos.purge])()
        chaos.check()
    for _ in range(3):
        chaos.die()
    unseen = chaos.open - chaos.seen - chaos.cancelled
    last = Inbox(connect(), *QUEUES)
    last.channel.opened = float("-inf")
    for inbox in chaos.inboxes:
        inbox.connection.close()
    in_hand: Any = client.hkeys("unacked")
    client.zadd("unacked_index", {**dict.fromkeys(in_hand, 1.0), "nobody's": 1.0}, xx=True)
    last.channel.qos.restore_visible()
    while last.channel.pull():
        pass
    assert unseen <= set(last.ids)
    for message in last.messages:
        message.ack()
    left = {name.decode() for name in client.scan_iter() if not name.startswith((b"roost:bell:", b"_kombu."))}
    assert left <= {keys.CANCELLED}
