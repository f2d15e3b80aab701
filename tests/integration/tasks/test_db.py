"""Transactions that survive what a database server goes through."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from deploy.embedded.ports import free_port
from deploy.embedded.postgres import PostgresServer
from migrations import migrate
from tasks.db import AsyncDatabase, Database
from tasks.errors import JobNotFound, Overloaded, StoreUnavailable
from tasks.messages import Submission
from tasks.store import accept, read


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def own_server(server_folder: Path, tmp_path: Path) -> Iterator[PostgresServer]:
    """A server that a test may stop and start."""
    server = PostgresServer(server_folder / tmp_path.name, tmp_path / "log", settings={"fsync": "off"})
    server.start()
    yield server
    if server.started:
        server.stop()


def one(conn: Connection) -> int:
    return int(conn.exec_driver_sql("SELECT 1").scalar_one())


def put(conn: Connection, name: str) -> None:
    conn.exec_driver_sql("INSERT INTO marks VALUES (%(name)s, '')", {"name": name})


def names(conn: Connection) -> set[str]:
    return {row[0] for row in conn.exec_driver_sql("SELECT name FROM marks")}


def cut_all_connections(database_url: str) -> None:
    """As a restart does, for one database."""
    plain = database_url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(plain, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_a_function_that_returns_is_committed_and_one_that_fails_is_not(database: Database) -> None:
    def put_and_fail(conn: Connection) -> None:
        put(conn, "b")
        raise JobNotFound

    database.run(put, "a")
    with pytest.raises(JobNotFound):
        database.run(put_and_fail)

    assert database.run(names) == {"a"}


def test_an_error_that_no_repeat_can_mend_passes_through_once(database: Database) -> None:
    calls = []

    def put_twice(conn: Connection) -> None:
        calls.append(conn)
        put(conn, "a")
        put(conn, "a")

    with pytest.raises(IntegrityError):
        database.run(put_twice)
    assert len(calls) == 1


def test_a_server_that_takes_no_writes_for_now_is_unavailable(database_url: str) -> None:
    read_only = Database(f"{database_url}?options=-cdefault_transaction_read_only%3Don", patience_s=0.05)
    with pytest.raises(StoreUnavailable):
        read_only.run(put, "a")
    read_only.close()


def test_stale_connections_are_replaced_without_an_error(database: Database, database_url: str) -> None:
    together = threading.Barrier(5)

    def use(conn: Connection) -> int:
        together.wait()
        return one(conn)

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda _: database.run(use), range(5)))
        cut_all_connections(database_url)

        assert list(pool.map(lambda _: database.run(one), range(20))) == [1] * 20


async def test_stale_connections_are_replaced_without_an_error_in_asyncio(database_url: str) -> None:
    database = AsyncDatabase(database_url)
    await asyncio.gather(*(database.run(one) for _ in range(20)))
    await asyncio.to_thread(cut_all_connections, database_url)

    assert await asyncio.gather(*(database.run(one) for _ in range(20))) == [1] * 20
    await database.close()


def test_a_connection_that_is_cut_in_mid_transaction_means_another_try(database: Database, database_url: str) -> None:
    calls = []

    def put_and_lose(conn: Connection) -> None:
        calls.append(conn)
        put(conn, "a")
        if len(calls) == 1:
            cut_all_connections(database_url)

    database.run(put_and_lose)

    assert len(calls) == 2
    assert database.run(names) == {"a"}


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "57P01", "57P03", "53300", "55P03"])
def test_a_failure_that_passes_means_another_try(database: Database, sqlstate: str) -> None:
    calls = []

    def fail_once(conn: Connection) -> int:
        calls.append(conn)
        if len(calls) == 1:
            conn.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'now' USING ERRCODE = '{sqlstate}'; END $$")
        return one(conn)

    assert database.run(fail_once) == 1
    assert len(calls) == 2


def test_a_server_that_cannot_be_reached_is_given_up_in_time() -> None:
    database = Database(f"postgresql://nobody@127.0.0.1:{free_port()}/none", patience_s=0.3)
    began = time.monotonic()

    with pytest.raises(StoreUnavailable):
        database.run(one)

    assert 0.1 < time.monotonic() - began < 3


def test_a_row_that_stays_locked_makes_the_store_unavailable(database_url: str) -> None:
    database = Database(database_url, patience_s=0.0)
    database.run(put, "a")

    def lock(conn: Connection) -> None:
        conn.exec_driver_sql("SET LOCAL lock_timeout = '20ms'")
        conn.exec_driver_sql("SELECT FROM marks FOR UPDATE")

    def lock_beside(conn: Connection) -> None:
        lock(conn)
        with pytest.raises(StoreUnavailable):
            database.run(lock)

    database.run(lock_beside)
    database.close()


def test_a_pool_without_a_free_connection_is_an_overload(database_url: str) -> None:
    database = Database(database_url, 1, patience_s=0.2)

    def run_beside(_: Connection) -> None:
        with pytest.raises(Overloaded):
            database.run(one)

    database.run(run_beside)
    database.close()


async def test_a_hundred_callers_share_five_connections(database_url: str) -> None:
    database = AsyncDatabase(database_url, 5)

    def slow(conn: Connection) -> str:
        return str(conn.exec_driver_sql("SELECT pg_sleep(0.02), pg_backend_pid()").one()[1])

    backends = await asyncio.gather(*(database.run(slow) for _ in range(100)))

    assert len(set(backends)) == 5
    await database.close()


def test_every_session_has_its_limits_and_its_name(database_url: str) -> None:
    database = Database(database_url, name="roost test")

    def settings(conn: Connection) -> list[object]:
        shown = ("statement_timeout", "lock_timeout", "timezone", "application_name")
        return [conn.exec_driver_sql(f"SHOW {name}").scalar_one() for name in shown]

    assert database.run(settings) == ["30s", "5s", "UTC", "roost test"]
    database.close()


def test_options_in_the_url_are_kept(database_url: str) -> None:
    database = Database(f"{database_url}?options=-c%20work_mem%3D8MB&application_name=mine")

    shown = database.run(
        lambda conn: [conn.exec_driver_sql(f"SHOW {n}").scalar_one() for n in ("work_mem", "lock_timeout")]
    )

    assert shown == ["8MB", "5s"]
    database.close()


def test_an_exclusive_lock_is_held_by_one_and_then_free(database_url: str) -> None:
    first, second = Database(database_url), Database(database_url)
    with first.exclusive(7) as mine:
        assert mine
        with second.exclusive(7) as theirs, second.exclusive(8) as other:
            assert (theirs, other) == (False, True)
    with second.exclusive(7) as theirs:
        assert theirs
    first.close()
    second.close()


def test_an_exclusive_lock_ends_with_its_connection(database_url: str) -> None:
    first, second = Database(database_url), Database(database_url)
    with first.exclusive(7):
        cut_all_connections(database_url)
        with second.exclusive(7) as theirs:
            assert theirs
    first.close()
    second.close()


async def test_a_restart_of_the_server_under_load_costs_time_and_no_error(
    own_server: PostgresServer, new_job: Callable[..., Submission]
) -> None:
    url = own_server.url()
    await asyncio.to_thread(migrate, url)
    database = AsyncDatabase(url, 5, patience_s=30)
    jobs = [new_job() for _ in range(400)]
    half = asyncio.Event()

    async def submit(number: int) -> None:
        for job in jobs[number::8]:
            await database.run(accept.insert, [job])
            if job is jobs[len(jobs) // 2]:
                half.set()

    async def restart() -> None:
        await half.wait()
        await asyncio.to_thread(own_server.stop)
        await asyncio.to_thread(own_server.start)

    await asyncio.gather(restart(), *(submit(number) for number in range(8)))

    assert len(await database.run(read.jobs, [job.id for job in jobs])) == len(jobs)
    await database.close()
