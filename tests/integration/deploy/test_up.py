"""`roost up` as a user meets it: one real command, its output, its signals, its folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import redis

from deploy.embedded import family, report
from deploy.embedded.ports import free_port
from deploy.environment import shown
from tasks.settings import Settings, plain_redis

pytestmark = pytest.mark.slow

READY_S = 60


class Up:
    """A `roost up` that runs."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "ROOST_DATA_DIR": str(folder),
            "ROOST_PORT": "0",
            "ROOST_FLOWER_PORT": str(free_port()),
            "ROOST_DEVICE": "cpu",
            **settings,
        }
        self._running = subprocess.Popen(
            [sys.executable, "-m", "deploy.cli", "up"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []

    @property
    def pid(self) -> int:
        return self._running.pid

    def until(self, word: str) -> str:
        """Read what it prints up to a line that has this word. Fails with all that was printed if it ends before."""
        assert self._running.stdout is not None
        for line in self._running.stdout:
            self.lines.append(line)
            if word in line:
                return line
        raise AssertionError("".join(self.lines))

    def report(self) -> report.Report:
        found = report.read(self.folder)
        assert found is not None
        return found

    def pids(self) -> dict[str, int]:
        return {piece.name: piece.pid for piece in self.report().pieces}

    def roost(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another `roost` command on the same folder."""
        command = [sys.executable, "-m", "deploy.cli", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=90)

    def signal(self, number: signal.Signals) -> None:
        self._running.send_signal(number)

    def end(self) -> int:
        """Its exit status, once it has ended."""
        rest, _ = self._running.communicate(timeout=90)
        self.lines.append(rest)
        return self._running.returncode

    def close(self) -> None:
        if self._running.poll() is None:
            self._running.kill()
            self._running.communicate()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that an unprivileged account may enter."""
    made = Path(tempfile.mkdtemp(prefix="roost-up-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def up(folder: Path) -> Iterator[Callable[..., Up]]:
    """Start `roost up` and wait until it says that it is ready."""
    started: list[Up] = []

    def start(**settings: str) -> Up:
        started.append(Up(folder, **settings))
        started[-1].until("ready in")
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_one_command_runs_it_all_restarts_what_dies_and_keeps_the_data(up: Callable[..., Up]) -> None:
    first = up()
    before = first.pids()
    assert set(before) == {"valkey", "postgres", "api", "cpu", "chores", "beat", "feeder", "sender", "flower"}
    printed = [line.split()[0] for line in first.lines if line.startswith("ROOST_")]
    assert printed == [row.variable for row in shown(Settings())]
    status = json.loads(first.roost("status", "--json").stdout)
    assert status["ready"]
    assert "//roost:***@" in status["urls"]["database"]
    assert "//:***@" in status["urls"]["broker"]

    # A second one is refused, and changes nothing.
    second = first.roost("up")
    assert second.returncode == 1
    assert f"pid {first.pid}" in second.stderr

    # What dies comes back.
    os.kill(before["chores"], signal.SIGKILL)
    assert first.until("chores ended") == "chores ended (SIGKILL); starting it again in 0.2 s\n"

    # A job, then the end, then the same job again from the same folder.
    job = _done_job(status["urls"]["api"])
    first.signal(signal.SIGINT)
    assert first.end() == 0
    assert "stopped cleanly" in "".join(first.lines)
    assert not [name for name, pid in before.items() if family.started_at(pid)]
    assert first.roost("status").returncode == 3

    again = up()
    url = again.report().urls["api"]
    assert httpx.get(f"{url}/v1/jobs/{job}").json()["status"] == "succeeded"
    assert again.roost("down").stdout == "stopped\n"
    assert again.end() == 0


def test_nothing_outlives_a_killed_stack_and_its_folder_starts_again(up: Callable[..., Up]) -> None:
    killed = up()
    pids = killed.pids()
    below = [one for pid in pids.values() for one in family.descendants(pid)]

    killed.signal(signal.SIGKILL)
    killed.end()

    assert [pid for pid in [*pids.values(), *below] if not family.gone(pid, 20)] == []
    assert up().report().ready


def test_servers_that_have_an_address_are_used_and_an_evicting_broker_is_warned_of(
    up: Callable[..., Up], database_url: str, broker_url: str
) -> None:
    stock = plain_redis(broker_url)
    with redis.Redis.from_url(stock) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            one = up(ROOST_DATABASE_URL=database_url, ROOST_BROKER_URL=stock, ROOST_FLOWER_PORT="0")
        finally:
            client.config_set("maxmemory-policy", "noeviction")

    assert set(one.pids()) == {"api", "cpu", "chores", "beat", "feeder", "sender"}
    assert [line for line in one.lines if line.startswith("WARNING: the broker's maxmemory-policy is allkeys-lru")]
    _done_job(one.report().urls["api"])
    one.signal(signal.SIGTERM)
    assert one.end() == 0


def _done_job(url: str) -> str:
    body = {"verb": "encode", "model": "roost/fake", "items": ["a text to keep"]}
    job = httpx.post(f"{url}/v1/jobs", json=body, headers={"Prefer": "wait=30"}, timeout=60).json()
    assert job["status"] == "succeeded", job
    return str(job["id"])
