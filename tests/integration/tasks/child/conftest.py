"""A real engine child on the other end of a socket, as its Celery parent has it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgpack
import pytest
import redis
import yaml

from tasks.frames import Decoder, encode
from tasks.messages import Submission, pack
from tasks.settings import plain_redis

PATIENCE_S = 30.0


class Child:
    """Frames out, frames in, each with a time limit."""

    def __init__(self, process: subprocess.Popen[bytes], line: socket.socket) -> None:
        self.process = process
        self._line = line
        self._decoder = Decoder()
        self._seen: list[list[Any]] = []

    def send(self, *parts: Any) -> None:
        self._line.sendall(encode(*parts))

    def run(self, *jobs: Submission, lost: int = 0) -> None:
        self.send("jobs", [[str(job.id), pack(job), lost] for job in jobs])

    def next(self, kind: str) -> list[Any]:
        """The next frame of this kind; frames of other kinds stay for later."""
        while True:
            for index, frame in enumerate(self._seen):
                if frame[0] == kind:
                    del self._seen[index]
                    return frame
            data = self._line.recv(1 << 16)
            assert data, f"the child ended before it sent {kind!r}"
            self._seen.extend(self._decoder.feed(data))

    def done(self, count: int) -> dict[str, str]:
        """Status by job id, once `count` jobs are done."""
        found: dict[str, str] = {}
        while len(found) < count:
            found |= {key: status for key, status, *_ in self.next("done")[1]}
        return found

    def ended(self) -> bool:
        """Whether the child has closed the line."""
        while True:
            data = self._line.recv(1 << 16)
            if not data:
                return True
            self._seen.extend(self._decoder.feed(data))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)


StartChild = Callable[..., Child]


@pytest.fixture
def start_child(database_url: str, broker_url: str, tmp_path: Path) -> Iterator[StartChild]:
    """Start a child with models of the fake family, by name and load options, and settings by name."""
    with ExitStack() as ending:

        def start(models: dict[str, dict[str, Any]] | None = None, *, ready: bool = True, **settings: object) -> Child:
            for name, load in (models or {}).items():
                spec = {
                    "id": name,
                    "family": "fake",
                    "tasks": {"encode": {"dims": 8}},
                    "parameters": 0,
                    "max_length": 512,
                    "load": load,
                }
                (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(spec))
            values = {
                "database_url": database_url,
                "broker_url": broker_url,
                "catalog": tmp_path,
                "device": "cpu",
                "job_lease_s": 3,
                "ledger_dir": tmp_path / "ledger",
                **settings,
            }
            ours, theirs = socket.socketpair()
            ours.settimeout(PATIENCE_S)
            process = subprocess.Popen(
                [sys.executable, "-m", "tasks.child", "--fd", str(theirs.fileno()), "--name", "cpu@test"],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **{f"ROOST_{key.upper()}": str(value) for key, value in values.items()}},
            )
            theirs.close()
            child = Child(process, ours)
            ending.callback(ours.close)
            ending.callback(child.kill)
            if ready:
                child.next("ready")
            return child

        yield start


@pytest.fixture
def hear(broker_url: str) -> Iterator[Callable[..., Callable[[], bytes]]]:
    """Listen to channels from now on; each call of what this gives is the next message."""
    with redis.Redis.from_url(plain_redis(broker_url)) as client, client.pubsub() as heard:

        def told() -> bytes:
            message = heard.get_message(timeout=PATIENCE_S)
            assert message is not None, "nothing was told"
            return bytes(message["data"])

        def start(*channels: str) -> Callable[[], bytes]:
            heard.subscribe(*channels)
            for _ in channels:
                assert heard.get_message(timeout=PATIENCE_S) is not None
            return told

        yield start


@pytest.fixture
def texts() -> Callable[..., bytes]:
    """Inputs of a job from its texts."""

    def make(*words: str) -> bytes:
        return bytes(msgpack.packb([{"text": word} for word in words]))

    return make
