"""A sweep on a real database and broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import redis

from tasks import keys, notices, sweeper
from tasks.db import Database
from tasks.dispatch import Publisher
from tasks.errors import BrokerUnavailable
from tasks.jobs import Job, State
from tasks.messages import Completion, Submission
from tasks.settings import Settings, plain_redis
from tasks.store import claim, finish, read
from tasks.sweeper import Rules, Sweeper, Swept

NewJob = Callable[..., Submission]
Row = Callable[[Submission], Job]
RULES = Rules(lost_after=timedelta(seconds=5), max_attempts=3)
PAST = time.time() - 1000


@pytest.fixture(scope="module", autouse=True)
def _now() -> None:
    """Tests are collected long before they run, and the sweeper's clock goes on."""
    global PAST
    PAST = time.time() - 1000


@pytest.fixture
def settings(database_url: str, broker_url: str) -> Settings:
    return Settings(database_url=database_url, broker_url=broker_url)


@pytest.fixture
def publisher(settings: Settings) -> Iterator[Publisher]:
    publisher = Publisher(settings)
    yield publisher
    publisher.close()


@pytest.fixture
def woken() -> list[notices.Change]:
    return []


@pytest.fixture
def sweeping(database: Database, publisher: Publisher, woken: list[notices.Change]) -> Sweeper:
    return Sweeper(database, publisher, woken.extend, RULES)


class Blind:
    """A broker that takes messages and cannot say what it holds."""

    def __init__(self) -> None:
        self.sent: list[Submission] = []

    def publish_now(self, jobs: Sequence[Submission]) -> None:
        self.sent += jobs

    def held_now(self, ids: Sequence[UUID]) -> set[UUID] | None:
        return None


class Away:
    """A broker that cannot be reached."""

    def publish_now(self, jobs: Sequence[Submission]) -> None:
        raise BrokerUnavailable

    def held_now(self, ids: Sequence[UUID]) -> set[UUID] | None:
        raise BrokerUnavailable


def test_a_committed_job_without_a_message_is_sent(sweeping: Sweeper, publisher: Publisher, stored_job: NewJob) -> None:
    job = stored_job(created=PAST)

    assert sweeping.sweep() == Swept(looked=1, sent=1)

    assert publisher.held_now([job.id]) == {job.id}
    assert sweeping.sweep() == Swept()


def test_a_job_whose_message_exists_is_not_sent_again(
    sweeping: Sweeper, publisher: Publisher, stored_job: NewJob
) -> None:
    publisher.publish_now([stored_job(created=PAST)])

    assert sweeping.sweep() == Swept(looked=1, sent=0)


def test_a_young_job_is_given_time_to_be_published(sweeping: Sweeper, stored_job: NewJob) -> None:
    stored_job()

    assert sweeping.sweep() == Swept()


def test_a_message_lost_twice_is_sent_twice(
    sweeping: Sweeper, publisher: Publisher, stored_job: NewJob, settings: Settings
) -> None:
    stored_job(created=PAST)
    assert sweeping.sweep().sent == 1
    with redis.Redis.from_url(plain_redis(settings.broker_url)) as client:
        client.flushdb()

    later = datetime.now(UTC) + sweeper.LOOK_AGAIN + timedelta(seconds=1)
    again = Sweeper(sweeping.database, publisher, sweeping.wake, RULES, clock=lambda: later)

    assert again.sweep().sent == 1


def test_a_requeued_job_is_sent_when_its_time_comes(
    sweeping: Sweeper, database: Database, stored_job: NewJob, ending: Callable[..., Completion], publisher: Publisher
) -> None:
    due, later = stored_job(), stored_job()
    database.run(
        finish.finish,
        [ending(due, State.QUEUED, run_at=time.time() - 1), ending(later, State.QUEUED, run_at=time.time() + 60)],
    )

    assert sweeping.sweep() == Swept(looked=1, sent=1)
    assert publisher.held_now([due.id, later.id]) == {due.id}


def test_what_a_dead_worker_ran_is_taken_back_sent_and_told(
    sweeping: Sweeper, database: Database, stored_job: NewJob, publisher: Publisher, woken: list[notices.Change]
) -> None:
    job, last = stored_job(), stored_job(attempt=3)
    over = datetime.now(UTC) - timedelta(seconds=1)
    database.run(claim.start, [(job.id, 1), (last.id, 1)], "dead", over)

    swept = sweeping.sweep()

    assert swept == Swept(requeued=1, given_up=1, looked=1, sent=1)
    assert publisher.held_now([job.id, last.id]) == {job.id}
    assert {(change.id, change.state, change.version) for change in woken} == {
        (job.id, "queued", 3),
        (last.id, "failed", 3),
    }


