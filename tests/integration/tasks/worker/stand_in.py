"""A stand-in for the engine child: a real process that speaks the frames and does what each job's options say.

It takes what waits as one batch, up to 64 jobs, and keeps its books in Valkey under `test:`, so that a test sees what
ran however often processes died. Options of a job: `seconds` it takes; `do`: "die" (kill this process while it runs),
"hang" (never end, under `limit_s`), "lose_device", "fail"; `once`: all that only at its first attempt. A job that ran
when a child died is given up at its third attempt. No child gets ready while there is a key `test:stillborn`, and each
refuses to start while there is `test:refused`.

It has the stage's own model from the start. Another it has from its first batch on, and says that the load took
`ROOST_CHILD_LOAD` seconds, which it did not; unless the set `test:unloadable` has the worker's name, a space and the
model: then the batch fails. With the option `load_s` of its first job the load does take as long, under the limit
`load_limit_s`; meanwhile other jobs run. It says that it knows all models, or those that `ROOST_CHILD_KNOWS` lists, and
runs the jobs of others all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time
from typing import Any

import redis

from tasks.frames import Decoder, encode
from tasks.messages import Submission, unpack
from tasks.settings import Settings

BATCH = 64
MODEL = "fake/stand-in"
ATTEMPTS = 3


class StandIn:
    def __init__(self, fd: int, name: str) -> None:
        self.name = name.partition("@")[0]
        self.load_s = float(os.environ.get("ROOST_CHILD_LOAD", "1"))
        self.residents = {MODEL: self.load_s}
        self.line = socket.socket(fileno=fd)
        self.decoder = Decoder()
        self.books = redis.Redis.from_url(Settings().redis_url)
        self.waiting: dict[str, tuple[Submission, int]] = {}
        self.running: dict[str, Submission] = {}
        self.ends = 0.0
        self.loads: dict[str, float] = {}
        self.batch = 0
        self.closing = False

    def serve(self) -> None:
        self.note("sadd", "test:born", os.getpid())
        select.select([], [], [], float(os.environ.get("ROOST_CHILD_DELAY", "0")))
        if self.books.exists("test:stillborn"):
            os._exit(1)
        if self.books.exists("test:refused"):
            self.send("refused", "device_unavailable", "The device is not there.")
            os._exit(1)
        self.note("hset", "test:child", "pid", os.getpid())
        self.send("ready", os.getpid(), Settings().lanes or 1)
        self.send("residents", self.residents)
        if known := os.environ.get("ROOST_CHILD_KNOWS"):
            self.send("knows", known.split(","), False)
        while True:
            self.load()
            if not self.running:
                self.begin()
            ends = [*self.loads.values(), *([self.ends] if self.running else [])]
            patience = max(0.0, min(ends) - time.monotonic()) if ends else None
            readable, _, _ = select.select([self.line], [], [], patience)
            if readable and not self.hear():
                return
            if self.running and time.monotonic() >= self.ends:
                self.finish()

    def hear(self) -> bool:
        data = self.line.recv(1 << 18)
        if not data:
            os._exit(1)
        for frame in self.decoder.feed(data):
            match frame:
                case ["jobs", jobs]:
                    self.take(jobs)
                case ["cancel", ids]:
                    self.cancel(ids)
                case ["handback"]:
                    self.closing = True
                    self.send("returned", list(self.waiting))
                    self.waiting.clear()
                case ["stop"]:
                    return False
        return True

    def take(self, jobs: list[Any]) -> None:
        for key, message, lost in jobs:
            self.note("rpush", "test:told", f"{key} {lost}")
            if lost >= 2 and self.books.hincrby("test:attempts", key, 1) >= ATTEMPTS:
                self.end([key], "failed", "worker_lost")
            elif self.closing:
                self.send("returned", [key])
            else:
                self.waiting[key] = (unpack(message), lost)
                self.need(self.waiting[key][0])

    def need(self, job: Submission) -> None:
        if "load_s" in job.options and job.model not in (*self.residents, *self.loads):
            self.note("rpush", "test:loads", f"{self.name} {job.model}")
            self.loads[job.model] = time.monotonic() + float(str(job.options["load_s"]))
            self.send("loading", job.model, float(str(job.options.get("load_limit_s", 60.0))))

    def load(self) -> None:
        for model in [model for model, end in self.loads.items() if end <= time.monotonic()]:
            del self.loads[model]
            self.residents[model] = self.load_s
            self.send("loaded", model)
            self.send("residents", self.residents)

    def cancel(self, ids: list[str]) -> None:
        self.end([key for key in ids if self.waiting.pop(key, None) or self.running.pop(key, None)], "dropped")

    def begin(self) -> None:
        keys = [key for key, (job, _) in self.waiting.items() if job.model not in self.loads][:BATCH]
        if lonely := [key for key in keys if self.waiting[key][1] >= 2]:
            keys = lonely[:1]
        if not keys:
            return
        taken = {key: self.waiting.pop(key) for key in keys}
        self.running = {key: job for key, (job, _) in taken.items()}
        self.batch += 1
        for model in {job.model for job in self.running.values()} - set(self.residents):
            self.note("rpush", "test:loads", f"{self.name} {model}")
            if self.books.sismember("test:unloadable", f"{self.name} {model}"):
                continue
            self.residents[model] = self.load_s
            self.send("residents", self.residents)
        options = [{} if lost and job.options.get("once") else job.options for job, lost in taken.values()]
        limit = min((float(str(o["limit_s"])) for o in options if "limit_s" in o), default=60.0)
        self.send("started", self.batch, keys, limit)
        for key in keys:
            self.note("hincrby", "test:runs", key, 1)
            self.note("hset", "test:ran", key, self.name)
        if any(o.get("do") == "die" for o in options):
            os.kill(os.getpid(), signal.SIGKILL)
        if any(o.get("do") == "lose_device" for o in options):
            self.send("lost", "a device assertion")
        hang = any(o.get("do") in {"hang", "lose_device"} for o in options)
        self.ends = time.monotonic() + (3600.0 if hang else max(float(str(o.get("seconds", 0.0))) for o in options))

    def finish(self) -> None:
        ended, self.running = self.running, {}
        self.send("ended", self.batch)
        failed = [key for key, job in ended.items() if job.options.get("do") == "fail"]
        unloaded = [key for key, job in ended.items() if job.model not in self.residents]
        self.end(unloaded, "failed", "model_load_failed")
        self.end([key for key in ended if key not in failed and key not in unloaded], "succeeded")
        self.end(failed, "failed", "model_failed")

    def end(self, keys: list[str], status: str, code: str | None = None) -> None:
        if keys:
            for key in keys:
                self.note("hset", "test:ended", key, status)
            self.send("done", [(key, status, 0.001, code) for key in keys])

    def note(self, command: str, *arguments: Any) -> None:
        """Write in the books, through restarts of their server: only then is a job's end told."""
        while True:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                self.books.execute_command(command, *arguments)  # type: ignore[no-untyped-call]
                return
            select.select([], [], [], 0.02)

    def send(self, *parts: Any) -> None:
        self.line.sendall(encode(*parts))


def echo(fd: int) -> None:
    """The fastest child there can be, for measuring: every job is done as soon as it comes."""
    line, decoder, batch = socket.socket(fileno=fd), Decoder(), 0
    line.sendall(encode("ready", os.getpid(), 1))
    while data := line.recv(1 << 18):
        for frame in decoder.feed(data):
            if frame[0] == "jobs":
                batch += 1
                ids = [job[0] for job in frame[1]]
                done = [(key, "succeeded", 0.001, None) for key in ids]
                line.sendall(encode("started", batch, ids, 60.0) + encode("ended", batch) + encode("done", done))
            elif frame[0] == "handback":
                line.sendall(encode("returned", []))
            elif frame[0] == "stop":
                return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--echo", action="store_true")
    arguments = parser.parse_args()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != arguments.parent:
        return
    if arguments.echo:
        echo(arguments.fd)
    else:
        StandIn(arguments.fd, arguments.name).serve()


if __name__ == "__main__":
    main()
