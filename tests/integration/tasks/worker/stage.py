"""A real worker with a stand-in child, jobs for it, and the books that the stand-in keeps."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import msgpack
import psutil
import redis

from catalog.terms import Lane, Verb
from tasks import keys
from tasks.dispatch import Publisher
from tasks.messages import Submission
from tasks.queues import bucket_of, queue_names
from tasks.settings import Settings, plain_redis

TEXT = "what the user sent"

_SCRIPT = Path(__file__).with_name("stand_in_worker.py")


class Books:
    """What the stand-in children wrote down, and what the broker holds."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(plain_redis(url), decode_responses=True, encoding_errors="replace")

    def born(self) -> int:
        """How many children have started."""
        return self._number(self.client.scard("test:born"))

    def child(self) -> int:
        """The process id of the child that was ready last."""
        return int(self._text(self.client.hget("test:child", "pid")))

    def given(self) -> int:
        """How many jobs the children were given, counting repeats."""
        return self._number(self.client.llen("test:told"))

    def told(self, job: Submission) -> list[int]:
        """The `lost` of each time that a child was given the job."""
        rows = [str(row).split() for row in self.client.lrange("test:told", 0, -1)]
        return [int(lost) for key, lost in rows if key == str(job.id)]

    def runs(self) -> dict[str, int]:
        """How often each job was begun."""
        return {str(key): int(count) for key, count in self.client.hgetall("test:runs").items()}

    def ran(self) -> dict[str, str]:
        """Which worker began each job last."""
        return {str(key): str(name) for key, name in self.client.hgetall("test:ran").items()}

    def loads(self) -> list[tuple[str, str]]:
        """The worker and the model of each load, in order."""
        rows = [str(row).split() for row in self.client.lrange("test:loads", 0, -1)]
        return [(name, model) for name, model in rows]

    def places(self) -> dict[str, str]:
        """What the workers that are alive say of themselves, with until when it holds."""
        return {str(name).partition("@")[0]: str(told) for name, told in self.client.hgetall(keys.PLACES).items()}

    def ended(self) -> dict[str, str]:
        """How each job ended, as it would be committed."""
        return {str(key): str(status) for key, status in self.client.hgetall("test:ended").items()}

    def ended_and_given(self) -> tuple[int, int]:
        """How many jobs have ended and how many were given, at one moment."""
        with self.client.pipeline(transaction=True) as pipe:
            pipe.hlen("test:ended")
            pipe.llen("test:told")
            ended, given = pipe.execute()
        return int(ended), int(given)

    def queued(self) -> int:
        """Messages in the queues."""
        names = [name for queue in queue_names() for name in (queue, keys.tally(queue))]
        return sum(self._number(self.client.llen(name)) for name in names)

    def in_hand(self) -> int:
        """Messages that consumers hold."""
        return self._number(self.client.hlen("unacked"))

    def left(self) -> int:
        """Messages anywhere in the broker, and marks of them."""
        marks = self._number(self.client.zcard("unacked_index")) + self._number(self.client.scard(keys.HELD))
        return self.queued() + self.in_hand() + marks

    @staticmethod
    def _number(value: object) -> int:
        assert isinstance(value, int)
        return value

    @staticmethod
    def _text(value: object) -> str:
        assert isinstance(value, str)
        return value


class Worker:
    """A running `celery worker`."""

    def __init__(self, url: str, log: Path, name: str, settings: dict[str, object]) -> None:
        self._log = log
        self._file = log.open("ab")
        self._process = subprocess.Popen(
            (
                *(sys.executable, str(_SCRIPT), "-P", "solo", "-Q", ",".join(queue_names()), "-n", f"{name}@%h"),
                *("--without-gossip", "--without-mingle", "-l", "info"),
            ),
            env={
                **os.environ,
                "ROOST_BROKER_URL": url,
                **{f"ROOST_{key.upper()}": str(value) for key, value in settings.items()},
            },
            stdout=self._file,
            stderr=subprocess.STDOUT,
        )

    @property
    def said(self) -> str:
        """Its log so far."""
        return self._log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 20.0) -> int:
        return self._process.wait(timeout_s)

    def stop(self, timeout_s: float = 20.0) -> int:
        """Warm shutdown; the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """End the parent at once, and only it: the child must notice by itself."""
        children = psutil.Process(self._process.pid).children()
        self._process.kill()
        self._process.wait()
        _, alive = psutil.wait_procs(children, timeout=5.0)
        assert not alive, "the child outlived its parent"

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._file.close()


class Stage:
    """Everything that a test of the worker needs."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.books = Books(url)
        self.publisher = Publisher(Settings(broker_url=url))
        self._folder = folder
        self._workers: list[Worker] = []

    def job(
        self, cost_ms: float = 1.0, lane: Lane = Lane.INTERACTIVE, model: str = "fake/stand-in", **options: object
    ) -> Submission:
        """A job; its options tell the stand-in what to do."""
        return Submission(
            id=uuid4(),
            caller="caller",
            verb=Verb.ENCODE,
            model=model,
            revision=None,
            lane=lane,
            bucket=bucket_of(cost_ms),
            priority=5,
            options=options,
            inputs=msgpack.packb([{"text": TEXT}]),
            lengths=[4],
            costs=[cost_ms],
            faults={},
            created=time.time(),
            deadline=None,
            retention_s=3600,
        )

    def publish(self, *jobs: Submission) -> None:
        self.publisher.publish_now(jobs)

    def cancel(self, job: Submission) -> None:
        asyncio.run(self._forget(job))

    async def _forget(self, job: Submission) -> None:
        # A client of its own: the loop ends with it.
        publisher = Publisher(Settings(broker_url=self.url))
        await publisher.forget([job.id])
        await publisher.aclose()

    def start(self, name: str = "w", **settings: object) -> Worker:
        """Start a worker with these settings besides the broker's address."""
        worker = Worker(self.url, self._folder / f"worker-{len(self._workers)}.log", name, settings)
        self._workers.append(worker)
        return worker

    def until(self, condition: Callable[[], object], timeout_s: float = 20.0) -> None:
        """Wait for a condition on another process, which has no way to wake us."""
        end, never = time.monotonic() + timeout_s, threading.Event()
        while not condition():
            assert time.monotonic() < end, f"still not so after {timeout_s} s"
            never.wait(0.01)

    def until_all_ended(self, count: int, timeout_s: float = 20.0) -> None:
        """Wait until so many jobs have ended and the broker is empty."""
        self.until(lambda: len(self.books.ended()) == count, timeout_s)
        self.until(lambda: self.books.left() == 0)

    def close(self) -> None:
        """End all that runs, and show what the workers said: pytest prints it if the test failed."""
        for worker in self._workers:
            worker.close()
            print(worker.said)
        self.publisher.close()
        self.books.client.close()
