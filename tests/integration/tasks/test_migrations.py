"""Bringing a database to this version's tables, whoever else does the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from alembic import command
from sqlalchemy import Connection

from deploy.embedded.postgres import PostgresServer
from migrations import NewerSchema, check_schema, migrate
from migrations.errors import OlderSchema
from migrations.upgrade import config
from tasks.db import Database

MIGRATE = "import sys; from migrations import migrate; migrate(sys.argv[1], patience_s=30)"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def empty_url(postgres_server: PostgresServer) -> Iterator[str]:
    with postgres_server.connect() as conn:
        conn.execute("CREATE DATABASE empty")
    yield postgres_server.url("empty")
    with postgres_server.connect() as conn:
        conn.execute("DROP DATABASE empty WITH (FORCE)")


@pytest.fixture
def empty(empty_url: str) -> Iterator[Database]:
    database = Database(empty_url)
    yield database
    database.close()


@pytest.fixture
def replicas(empty_url: str) -> Iterator[ExitStack]:
    """Where started replicas are registered, so that none outlives its test."""
    with ExitStack() as stack:
        yield stack


def replica(url: str, stack: ExitStack) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", MIGRATE, url], cwd=ROOT, stderr=subprocess.PIPE)
    stack.callback(process.communicate)
    stack.callback(process.kill)
    return process


def tables(conn: Connection) -> set[str]:
    return {row[0] for row in conn.exec_driver_sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


def test_four_replicas_at_once_on_an_empty_database_all_succeed(
    empty_url: str, empty: Database, replicas: ExitStack
) -> None:
    processes = [replica(empty_url, replicas) for _ in range(4)]

    assert [(process.communicate(timeout=60)[1], process.returncode) for process in processes] == [(b"", 0)] * 4
    empty.run(check_schema)


def test_when_the_leader_is_killed_in_mid_migration_another_finishes(
    empty_url: str, empty: Database, replicas: ExitStack
) -> None:
    with psycopg.connect(empty_url.replace("+psycopg", "")) as blocker:
        blocker.execute("CREATE TABLE marks ()")  # not committed: the leader waits here, its first table made
        leader = replica(empty_url, replicas)
        _await_waiting(empty, "CREATE TABLE marks%")
        followers = [replica(empty_url, replicas) for _ in range(2)]
        _await_waiting(empty, "%pg_advisory_xact_lock%")
        leader.kill()
        leader.wait()
        blocker.rollback()

    assert [(process.communicate(timeout=60)[1], process.returncode) for process in followers] == [(b"", 0)] * 2
    empty.run(check_schema)


def _await_waiting(database: Database, query: str) -> None:
    """Until some backend of this database waits for a lock in such a statement."""
    deadline = time.monotonic() + 30
    found = 0
    while not found:
        assert time.monotonic() < deadline, f"nobody waits in {query}"
        found = database.run(
            lambda conn: conn.exec_driver_sql(
                "SELECT count(*), pg_sleep(0.02) FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock' AND btrim(query, E' \\n') LIKE %(query)s",
                {"query": query},
            ).scalar_one()
        )


def test_migrating_twice_changes_nothing(empty_url: str, empty: Database) -> None:
    migrate(empty_url)
    before = empty.run(tables)
    migrate(empty_url)

    assert (
        empty.run(tables)
        == before
        == {
            "alembic_version",
            "api_keys",
            "backfill_documents",
            "backfills",
            "deliveries",
            "delivery_attempts",
            "job_webhooks",
            "tenants",
            "usage",
            "webhook_endpoints",
            "batch_parts",
            "batches",
            "costs",
            "files",
            "jobs",
            "marks",
            "secrets",
            "spent_blobs",
        }
    )


def test_an_older_build_says_that_the_schema_is_newer(database_url: str, database: Database) -> None:
    migrate(database_url)
    database.run(lambda conn: conn.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'").close())

    with pytest.raises(NewerSchema, match=r"newer than this build: it is at revision '9999'.*at least as new"):
        migrate(database_url)


def test_a_database_without_tables_is_said_to_be_older(empty: Database) -> None:
    with pytest.raises(OlderSchema, match="roost migrate"):
        empty.run(check_schema)


def test_the_migrations_make_the_tables_of_the_models(empty_url: str, empty: Database) -> None:
    migrate(empty_url)

    def check(conn: Connection) -> None:
        checking = config()
        checking.attributes["connection"] = conn
        command.check(checking)  # raises when they differ

    empty.run(check)


def test_results_are_stored_as_they_are_and_rows_have_room_to_change(empty_url: str, empty: Database) -> None:
    migrate(empty_url)

    def storage(conn: Connection) -> tuple[dict[str, str], str]:
        columns = conn.exec_driver_sql(
            "SELECT attname, attstorage::text FROM pg_attribute"
            " WHERE attrelid = 'jobs'::regclass AND attname IN ('inputs', 'result')"
        ).all()
        options = conn.exec_driver_sql("SELECT array_to_string(reloptions, ' ') FROM pg_class WHERE relname = 'jobs'")
        return {row[0]: row[1] for row in columns}, str(options.scalar_one())

    columns, options = empty.run(storage)
    assert columns == {"inputs": "e", "result": "e"}
    assert "fillfactor=80" in options


def test_every_migration_can_be_undone(empty_url: str, empty: Database) -> None:
    migrate(empty_url)

    def undo(conn: Connection) -> None:
        undoing = config()
        undoing.attributes["connection"] = conn
        command.downgrade(undoing, "base")

    empty.run(undo)
    assert empty.run(tables) == {"alembic_version"}


def test_alembics_own_commands_find_the_database_in_the_environment(empty_url: str, empty: Database) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "-c", "migrations/alembic.ini", "upgrade", "head"],
        cwd=ROOT,
        env={**os.environ, "ROOST_DATABASE_URL": empty_url},
        capture_output=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr.decode()
    empty.run(check_schema)
