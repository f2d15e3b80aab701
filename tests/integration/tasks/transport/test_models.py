"""A queue's messages by model: how models share a pull, what names none, and what workers hear of each other."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis
from kombu import Connection

from tasks import keys
from tasks.dispatch import Publisher
from tasks.envelope import envelope
from tasks.held_scripts import ACK, PURGE, RESTORE, restore_arguments
from tasks.messages import Submission
from tasks.plan import PULL_MOST, Plan, Section, Source
from tasks.pull_script import (
    PLACE,
    PULL,
    SURVEY,
    message_commands,
    pull_arguments,
    pull_keys,
    survey_keys,
)
from tasks.script_parts import MODELS_MOST
from tasks.survey import Place, Survey, Waiting, pack_place, read_survey
from tests.integration.tasks.transport.inbox import Inbox, depth

NewJob = Callable[..., Submission]
Connect = Callable[..., Connection]

QUEUE = "interactive.xs"
UNACKED = ("unacked", "unacked_index")


class Broker:
    """The scripts alone."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    def pull(self, jobs: int, *models: str, named: bool = False, ring: Sequence[str] = ()) -> list[str]:
        """The tags taken from QUEUE: of these models if `named`, else of all."""
        plan = Plan((Section((Source(QUEUE, models=models if named else None),), 1.0, jobs),), 0.0)
        taken = self.client.register_script(PULL)(keys=pull_keys(plan, *UNACKED, ring), args=pull_arguments(plan))
        return [message.split(b'"delivery_tag":"')[1].split(b'"')[0].decode() for message in taken[1::2]]

    def restore(self, *tags: str) -> None:
        self.client.register_script(RESTORE)(keys=UNACKED, args=restore_arguments(tags))

    def ack(self, *tags: str) -> None:
        self.client.register_script(ACK)(keys=[*UNACKED, keys.HELD], args=tags)

    def tags(self, command: str, key: str) -> set[str]:
        """What a hash or set has, as text."""
        found: Any = self.client.execute_command(command, key)  # type: ignore[no-untyped-call]
        return {tag.decode() for tag in found}

    def survey(self, *queues: str, worker: str = "me") -> Survey:
        return read_survey(queues, *self.client.register_script(SURVEY)(keys=survey_keys(queues), args=[worker]))

    def place(self, worker: str, data: bytes, lease_s: float = 60.0) -> int:
        return int(self.client.register_script(PLACE)(keys=[keys.PLACES], args=[worker, lease_s, data]))


@pytest.fixture
def broker(client: redis.Redis) -> Broker:
    return Broker(client)


@pytest.fixture
def publish(publisher: Publisher, new_job: NewJob) -> Callable[..., list[str]]:
    def publish(model: str, count: int = 1) -> list[str]:
        jobs = [new_job(model=model) for _ in range(count)]
        publisher.publish_now(jobs)
        return [str(job.id) for job in jobs]

    return publish


Publish = Callable[..., list[str]]


def test_models_share_what_a_pull_takes_each_in_its_order(broker: Broker, publish: Publish) -> None:
    hot, cold, rare = publish("hot", 50), publish("cold", 10), publish("rare", 1)
    taken = broker.pull(21)
    assert [tag for tag in taken if tag in hot] == hot[:10]
    assert [tag for tag in taken if tag in cold] == cold
    assert set(rare) <= set(taken)
    assert depth(broker.client) == 40


def test_the_model_without_a_turn_for_longest_is_first(broker: Broker, publish: Publish) -> None:
    tags = {model: publish(model, 3) for model in ("a", "b", "c")}
    taken = [broker.pull(1)[0] for _ in range(9)]
    assert taken == [tags[model][turn] for turn in range(3) for model in ("a", "b", "c")]


def test_only_the_models_named_are_pulled_in_their_order(broker: Broker, publish: Publish) -> None:
    tags = {model: publish(model, 2) for model in ("a", "b", "c")}
    assert broker.pull(9, "c", "a", "gone", named=True) == [*tags["c"], *tags["a"]]
    assert broker.pull(9) == tags["b"]


