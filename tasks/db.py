"""Transactions on Postgres that survive its restarts, for threads and for asyncio.

A function of the store takes a Connection and is written once. `Database.run(fn, …)` and
`await AsyncDatabase.run(fn, …)` give it a transaction and repeat it when the connection was lost, so it must be safe to
repeat. What cannot be had within `patience_s` is a StoreUnavailable or an Overloaded, never a driver's error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

import orjson
import psycopg
from sqlalchemy import URL, Connection, create_engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import create_async_engine

from tasks.errors import Overloaded, StoreUnavailable

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_S = 5.0
"""How long `run` goes on trying before it gives up."""

_SESSION = {
    "statement_timeout": "30000",
    "lock_timeout": "5000",
    "idle_in_transaction_session_timeout": "60000",
    "timezone": "UTC",
    "jit": "off",
    # Every join of the store is a handful of ids against a primary key. A plan cached while the table was small must
    # not go on reading all of it once it is large.
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

_PASSING = ("08", "57P", "53300", "40001", "40P01")
"""Sqlstates that pass: connection trouble, a server that starts or stops, no free slot, serialization, deadlock."""

_BUSY = ("55P03", "57014", "53", "25006")
"""The server answers but cannot serve now: a lock or statement time-out, no disk or memory left, made read-only."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


def normalise(url: str) -> URL:
    """The URL with the driver named, however it was written: postgres://, postgresql://, postgresql+psycopg://."""
    parsed = make_url(url)
    if parsed.drivername.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError(f"The database URL must start with postgresql://, not {parsed.drivername}://")
    return parsed.set(drivername="postgresql+psycopg")


class Database:
    """Transactions for threads. Safe to share between threads; makes its connections when they are first needed."""

    def __init__(self, url: str, pool_size: int = 5, *, patience_s: float = PATIENCE_S, name: str = "roost") -> None:
        address = normalise(url)
        self._engine = create_engine(address, **_engine_options(address, pool_size, patience_s, name))
        self._patience_s = patience_s

    def run(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`fn(connection, …)` in one transaction, committed when it returns.

        Repeated after a lost connection, even when the loss hid whether the commit happened. Raises StoreUnavailable or
        Overloaded when patience ends; other errors roll back and pass through.
        """
        tries = _Tries(self._patience_s)
        while True:
            try:
                with self._engine.begin() as connection:
                    return fn(connection, *args, **kwargs)
            except (DBAPIError, PoolTimeout) as error:
                time.sleep(tries.pause(error))

    @contextmanager
    def exclusive(self, key: int) -> Iterator[bool]:
        """Whether this process alone holds the advisory lock `key` while the block runs. Never waits for it.

        The lock needs a connection of its own and ends with it: what runs in the block must be safe to run twice.
        """
        with self._connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            got = bool(connection.exec_driver_sql("SELECT pg_try_advisory_lock(%(key)s)", {"key": key}).scalar_one())
            try:
                yield got
            finally:
                if got:
                    with suppress(DBAPIError):
                        connection.exec_driver_sql("SELECT pg_advisory_unlock(%(key)s)", {"key": key})

    def _connect(self) -> Connection:
        """A connection that has just answered."""
        tries = _Tries(self._patience_s)
        while True:
            try:
                with ExitStack() as unused:
                    connection = unused.enter_context(self._engine.connect())
                    connection.exec_driver_sql("SELECT 1")
                    connection.rollback()
                    unused.pop_all()
                    return connection
            except (DBAPIError, PoolTimeout) as error:
                time.sleep(tries.pause(error))

    def close(self) -> None:
        """Close the pool. The next `run` opens it again."""
        self._engine.dispose()


class AsyncDatabase:
    """Transactions for asyncio: the twin of Database. One object belongs to one event loop."""

    def __init__(self, url: str, pool_size: int = 5, *, patience_s: float = PATIENCE_S, name: str = "roost") -> None:
        address = normalise(url)
        self._engine = create_async_engine(address, **_engine_options(address, pool_size, patience_s, name))
        self._patience_s = patience_s

    async def run(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`fn(connection, …)` in one transaction, as `Database.run` does it. `fn` is a plain function."""
        tries = _Tries(self._patience_s)
        while True:
            try:
                async with self._engine.begin() as connection:
                    return await connection.run_sync(fn, *args, **kwargs)
            except (DBAPIError, PoolTimeout) as error:
                await asyncio.sleep(tries.pause(error))

    async def close(self) -> None:
        """Close the pool."""
        await self._engine.dispose()


class _Tries:
    """How long to go on: pauses that double, until the patience is spent."""

    def __init__(self, patience_s: float) -> None:
        self._end = time.monotonic() + patience_s
        self._pause_s = _FIRST_PAUSE_S

    def pause(self, error: DBAPIError | PoolTimeout) -> float:
        """The pause before the next try. Raises what the caller should see when there is no next try."""
        if isinstance(error, DBAPIError) and not (_passes(error) or _busy(error)):
            raise error
        if isinstance(error, PoolTimeout):
            raise Overloaded("All database connections of this process are in use; try again later.") from error
        if time.monotonic() + self._pause_s > self._end:
            log.warning("database: %s", str(error.orig).partition("\n")[0])
            raise StoreUnavailable from error
        pause, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return pause


def _passes(error: DBAPIError) -> bool:
    """Whether the same transaction may well succeed on a new connection. A refused connect carries no sqlstate."""
    state = _sqlstate(error)
    lost = error.connection_invalidated or (state is None and isinstance(error.orig, psycopg.OperationalError))
    return lost or (state or "").startswith(_PASSING)


def _busy(error: DBAPIError) -> bool:
    return (_sqlstate(error) or "").startswith(_BUSY)


def _sqlstate(error: DBAPIError) -> str | None:
    return error.orig.sqlstate if isinstance(error.orig, psycopg.Error) else None


def _engine_options(address: URL, pool_size: int, patience_s: float, name: str) -> dict[str, Any]:
    own = " ".join(f"-c {key}={value}" for key, value in _SESSION.items())
    given = address.query.get("options", ())
    connect: dict[str, Any] = {
        "options": " ".join([own, *([given] if isinstance(given, str) else given)]),
        "connect_timeout": 5,
        "tcp_user_timeout": 30_000,
    }
    if "application_name" not in address.query:
        connect["application_name"] = name
    return {
        "pool_size": pool_size,
        "max_overflow": 0,
        "hide_parameters": True,  # they hold what callers sent, and errors go to logs
        "pool_timeout": patience_s,
        "pool_use_lifo": True,
        "connect_args": connect,
        "json_serializer": orjson.dumps,
        "json_deserializer": orjson.loads,
    }
