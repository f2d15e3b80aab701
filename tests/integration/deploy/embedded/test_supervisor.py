from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.embedded.errors import EmbeddedError, NotReadyError
from deploy.embedded.piece import Program
from deploy.embedded.process import Command
from deploy.embedded.stop_request import StopRequest
from deploy.embedded.supervisor import Supervisor

WAITING = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
)
DEAF = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)


class Story:
    """What a supervisor said, and a pipe that ends its watch as soon as it has said enough."""

    def __init__(self, enough: Callable[[list[str]], bool]) -> None:
        self.lines: list[str] = []
        self._enough = enough
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        return self._read

    def hear(self, line: str) -> None:
        self.lines.append(line)
        self.check()

    def check(self) -> None:
        if self._enough(self.lines):
            os.write(self._write, b"!")

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    def make(name: str, script: str, stop_timeout_s: float = 5.0) -> Program:
        log = tmp_path / f"{name}.log"
        command = Command(name, (sys.executable, "-c", script), log, stop_timeout_s=stop_timeout_s)
        return Program(command, ready=lambda _: log.exists() and log.read_text().endswith("up\n"))

    return make


@pytest.fixture
def supervised() -> Iterator[Callable[..., tuple[Supervisor, Story]]]:
    made: list[tuple[Supervisor, Story]] = []

    def make(enough: Callable[[list[str]], bool] = lambda _: False) -> tuple[Supervisor, Story]:
        story = Story(enough)
        made.append((Supervisor(story.hear, story.check), story))
        return made[-1]

    yield make
    for supervisor, story in made:
        supervisor.stop()
        story.close()


def test_a_piece_that_dies_is_started_again(
    program: Callable[..., Program], supervised: Callable[..., tuple[Supervisor, Story]]
) -> None:
    piece = program("waiting", WAITING)
    first: list[int] = []
    supervisor, story = supervised(lambda _: bool(first) and piece.process.alive and piece.process.pid != first[0])
    supervisor.begin(piece)
    piece.await_ready(10)
    first.append(piece.process.pid)

    piece.process.send(signal.SIGKILL)
    supervisor.watch(story)

    assert story.lines == ["waiting ended (SIGKILL); starting it again in 0.2 s"]
    assert piece.process.alive


def test_a_piece_that_keeps_dying_is_started_less_and_less_often(
    program: Callable[..., Program], supervised: Callable[..., tuple[Supervisor, Story]]
) -> None:
    supervisor, story = supervised(lambda lines: len(lines) == 3)
    supervisor.begin(program("dying", "raise SystemExit(7)"))

    supervisor.watch(story)

    assert story.lines == [f"dying ended (status 7); starting it again in {delay} s" for delay in ("0.2", "0.4", "0.8")]


def test_a_death_before_the_watch_began_is_seen(
    program: Callable[..., Program], supervised: Callable[..., tuple[Supervisor, Story]]
) -> None:
    supervisor, story = supervised(bool)
    piece = program("dying", "raise SystemExit(7)")
    supervisor.begin(piece)
    assert piece.process.wait(10)

    supervisor.watch(story)

    assert len(story.lines) == 1


def test_a_stop_names_what_had_to_be_killed(
    program: Callable[..., Program], supervised: Callable[..., tuple[Supervisor, Story]]
) -> None:
    supervisor, _ = supervised()
    pieces = [program("waiting", WAITING), program("deaf", DEAF, stop_timeout_s=0.2)]
    supervisor.begin(*pieces)
    for piece in pieces:
        piece.await_ready(10)

    assert supervisor.stop() == ["deaf"]
    assert [piece.process.alive for piece in pieces] == [False, False]


def test_a_signal_ends_the_watch_without_an_exception(supervised: Callable[..., tuple[Supervisor, Story]]) -> None:
    supervisor, _ = supervised()
    with StopRequest() as request:
        request.raising = False
        sender = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGTERM))
        sender.start()
        supervisor.watch(request)
        sender.join()

        assert request.received is signal.SIGTERM


def test_a_signal_during_the_start_interrupts_it() -> None:
    with StopRequest() as request, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

    assert request.received is signal.SIGINT


class Unstartable(Program):
    """A piece whose very start fails."""

    def begin(self) -> None:
        raise EmbeddedError("no room")


def test_a_start_that_fails_leaves_the_rest_to_be_stopped(
    program: Callable[..., Program], supervised: Callable[..., tuple[Supervisor, Story]], tmp_path: Path
) -> None:
    supervisor, _ = supervised()
    first = program("waiting", WAITING)
    with pytest.raises(EmbeddedError, match="no room"):
        supervisor.begin(first, Unstartable(Command("never", ("/bin/true",), tmp_path / "log")))

    supervisor.stop()

    assert not first.process.alive


def test_the_first_two_deaths_of_a_piece_are_told_with_the_end_of_its_log(
    program: Callable[..., Program], supervised: Callable[..., tuple[Supervisor, Story]]
) -> None:
    supervisor, story = supervised(lambda lines: len(lines) == 3)
    supervisor.begin(program("dying", "raise SystemExit('no such thing')"))

    supervisor.watch(story)

    assert [line.partition("\n")[2] for line in story.lines] == ["  no such thing", "  no such thing", ""]


def test_a_piece_whose_child_dies_again_and_again_is_given_up_with_the_end_of_its_log(tmp_path: Path) -> None:
    said: list[str] = []
    script = "import signal\nfor n in range(3): print('no memory\\nchild lost', flush=True)\nsignal.pause()"
    command = Command("worker", (sys.executable, "-c", script), tmp_path / "log")
    piece = Program(command, ready=lambda _: False, fall="child lost", say=said.append)
    piece.begin()
    try:
        with pytest.raises(NotReadyError, match=r"worker: child lost, 3 times:(.|\n)*no memory"):
            piece.await_ready(30)
    finally:
        piece.process.kill()


def test_the_first_death_of_a_child_is_told_while_its_piece_is_awaited(tmp_path: Path) -> None:
    said: list[str] = []
    script = "import signal; print('no memory\\nchild lost', flush=True); signal.pause()"
    command = Command("worker", (sys.executable, "-c", script), tmp_path / "log")
    piece = Program(command, ready=lambda _: bool(said), fall="child lost", say=said.append)
    piece.begin()
    try:
        piece.await_ready(30)
    finally:
        piece.process.kill()

    assert said == ["worker: child lost; it is started again:\n  no memory\n  child lost"]