def test_messages_of_an_earlier_version_are_pulled_among_the_others(
    broker: Broker, publish: Publish, new_job: NewJob
) -> None:
    old = [new_job(model="hot") for _ in range(3)]
    broker.client.lpush(QUEUE, *(envelope(job) for job in old))
    new = publish("hot", 3)
    taken = broker.pull(4)
    assert sorted(taken) == sorted([str(old[0].id), str(old[1].id), *new[:2]])
    assert broker.pull(9, "", named=True) == [str(old[2].id)]
    assert depth(broker.client) == 1


def test_a_message_of_an_earlier_version_goes_back_to_its_model(broker: Broker, new_job: NewJob) -> None:
    job = new_job(model="org/model:fast")
    broker.client.lpush(QUEUE, envelope(job))
    broker.restore(*broker.pull(1))
    assert broker.client.llen(keys.messages(QUEUE, "org/model:fast")) == depth(broker.client) == 1


def test_restored_messages_are_next_of_their_model(broker: Broker, publish: Publish) -> None:
    tags = publish("a", 3)
    first = broker.pull(2)
    broker.restore(*reversed(first))
    assert broker.pull(9) == tags
    broker.restore(*reversed(tags))
    assert depth(broker.client) == 3


def test_a_publisher_whose_clock_is_fast_does_not_put_its_model_behind_for_as_long(
    broker: Broker, publish: Publish, new_job: NewJob
) -> None:
    job = new_job(model="early")
    for command in message_commands(QUEUE, "early", [envelope(job)], now=4e9):
        broker.client.execute_command(*command)  # type: ignore[no-untyped-call]
    publish("other", 100)
    broker.pull(1)
    assert broker.survey(QUEUE).waiting[1].unserved_s >= 0
    assert str(job.id) in broker.pull(1) + broker.pull(1)


def test_a_bell_rings_again_only_for_what_was_left_of_the_models_asked_for(broker: Broker, publish: Publish) -> None:
    publish("mine", 2)
    publish("theirs", 2)
    broker.client.delete(keys.bell(QUEUE))
    broker.pull(9, "mine", named=True)
    assert not broker.client.exists(keys.bell(QUEUE))
    broker.pull(1, "theirs", named=True, ring=[keys.own_bell("home")])
    assert broker.client.llen(keys.bell(QUEUE)) == broker.client.llen(keys.own_bell("home")) == 1


@pytest.mark.parametrize("named", [False, True])
def test_a_bell_rings_again_for_models_beyond_those_that_one_pull_looks_at(
    broker: Broker, publisher: Publisher, new_job: NewJob, named: bool
) -> None:
    """Sent in one go, as by the sweeper after the broker lost its data, so with one ring for all of them."""
    publisher.publish_now([new_job(model=f"m{number}") for number in range(MODELS_MOST + 10)])
    pulled = 0
    while broker.client.rpop(keys.bell(QUEUE)) is not None:
        models = [one.model for one in broker.survey(QUEUE).waiting] if named else []
        pulled += len(broker.pull(PULL_MOST, *models, named=named))
    assert pulled == MODELS_MOST + 10


def test_a_count_that_another_program_left_wrong_is_mended_when_the_models_are_gone(
    broker: Broker, publish: Publish
) -> None:
    publish("a", 3)
    publish("b", 1)
    broker.client.delete(keys.messages(QUEUE, "a"))
    broker.pull(9)
    assert broker.client.keys(f"*{QUEUE}*") == [keys.bell(QUEUE).encode()]


@pytest.mark.parametrize("data", ["", "soon", "4e9", "99999999999"])
def test_a_place_that_says_nothing_of_its_end_is_of_nobody(broker: Broker, publish: Publish, data: str) -> None:
    broker.client.hset(keys.PLACES, "strange", data)
    publish("a", 1)
    survey = broker.survey(QUEUE)
    assert (survey.places, len(survey.waiting)) == ((), 1)
    broker.place("me", pack_place({}, 0.0))


def test_an_own_bell_keeps_one_token_and_not_for_ever(broker: Broker) -> None:
    for _ in range(3):
        broker.pull(0, ring=[keys.own_bell("home")])
    assert broker.client.llen(keys.own_bell("home")) == 1
    assert broker.client.ttl(keys.own_bell("home")) > 0


