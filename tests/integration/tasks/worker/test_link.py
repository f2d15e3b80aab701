"""The link to a child that does not behave: it dies oddly, talks nonsense, reads slowly or will not end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tasks.worker.link import EngineLink

CHILD = """
import os, socket, subprocess, sys, time
from tasks.frames import Decoder, encode
line = socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1]))
line.sendall(encode("ready", os.getpid()))
"""


class Heard:
    """A link, and what it told us."""

    def __init__(self, script: str) -> None:
        self.frames: list[Sequence[Any]] = []
        self.lost: list[str] = []
        self.starts = 0
        self.link = EngineLink(
            (sys.executable, "-c", CHILD + script),
            "w@host",
            on_frame=self.frames.append,
            on_started=self._started,
            on_lost=self.lost.append,
        )
        self.link.start()

    def _started(self) -> None:
        self.starts += 1

    def pump_until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + 10.0
        while not condition():
            assert time.monotonic() < end
            self.link.pump(0.05)


@pytest.fixture
def child() -> Iterator[Callable[[str], Heard]]:
    heard: list[Heard] = []

    def start(script: str) -> Heard:
        heard.append(Heard(script))
        return heard[-1]

    yield start
    for one in heard:
        one.link.close(0.0)


def test_a_child_that_dies_is_replaced_after_a_growing_pause(child: Callable[[str], Heard]) -> None:
    heard = child("os._exit(3)")
    heard.pump_until(lambda: heard.starts == 3)
    assert len(heard.lost) == 2


def test_the_pause_is_short_again_once_a_child_has_worked(child: Callable[[str], Heard]) -> None:
    heard = child("os._exit(3)")
    heard.pump_until(lambda: heard.starts == 4)
    heard.link.started_well()
    heard.pump_until(lambda: len(heard.lost) == 4)
    began = time.monotonic()
    heard.pump_until(lambda: heard.starts == 5)
    assert time.monotonic() - began < 0.4


def test_last_words_are_heard_before_the_loss(child: Callable[[str], Heard]) -> None:
    heard = child('line.sendall(encode("done", [["job", "succeeded", 0.1, None]])); os.kill(os.getpid(), 9)')
    heard.pump_until(lambda: heard.lost)
    assert [frame[0] for frame in heard.frames] == ["ready", "done"]
    assert "SIGKILL" in heard.lost[0]


def test_nonsense_ends_the_child(child: Callable[[str], Heard]) -> None:
    heard = child('line.sendall(b"\\xff" * 64); time.sleep(60)')
    heard.pump_until(lambda: heard.lost)
    assert "no frame" in heard.lost[0]


def test_a_child_that_ended_while_its_own_child_keeps_the_socket_is_noticed(child: Callable[[str], Heard]) -> None:
    heard = child('subprocess.Popen(["sleep", "3"], pass_fds=[line.fileno()]); os._exit(0)')
    heard.pump_until(lambda: heard.lost)
    assert heard.lost == ["it ended"]


def test_more_than_the_socket_takes_arrives_whole(child: Callable[[str], Heard]) -> None:
    heard = child(
        """
time.sleep(0.3)
decoder, size = Decoder(), 0
while size < 20_000_000:
    for frame in decoder.feed(line.recv(1 << 16)):
        size += len(frame[1])
line.sendall(encode("got", size))
time.sleep(60)
"""
    )
    for _ in range(10):
        heard.link.send("jobs", b"x" * 2_000_000)
    heard.pump_until(lambda: ["got", 20_000_000] in heard.frames)


def test_an_obedient_child_ends_by_itself(child: Callable[[str], Heard]) -> None:
    heard = child("assert next(Decoder().feed(line.recv(4096))) == ['stop']")
    heard.pump_until(lambda: heard.frames)
    heard.link.close(5.0)
    assert not heard.lost
    assert heard.link.pid == 0


def test_a_stubborn_child_is_killed_in_time(child: Callable[[str], Heard]) -> None:
    heard = child("time.sleep(60)")
    heard.pump_until(lambda: heard.frames)
    began = time.monotonic()
    heard.link.close(0.2)
    assert time.monotonic() - began < 2.0
    assert not heard.link.alive


def test_no_thread_is_started(child: Callable[[str], Heard]) -> None:
    before = threading.active_count()
    heard = child("time.sleep(60)")
    heard.pump_until(lambda: heard.frames)
    assert threading.active_count() == before
