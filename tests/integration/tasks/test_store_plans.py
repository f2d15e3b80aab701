"""Statements read what they need from an index, however many jobs have ended or belong to others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from psycopg import sql
from sqlalchemy import Connection, event

from deploy.embedded.postgres import PostgresServer
from tasks.backfills.backfill import Status, Tally
from tasks.contents import new_key
from tasks.db import Database
from tasks.errors import JobNotFound, JobNotTerminal
from tasks.jobs import State
from tasks.messages import Completion, Submission
from tasks.store import accept, backfill_leases, backfills, change, claim, finish, read, spent, sweep
from tasks.store.pages import Filters, encode_cursor

NewJob = Callable[..., Submission]
Ending = Callable[..., Completion]
Plan = Callable[[Callable[[Connection], object]], str]
CURSOR = encode_cursor(UUID(int=2000))
NOW = datetime.now(UTC)


class _Planned(Exception):
    """Carries the plans out of a transaction that is rolled back."""


@pytest.fixture(scope="module")
def many(postgres_server: PostgresServer, database_template: str) -> Iterator[Database]:
    """Four thousand jobs of twenty callers, nearly all done, with the statistics that autovacuum would have made."""
    with postgres_server.connect() as conn:
        conn.execute(sql.SQL("CREATE DATABASE many TEMPLATE {}").format(sql.Identifier(database_template)))
    database = Database(postgres_server.url("many"))
    database.run(
        lambda conn: conn.exec_driver_sql(
            """
            INSERT INTO jobs (id, caller, verb, model, lane, bucket, priority, state, items, cost_ms, created_at,
              queued_at, started_at, finished_at, expires_at, deadline_at, retention_s, tags, options, door,
              idempotency_key, inputs, result)
            SELECT lpad(to_hex(n), 32, '0')::uuid, 'caller ' || mod(n, 20), 'encode', 'roost/' || mod(n / 20, 20),
              'bulk', 'xs', 5, CASE WHEN done THEN 'succeeded' WHEN mod(n, 3) = 0 THEN 'failed' ELSE 'queued' END, 1, 1,
              now(), now(), now(), now(), CASE WHEN done THEN now() + interval '1 day' END,
              CASE WHEN mod(n, 100) = 0 THEN now() + interval '1 day' END, 60,
              CASE WHEN mod(n, 7) = 0 THEN ARRAY['tag ' || mod(n, 203)] ELSE '{}' END, '{}', '\\x93909080', 'key ' || n,
              repeat('x', 300)::bytea, repeat('y', 1500)::bytea
            FROM generate_series(1, 4000) AS n, LATERAL (SELECT mod(n, 41) > 0) AS t(done)
            """
        ).close()
    )
    database.run(lambda conn: conn.exec_driver_sql("ANALYZE jobs").close())
    yield database
    database.close()
    with postgres_server.connect() as conn:
        conn.execute("DROP DATABASE many WITH (FORCE)")


@pytest.fixture
def plan(many: Database) -> Plan:
    """The plans of all statements that a function runs; what it changed is undone."""

    def explain(use: Callable[[Connection], object]) -> str:
        def run(conn: Connection) -> None:
            found: list[tuple[str, Any]] = []

            def note(_c: object, _u: object, statement: str, parameters: Any, *_: object) -> None:
                found.append((statement, parameters))

            event.listen(conn, "before_cursor_execute", note)
            use(conn)
            event.remove(conn, "before_cursor_execute", note)
            lines = [row[0] for s, p in found for row in conn.exec_driver_sql("EXPLAIN " + s, p)]
            raise _Planned("\n".join(lines))

        with pytest.raises(_Planned) as planned:
            many.run(run)
        return str(planned.value)

    return explain


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (Filters(), "ix_jobs_caller_id"),
        (Filters(status=State.SUCCEEDED), "ix_jobs_caller_id"),
        (Filters(status=State.QUEUED), "ix_jobs_not_succeeded"),
        (Filters(status=State.FAILED), "ix_jobs_not_succeeded"),
        (Filters(model="roost/7"), "ix_jobs_caller_model_id"),
        (Filters(tag="tag 14"), "ix_jobs_tags"),
    ],
)
@pytest.mark.parametrize("cursor", [None, CURSOR])
def test_a_list_is_read_from_an_index(plan: Plan, filters: Filters, index: str, cursor: str | None) -> None:
    planned = plan(lambda conn: read.page(conn, "caller 3", filters, cursor, 20))

    assert index in planned
    assert "Seq Scan" not in planned
    assert "pk_jobs" not in planned


@pytest.mark.parametrize(
    ("use", "index"),
    [
        (lambda conn: sweep.expire(conn, NOW, 500), "ix_jobs_deadline_at"),
        (lambda conn: sweep.reclaim(conn, NOW, 500, 3), "ix_jobs_open"),
        (lambda conn: sweep.due(conn, NOW, 500), "ix_jobs_run_at"),
        (lambda conn: sweep.unseen(conn, NOW, UUID(int=0), 20), "ix_jobs_unseen"),
        (lambda conn: sweep.delete(conn, NOW, 500), "ix_jobs_expires_at"),
        (lambda conn: spent.forget_late(conn, NOW, 500), "ix_jobs_unkept"),
        (sweep.counts, "ix_jobs_open"),
    ],
    ids=["expire", "reclaim", "due", "unseen", "delete", "forget", "counts"],
)
def test_a_sweep_reads_only_what_may_be_due(plan: Plan, use: Callable[[Connection], object], index: str) -> None:
    planned = plan(use)

    assert index in planned
    assert "Seq Scan" not in planned


def test_a_batch_is_found_by_its_ids(plan: Plan, new_job: NewJob, ending: Ending) -> None:
    jobs = [new_job(id=UUID(int=number)) for number in range(1, 4000, 63)]
    direct = [new_job(id=UUID(int=number), stored=False) for number in range(2, 4000, 63)]

    def use(conn: Connection) -> None:
        claim.start(conn, [(job.id, 1) for job in jobs], "one", NOW)
        claim.beat(conn, "one", [(job.id, 1) for job in jobs], NOW)
        claim.claim(conn, [(replace(job, inputs=b""), 1) for job in jobs], "two", claim.Limits(3, 20))
        claim.rest(conn, [job.id for job in jobs])
        read.submissions(conn, [job.id for job in jobs])
        sweep.looked(conn, {job.id: NOW for job in jobs})
        spent.named(conn, [new_key(job.id) for job in jobs])
        spent.forget_inputs(conn, [job.id for job in jobs])
        spent.forget_results(conn, [job.id for job in jobs])
        finish.finish(conn, [ending(job) for job in (*jobs, *direct)])

    planned = plan(use)

    assert "pk_jobs" in planned
    assert "Seq Scan" not in planned


def test_the_jobs_that_a_backfill_leaves_are_found_by_their_tag(plan: Plan) -> None:
    new = backfills.NewBackfill(UUID(int=1), "caller 3", "nightly", {}, b"r", "backfills/x", NOW)

    def use(conn: Connection) -> None:
        backfills.create(conn, new)
        backfill_leases.claim(conn, "one", 30.0)
        backfill_leases.end(conn, new.id, "one", Status.FAILED, Tally(), "tag 14")

    planned = plan(use)

    assert "ix_jobs_tags" in planned
    assert "on jobs" not in planned.replace("Bitmap Heap Scan on jobs", "").replace("Delete on jobs", "")


def test_one_job_is_found_by_its_id(plan: Plan) -> None:
    def use(conn: Connection) -> None:
        read.job(conn, UUID(int=7), "caller 7")
        read.result(conn, UUID(int=7), "caller 7")
        change.cancel(conn, UUID(int=8), "caller 8")
        change.retry(conn, UUID(int=123), "caller 3", NOW)
        with suppress(JobNotFound, JobNotTerminal):
            change.delete(conn, UUID(int=9), "caller 9")

    assert "Seq Scan" not in plan(use)


def test_the_jobs_of_keys_are_found_by_their_index(plan: Plan, new_job: NewJob) -> None:
    again = [
        new_job(id=UUID(int=10_000 + n), caller=f"caller {n % 20}", idempotency_key=f"key {n}") for n in range(1, 65)
    ]

    planned = plan(lambda conn: accept.insert(conn, again))

    assert "uq_jobs_caller_idempotency_key" in planned
    assert "Seq Scan on jobs" not in planned