def test_a_survey_tells_what_waits_and_how_long_it_had_no_turn(
    broker: Broker, publish: Publish, new_job: NewJob
) -> None:
    publish("a", 3)
    broker.client.lpush("bulk.m", envelope(new_job()))
    waiting = broker.survey(QUEUE, "bulk.m", "bulk.xs").waiting
    assert [(one.queue, one.model, one.count) for one in waiting] == [(QUEUE, "a", 3), ("bulk.m", "", 1)]
    assert all(0.0 <= one.unserved_s < 5.0 for one in waiting)


def test_workers_see_each_other_but_not_themselves_until_their_lease_ends(broker: Broker) -> None:
    data = pack_place({"a": 1.0}, 5.0)
    assert broker.place("me", data) == 0
    assert broker.place("other", data) == 1
    assert broker.survey().places == (Place("other", {"a": 1.0}, 5.0),)
    assert broker.place("other", data, lease_s=-1.0) == 1
    assert broker.survey().places == ()
    assert broker.client.hkeys(keys.PLACES) == [b"me"]
    assert broker.place("me", b"") == 0
    assert not broker.client.exists(keys.PLACES)


def test_purging_takes_the_messages_of_all_models(
    broker: Broker, publish: Publish, connect: Connect, new_job: NewJob
) -> None:
    publish("a", 3)
    publish("b", 600)
    broker.client.lpush(QUEUE, envelope(new_job()))
    channel = connect().channel()
    assert channel._size(QUEUE) == 604
    assert channel.queue_purge(QUEUE) == 604
    assert not channel._has_queue(QUEUE)
    assert broker.client.keys(f"*{QUEUE}*") == [keys.bell(QUEUE).encode()]
    assert not broker.client.exists(keys.HELD)


def test_a_cancelled_message_leaves_no_trace(broker: Broker, publish: Publish) -> None:
    gone, kept = publish("a", 1), publish("a", 1)
    broker.client.zadd(keys.CANCELLED, {gone[0]: 1e12})
    assert broker.pull(9) == kept
    broker.ack(*kept)
    assert not depth(broker.client)
    assert not broker.client.exists(keys.HELD, *UNACKED)


def test_a_consumer_takes_all_models_of_a_queue(publish: Publish, connect: Connect, client: redis.Redis) -> None:
    tags = [*publish("a", 2), *publish("b", 2)]
    inbox = Inbox(connect(), QUEUE)
    inbox.wait(4)
    assert set(inbox.ids) == set(tags)
    inbox.channel.close()
    assert depth(client) == 4


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_done_each_message_is_in_one_place_and_the_books_agree(
    broker: Broker, publish: Publish, seed: int
) -> None:
    rng, models = random.Random(seed), ["a", "b", "org/c:fast", "d"]
    waiting, in_hand = set[str](), set[str]()
    for _ in range(80):
        match rng.choice(["publish", "pull", "pull named", "restore", "ack"]):
            case "publish":
                waiting |= set(publish(rng.choice(models), rng.randint(1, 5)))
            case "pull":
                taken = broker.pull(rng.randint(1, 6))
                assert set(taken) <= waiting
                waiting -= set(taken)
                in_hand |= set(taken)
            case "pull named":
                taken = broker.pull(rng.randint(1, 6), *rng.sample(models, 2), named=True)
                assert set(taken) <= waiting
                waiting -= set(taken)
                in_hand |= set(taken)
            case "restore" if in_hand:
                back = rng.sample(sorted(in_hand), rng.randint(1, len(in_hand)))
                broker.restore(*back)
                waiting |= set(back)
                in_hand -= set(back)
            case "ack" if in_hand:
                done = rng.sample(sorted(in_hand), rng.randint(1, len(in_hand)))
                broker.ack(*done)
                in_hand -= set(done)
        assert depth(broker.client) == len(waiting)
        assert broker.tags("hkeys", "unacked") == in_hand
        assert broker.tags("smembers", keys.HELD) == waiting | in_hand
    assert Waiting(QUEUE, "gone", 0) not in broker.survey(QUEUE).waiting
    assert broker.client.register_script(PURGE)(keys=[QUEUE, keys.HELD], args=[]) == len(waiting)
