"""A database of one's own and jobs to fill it with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from catalog.terms import Lane, Verb
from tasks.db import Database
from tasks.jobs import Job, State
from tasks.messages import Completion, Submission
from tasks.store import accept, read


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def new_job() -> Callable[..., Submission]:
    """Submissions whose ids rise, with any field set by name."""
    numbers = count(1)

    def make(**fields: Any) -> Submission:
        values: dict[str, Any] = {
            "id": UUID(int=next(numbers)),
            "caller": "default",
            "verb": Verb.ENCODE,
            "model": "roost/fake",
            "revision": None,
            "lane": Lane.INTERACTIVE,
            "bucket": "xs",
            "priority": 5,
            "options": {},
            "inputs": b"inputs",
            "lengths": [3],
            "costs": [1.5],
            "faults": {},
            "created": time.time(),
            "deadline": None,
            "retention_s": 3600,
        }
        return Submission(**values | fields)

    return make


@pytest.fixture
def stored_job(database: Database, new_job: Callable[..., Submission]) -> Callable[..., Submission]:
    """Submissions with a queued row."""

    def make(**fields: Any) -> Submission:
        job = new_job(**fields)
        database.run(accept.insert, [job])
        return job

    return make


@pytest.fixture
def ending() -> Callable[..., Completion]:
    """Completions: a success, unless fields say otherwise."""

    def make(job: Submission, state: State = State.SUCCEEDED, **fields: Any) -> Completion:
        values: dict[str, Any] = {
            "result": b"vectors" if state is State.SUCCEEDED else None,
            "items_failed": 0,
            "error": None if state is State.SUCCEEDED else {"code": "model_failed", "message": "m", "retryable": False},
            "device_ms": 2.0,
            "started": time.time(),
            "finished": time.time(),
            "timings": {"device_ms": 2.0},
            "usage": {"tokens": 3},
            "worker": "one",
        }
        return Completion(job, state.value, **values | fields)

    return make


@pytest.fixture
def row(database: Database) -> Callable[[Submission], Job]:
    """The row of a job that must have one."""

    def get(job: Submission) -> Job:
        found = database.run(read.jobs, [job.id])
        return found[job.id]

    return get


@pytest.fixture
def set_columns(database: Database) -> Callable[..., None]:
    """Put columns of a job's row to any SQL value, to bring about what takes time or a crash otherwise."""

    def put(jobs: Submission | Sequence[Submission], **columns: str) -> None:
        ids = [job.id for job in ([jobs] if isinstance(jobs, Submission) else jobs)]
        values = ", ".join(f"{name} = {value}" for name, value in columns.items())
        statement = f"UPDATE jobs SET {values} WHERE id = ANY(%(ids)s::uuid[])"  # noqa: S608
        database.run(lambda conn: conn.exec_driver_sql(statement, {"ids": ids}).close())

    return put
