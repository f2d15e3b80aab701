"""Real servers for the tests: one PostgreSQL and one Valkey for each pytest process, a fresh database for each test."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
import redis
from psycopg import sql

from deploy.embedded.errors import EmbeddedError
from deploy.embedded.postgres import PostgresServer
from deploy.embedded.valkey import ValkeyServer
from migrations import migrate
from tasks.settings import plain_redis

# Before any library reads them: tests never reach for the network, and a developer's own stack is never touched.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
for _name in [name for name in os.environ if name.startswith("ROOST_")]:
    del os.environ[_name]

# A shell that starts us in the background has us ignore Ctrl-C, and what tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Suites of released clients, which run in an environment of their own: tests/acceptance/test_clients.py.
collect_ignore = ["clients"]

_TEMPLATE = "roost_template"
_VALKEY_DATABASES = 16
_BOOKS = "test_real_model"
_QUICK_FIRST = ("unit", "adapters", "integration", "acceptance")
# What a test loses at a power failure does not matter; its time does.
_FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "200"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what is quick first, so that a small mistake shows in seconds and not after the slow tests.

    Of its kind, what holds the books against the process's memory goes first: it would take again what others freed.
    """

    def place(item: pytest.Item) -> tuple[int, bool]:
        kind = next((n for n, kind in enumerate(_QUICK_FIRST) if kind in item.path.parts), 0)
        return kind, item.path.stem != _BOOKS

    items.sort(key=place)


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    """A folder that an unprivileged account may enter, which pytest's own are not when root runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="roost-tests-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(server_folder: Path) -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests of this process; for a database of your own take `database_url`."""
    try:
        server = PostgresServer(server_folder / "postgres", server_folder / "postgres.log", settings=_FAST)
    except EmbeddedError as error:
        _missing(error)
    with ExitStack() as ending:
        ending.callback(server.stop)
        server.start()
        yield server


@pytest.fixture(scope="session")
def database_template(postgres_server: PostgresServer) -> str:
    """The name of a database migrated once, which others are copied from."""
    with postgres_server.connect() as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_TEMPLATE)))
    migrate(postgres_server.url(_TEMPLATE))
    return _TEMPLATE


@pytest.fixture(scope="session")
def database_names() -> Iterator[int]:
    return count(1)


@pytest.fixture(scope="session")
def spare_databases() -> list[str]:
    """Databases that a test is done with and that were emptied: another takes them sooner than it would make one."""
    return []


@pytest.fixture(scope="session")
def database_shape(postgres_server: PostgresServer, database_template: str, spare_databases: list[str]) -> object:
    """What a database is like that no test has used yet. Not read from the template, which copying needs alone."""
    spare_databases.append(_copy(postgres_server, database_template, "test_0"))
    with postgres_server.connect("test_0") as connection:
        return connection.execute(_SHAPE).fetchone()


@pytest.fixture
def database_url(
    postgres_server: PostgresServer,
    database_template: str,
    database_names: Iterator[int],
    database_shape: object,
    spare_databases: list[str],
) -> Iterator[str]:
    """An empty, migrated database. Whatever still holds a connection to it afterwards is cut off."""
    name = (
        spare_databases.pop()
        if spare_databases
        else _copy(postgres_server, database_template, f"test_{next(database_names)}")
    )
    yield postgres_server.url(name)
    with postgres_server.connect(name) as connection:
        connection.execute(_CUT_OFF)
        connection.execute(_EMPTY)
        as_made = connection.execute(_SHAPE).fetchone() == database_shape
    if as_made:
        spare_databases.append(name)
        return
    with postgres_server.connect() as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


_CUT_OFF = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

_EMPTY = """
DO $$
DECLARE
  name text; holds bool; filled text[] := '{}';
BEGIN
  FOR name IN SELECT quote_ident(relname) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
  LOOP
    EXECUTE 'SELECT EXISTS (SELECT FROM ' || name || ')' INTO holds;
    IF holds THEN filled := filled || name; END IF;
  END LOOP;
  IF filled <> '{}' THEN
    EXECUTE 'TRUNCATE ' || array_to_string(filled, ', ') || ' RESTART IDENTITY CASCADE';
  END IF;
END $$
"""

# What a test may have left beside rows: tables and columns of its own, and what the planner has learned of rows.
_SHAPE = """
SELECT string_agg(concat_ws(' ', relname, attname, atttypid), ', ' ORDER BY relname, attnum),
  count(*) FILTER (WHERE EXISTS (SELECT FROM pg_statistic WHERE starelid = pg_class.oid))
FROM pg_class LEFT JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0
WHERE relnamespace = 'public'::regnamespace
"""


def _copy(server: PostgresServer, template: str, name: str) -> str:
    with server.connect() as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
    return name


@pytest.fixture(scope="session")
def valkey_server(server_folder: Path) -> Iterator[ValkeyServer]:
    """One Valkey for all tests of this process; for a database of your own take `broker_url`."""
    try:
        server = ValkeyServer(server_folder / "valkey", server_folder / "valkey.log")
    except EmbeddedError as error:
        _missing(error)
    with ExitStack() as ending:
        ending.callback(server.stop)
        server.start()
        yield server


@pytest.fixture(scope="session")
def broker_numbers() -> Iterator[int]:
    return count()


@pytest.fixture
def broker_url(valkey_server: ValkeyServer, broker_numbers: Iterator[int]) -> Iterator[str]:
    """An empty database of the Valkey, as `roost://127.0.0.1:PORT/N`. Channels are not apart: name them per test."""
    url = valkey_server.url(next(broker_numbers) % _VALKEY_DATABASES)
    with redis.Redis.from_url(plain_redis(url)) as client:
        client.flushdb()
    yield url
    with redis.Redis.from_url(plain_redis(url)) as client:
        client.flushdb()


def _missing(error: EmbeddedError) -> None:
    """Skip where a server is not installed, unless CI promised that it is."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(str(error))
    pytest.skip(str(error))