def test_a_passed_deadline_is_told_to_who_waits(
    sweeping: Sweeper, stored_job: NewJob, woken: list[notices.Change]
) -> None:
    job = stored_job(deadline=PAST)

    assert sweeping.sweep() == Swept(expired=1)
    assert woken == [notices.Change(job.id, "expired", 2)]


def test_old_jobs_are_deleted(
    sweeping: Sweeper, database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    old = stored_job(retention_s=60)
    database.run(finish.finish, [ending(old, finished=PAST)])

    assert sweeping.sweep() == Swept(deleted=1)


def test_more_than_a_page_of_everything_is_done_in_one_sweep(
    sweeping: Sweeper, database: Database, stored_job: NewJob, ending: Callable[..., Completion], publisher: Publisher
) -> None:
    for _ in range(5):
        stored_job(created=PAST)
        stored_job(deadline=PAST)
    old = [stored_job(retention_s=60) for _ in range(5)]
    database.run(finish.finish, [ending(job, finished=PAST) for job in old])

    small = Sweeper(database, publisher, sweeping.wake, RULES, page=2)

    assert small.sweep() == Swept(expired=5, looked=5, sent=5, deleted=5)


def test_a_long_queue_is_looked_through_over_several_sweeps(
    sweeping: Sweeper, database: Database, stored_job: NewJob, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "MOST_PAGES", 1)
    jobs = [stored_job(created=PAST) for _ in range(5)]
    publisher.publish_now(jobs[:4])
    small = Sweeper(database, publisher, sweeping.wake, RULES, page=2)

    assert [small.sweep() for _ in range(4)] == [
        Swept(looked=2),
        Swept(looked=2),
        Swept(looked=1, sent=1),
        Swept(looked=2),
    ]


def test_a_second_sweep_at_the_same_time_returns_at_once(
    database_url: str, publisher: Publisher, stored_job: NewJob
) -> None:
    stored_job(deadline=PAST)
    other = Database(database_url)
    inner: list[Swept] = []

    def sweep_beside(_: object) -> None:
        inner.append(Sweeper(other, publisher, lambda _: None, RULES).sweep())

    outer = Database(database_url)
    assert Sweeper(outer, publisher, sweep_beside, RULES).sweep().ran
    assert inner == [Swept(ran=False)]
    assert Sweeper(other, publisher, lambda _: None, RULES).sweep().ran
    outer.close()
    other.close()


def test_a_broker_that_is_away_holds_up_nothing_else(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    stored_job(created=PAST)
    database.run(finish.finish, [ending(stored_job(retention_s=60), finished=PAST)])

    swept = Sweeper(database, Away(), lambda _: None, RULES).sweep()

    assert swept == Swept(looked=1, deleted=1, broker_away=True)


def test_a_blind_broker_is_sent_a_job_again_by_its_age(database: Database, stored_job: NewJob) -> None:
    old, young = stored_job(created=PAST), stored_job(created=time.time() - 60)
    broker = Blind()
    sweeping = Sweeper(database, broker, lambda _: None, RULES)

    assert sweeping.sweep() == Swept(looked=2, sent=1)
    assert sweeping.sweep() == Swept(looked=1)

    assert [job.id for job in broker.sent] == [old.id]
    assert broker.sent[0].checked
    assert young.id not in {job.id for job in broker.sent}


def test_a_blind_broker_with_a_long_queue_is_given_more_time(
    database: Database, stored_job: NewJob, ending: Callable[..., Completion]
) -> None:
    slow = stored_job(created=PAST)
    database.run(finish.finish, [ending(slow, started=PAST + 500)])
    stored_job(created=PAST)  # 1,000 s old, and half of all jobs wait 500 s

    assert Sweeper(database, Blind(), lambda _: None, RULES).sweep() == Swept(looked=1)


def test_a_whole_sweep_from_settings_wakes_waiters(settings: Settings, stored_job: NewJob, database: Database) -> None:
    job = stored_job(deadline=PAST)
    with redis.Redis.from_url(settings.redis_url) as client, client.pubsub() as heard:
        heard.subscribe(keys.CHANGES)
        assert heard.get_message(timeout=5) is not None

        assert sweeper.run(settings) == Swept(expired=1)

        while True:
            message = heard.get_message(timeout=5)
            assert message is not None
            changes = notices.unpack_changes(message["data"])
            if changes == [notices.Change(job.id, "expired", 2)]:
                break
    assert database.run(read.jobs, [job.id])[job.id].state is State.EXPIRED
