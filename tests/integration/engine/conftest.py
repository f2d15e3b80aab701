"""Real processes that share a device, and the device, which is what a file says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.device import Device
from engine.shared_account import SharedAccount
from tests.integration.engine.member import FileDevice

TOTAL, RESERVE = 1000, 100


class Member:
    """One process on the device."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = int(self._hear())

    def call(self, *words: Any) -> Any:
        """What the process answers."""
        self.begin(*words)
        return self._hear()

    def begin(self, *words: Any) -> None:
        """Have it do something and go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def end(self) -> Any:
        """The answer to what was begun."""
        return self._hear()

    def hold(self, held: int, pending: int = 0) -> bool:
        return bool(self.call("hold", held, pending))

    def kill(self) -> None:
        """`kill -9`, and wait until it is gone."""
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> None:
        """`kill -STOP`, and wait until it has stopped."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def _hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)


class Card:
    """The device's file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.say(TOTAL)

    def say(self, free: int, total: int = TOTAL, pids: tuple[int, ...] = ()) -> None:
        """Let the device have so much free, less what these processes really take."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps({"total": total, "free": free, "pids": pids}))
        fresh.replace(self.file)

    def device(self) -> Device:
        return FileDevice(self.file)


@pytest.fixture
def card(tmp_path: Path) -> Card:
    return Card(tmp_path / "device.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the account is kept; not there yet."""
    return tmp_path / "ledger"


@pytest.fixture
def join(card: Card, folder: Path) -> Iterator[Callable[..., Member]]:
    """Start a process on the device."""
    with ExitStack() as ending:

        def start(reserve: int = RESERVE, device: str = "") -> Member:
            words = [str(folder), device or str(card.file), str(reserve)]
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.engine.member", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            ending.callback(_end, process)
            return Member(process)

        yield start


@pytest.fixture
def account(card: Card, folder: Path) -> Iterator[SharedAccount]:
    """This process's own part in the account."""
    own = SharedAccount(card.device(), folder, RESERVE)
    yield own
    own.close()


@pytest.fixture
def kill_later() -> Iterator[Callable[[int], None]]:
    """End a process by its pid when the test is over."""
    with ExitStack() as ending:
        yield lambda pid: _push(ending, pid)


def _push(ending: ExitStack, pid: int) -> None:
    ending.callback(_kill, pid)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(30)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
