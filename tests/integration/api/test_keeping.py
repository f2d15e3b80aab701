"""Giving direct jobs their rows: once, whatever has become of them meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from sqlalchemy import text

from catalog.cost import WEIGHTLESS
from catalog.tokenizer import Counts
from tasks.errors import JobNotFound
from tasks.prepare import check, price
from tasks.request import parse_request

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tasks.db import Database
    from tasks.messages import Submission
    from tests.integration.api.conftest import Api


def submission(api: Api) -> Submission:
    it = api.services
    request = parse_request({"verb": "encode", "model": "org/model", "items": ["a"]}, 10)
    job = price(check(request, it.catalog, it.limits), Counts([3], exact=True), now=it.clock(), cost=WEIGHTLESS)
    return replace(job, stored=False, reply_to=it.instance)


def run(database: Database, statement: str, id_: UUID) -> None:
    database.run(lambda connection: connection.execute(text(statement), {"id": id_}).rowcount)


async def test_a_kept_job_has_one_row_and_one_message_however_often_it_is_kept(
    api: Api, messages: Callable[[], int]
) -> None:
    job = submission(api)
    await api.services.submitter.send(job)
    rows = await asyncio.gather(*(api.services.submitter.keep(job) for _ in range(5)))
    await api.services.submitter.close()
    assert {(row.id, row.state) for row in rows} == {(job.id, "queued")}
    assert messages() == 1


async def test_a_kept_job_without_a_message_gets_one(api: Api, messages: Callable[[], int]) -> None:
    await api.services.submitter.keep(submission(api))
    await api.services.submitter.close()
    assert messages() == 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE jobs SET state = 'running' WHERE id = :id",
        "UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE id = :id",
        "UPDATE jobs SET fence = 2, attempt = 2 WHERE id = :id",
    ],
)
async def test_a_job_that_has_gone_further_gets_no_second_message(
    api: Api, database: Database, broker: redis.Redis, messages: Callable[[], int], change: str
) -> None:
    job = submission(api)
    await api.services.submitter.accept(job)
    await api.services.submitter.close()
    run(database, change, job.id)
    broker.flushdb()
    await api.services.submitter.keep(job)
    await api.services.submitter.close()
    assert messages() == 0


async def test_a_job_whose_retention_is_over_does_not_trouble_the_others(api: Api, database: Database) -> None:
    over, other = submission(api), submission(api)
    await api.services.submitter.accept(over)
    run(database, "UPDATE jobs SET state = 'failed', expires_at = now() - interval '1 s' WHERE id = :id", over.id)
    results = await asyncio.gather(
        api.services.submitter.keep(over), api.services.submitter.keep(other), return_exceptions=True
    )
    assert isinstance(results[0], JobNotFound)
    assert not isinstance(results[1], BaseException)
    assert results[1].id == other.id
