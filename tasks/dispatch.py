"""Sends the messages of jobs, says which still have one, and calls back those of cancelled jobs.

Over `roost://` one publish is one `MULTI` for all jobs given: the messages, the ids in the held set, a ring of each
queue's bell. Over another transport it is kombu's own publishing, in a thread, and nothing is known of what the broker
holds. What the broker cannot do just now is BrokerUnavailable, whether it is away, full, or not to be written to.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from uuid import UUID

import redis
import redis.asyncio
from celery import Celery
from kombu.exceptions import KombuError
from kombu.pools import producers
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from tasks import celery, keys
from tasks.envelope import argument, envelope, headers, queue_of
from tasks.errors import BrokerUnavailable
from tasks.messages import TASK_NAME, Submission
from tasks.pull_script import bell_commands, message_commands
from tasks.script_parts import Command
from tasks.settings import Settings, plain_redis

log = logging.getLogger(__name__)

CANCEL_KEPT_S = 86_400
"""How long a cancelled job's message is recognised; one that waits longer runs, and its row refuses the result."""

_TIMEOUT_S = 5.0

# With these notifications on, as they are by default, a pool hands out connections that died while they were idle.
_NOTICE_DEAD_CONNECTIONS = MaintNotificationsConfig(enabled=False)


def publish_commands(jobs: Sequence[Submission], now: float) -> list[Command]:
    """What makes these jobs' messages, in one transaction, grouped by queue, tenant and model. Pure."""
    queues: dict[str, dict[tuple[str, str], list[bytes]]] = {}
    for job in jobs:
        lists = queues.setdefault(queue_of(job), {})
        lists.setdefault((keys.tenant_of(job.caller), job.model), []).append(envelope(job))
    commands: list[Command] = [("SADD", keys.HELD, *(str(job.id) for job in jobs))]
    # A job with a history may have been cancelled and tried again; the old cancel must not stop its new message.
    again = [str(job.id) for job in jobs if job.fence > 1 or job.checked]
    if again:
        commands.append(("ZREM", keys.CANCELLED, *again))
    for queue, lists in queues.items():
        for (tenant, model), messages in lists.items():
            commands += message_commands(queue, model, messages, now, tenant)
        commands += bell_commands(queue)
    return commands


def cancel_commands(ids: Sequence[UUID], now: float) -> list[Command]:
    """What makes a worker drop these jobs' messages as it meets them, and forgets older such orders. Pure."""
    members = [part for id_ in ids for part in (now + CANCEL_KEPT_S, str(id_))]
    return [("ZREMRANGEBYSCORE", keys.CANCELLED, "-inf", now), ("ZADD", keys.CANCELLED, *members)]


class Publisher:
    """Safe to share between coroutines, and between threads by its blocking twins, the methods that end in `_now`.

    Every method raises BrokerUnavailable when the broker cannot do it; a publish may then have happened or not.
    Connects when first used. Close it with `aclose`, or with `close` if only the blocking twins were used.
    """

    def __init__(self, settings: Settings, app: Celery | None = None) -> None:
        self._settings = settings
        self._given = app
        self._doorbell = settings.doorbell

    async def publish(self, jobs: Sequence[Submission]) -> None:
        """Send one message for each job, all or none."""
        if not jobs:
            return
        if not self._doorbell:
            await asyncio.to_thread(self.publish_now, jobs)
            return
        await self._execute(publish_commands(jobs, time.time()))

    def publish_now(self, jobs: Sequence[Submission]) -> None:
        """Send one message for each job; over another transport than ours, some may go before it fails."""
        if not jobs:
            return
        if self._doorbell:
            self._execute_now(publish_commands(jobs, time.time()))
            return
        with (
            _translated(),
            producers[self._app.connection_for_write()].acquire(block=True) as producer,
            producer.batch(),
        ):
            for job in jobs:
                self._app.send_task(
                    TASK_NAME,
                    args=(argument(job),),
                    task_id=str(job.id),
                    queue=queue_of(job),
                    headers=headers(job),
                    argsrepr="",
                    kwargsrepr="",
                    ignore_result=True,
                    producer=producer,
                    retry=False,
                )

    async def held(self, ids: Sequence[UUID]) -> set[UUID] | None:
        """Which of these jobs have a message, in a queue or in a worker's hands; None if this broker cannot tell."""
        if not self._doorbell:
            return None
        found = (await self._execute([_held_command(ids)]))[0] if ids else []
        return _members(ids, found)

    def held_now(self, ids: Sequence[UUID]) -> set[UUID] | None:
        """Which of these jobs have a message, in a queue or in a worker's hands; None if this broker cannot tell."""
        if not self._doorbell:
            return None
        return _members(ids, self._execute_now([_held_command(ids)])[0] if ids else [])

    async def forget(self, ids: Sequence[UUID]) -> None:
        """Have workers drop these jobs, waiting or in hand. One that runs to its end is refused by its row."""
        if not ids:
            return
        if self._doorbell:
            await self._execute(cancel_commands(ids, time.time()))
        await asyncio.to_thread(self._broadcast, ids)

    async def aclose(self) -> None:
        """Close all connections."""
        if "_async" in self.__dict__:
            await self._async.aclose()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Close the connections of the blocking twins."""
        if "_sync" in self.__dict__:
            self._sync.close()
        if "_app" in self.__dict__ and self._given is None:
            self._app.close()

    @cached_property
    def _app(self) -> Celery:
        return self._given or celery.make_app(self._settings)

    @cached_property
    def _async(self) -> redis.asyncio.Redis:
        return redis.asyncio.Redis.from_url(
            plain_redis(self._settings.broker_url),
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            # A publish that may have happened is not repeated.
            retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
            retry_on_error=[],
            maint_notifications_config=_NOTICE_DEAD_CONNECTIONS,
        )

    @cached_property
    def _sync(self) -> redis.Redis:
        return redis.Redis.from_url(
            plain_redis(self._settings.broker_url),
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            maint_notifications_config=_NOTICE_DEAD_CONNECTIONS,
        )

    async def _execute(self, commands: Sequence[Command]) -> list[object]:
        with _translated():
            async with self._async.pipeline(transaction=True) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                return list(await pipe.execute())

    def _execute_now(self, commands: Sequence[Command]) -> list[object]:
        with _translated(), self._sync.pipeline(transaction=True) as pipe:
            for command in commands:
                pipe.execute_command(*command)  # type: ignore[no-untyped-call]
            return list(pipe.execute())

    def _broadcast(self, ids: Sequence[UUID]) -> None:
        with _translated():
            self._app.control.broadcast("cancel_jobs", arguments={"ids": [str(id_) for id_ in ids]})


def _held_command(ids: Sequence[UUID]) -> Command:
    return ("SMISMEMBER", keys.HELD, *(str(id_) for id_ in ids))


def _members(ids: Sequence[UUID], found: object) -> set[UUID]:
    return {id_ for id_, there in zip(ids, found if isinstance(found, list) else [], strict=True) if there}


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (RedisError, KombuError, OSError, TimeoutError) as error:
        log.warning("broker: %s: %s", type(error).__name__, error)
        raise BrokerUnavailable from error
