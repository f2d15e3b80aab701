from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded import family
from deploy.embedded.errors import NotReadyError
from deploy.embedded.process import Command, Process

TIDY = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
)
DEAF = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)
PARENT = (
    "import subprocess, sys; child = subprocess.Popen(['sleep', '60'], start_new_session=True); "
    "print(child.pid, flush=True); child.wait()"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "process.log"


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    made: list[Process] = []
    yield made
    for process in made:
        process.kill()


def _start(processes: list[Process], log: Path, script: str, *, stop_timeout_s: float = 10.0) -> Process:
    process = Process(Command("script", (sys.executable, "-c", script), log, stop_timeout_s=stop_timeout_s))
    processes.append(process)
    process.start()
    return process


def test_a_process_runs_in_a_session_of_its_own_and_logs_to_its_file(processes: list[Process], log: Path) -> None:
    process = _start(processes, log, TIDY)
    process.await_ready(lambda: process.log_tail() == "up\n", 10)

    assert os.getsid(process.pid) == process.pid
    assert process.alive


def test_a_stop_that_is_heeded_is_clean(processes: list[Process], log: Path) -> None:
    process = _start(processes, log, TIDY)
    process.await_ready(lambda: "up" in process.log_tail(), 10)

    assert process.stop()
    assert process.returncode == 0


def test_a_process_that_ignores_the_stop_is_killed_in_time(processes: list[Process], log: Path) -> None:
    process = _start(processes, log, DEAF, stop_timeout_s=0.1)
    process.await_ready(lambda: "up" in process.log_tail(), 10)

    assert not process.stop()
    assert process.returncode == -signal.SIGKILL


def test_a_kill_takes_along_what_the_process_started(processes: list[Process], log: Path) -> None:
    process = _start(processes, log, PARENT)
    process.await_ready(lambda: process.log_tail().endswith("\n"), 10)
    child = int(process.log_tail())
    assert family.descendants(process.pid) == [child]

    process.kill()

    assert not family.started_at(child)


def test_an_end_before_it_is_ready_is_reported_with_the_log(processes: list[Process], log: Path) -> None:
    process = _start(processes, log, "import sys; print('no such thing'); sys.exit(3)")

    with pytest.raises(NotReadyError, match=r"status 3:\nno such thing"):
        process.await_ready(lambda: False, 10)


def test_silence_is_reported_when_the_time_is_over(processes: list[Process], log: Path) -> None:
    process = _start(processes, log, TIDY)

    with pytest.raises(NotReadyError, match="not ready within"):
        process.await_ready(lambda: False, 0.1)


def test_a_process_dies_with_the_one_that_started_it(tmp_path: Path) -> None:
    script = f"""
import signal, sys
from pathlib import Path
from deploy.embedded.process import Command, Process
process = Process(Command("sleeper", ("/bin/sleep", "60"), Path({str(tmp_path / "log")!r})))
process.start()
print(process.pid, flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        sleeper = int(starter.stdout.readline())
        starter.kill()
        starter.wait()

    assert family.gone(sleeper, 5)


def test_a_log_that_has_grown_long_is_put_aside_at_the_next_start(processes: list[Process], log: Path) -> None:
    with log.open("wb") as file:
        file.truncate(64 * 2**20)

    process = _start(processes, log, TIDY)
    process.await_ready(lambda: process.log_tail() == "up\n", 10)

    assert log.with_suffix(".log.1").stat().st_size == 64 * 2**20


def test_a_report_of_an_end_tells_nothing_of_earlier_runs(processes: list[Process], log: Path) -> None:
    log.write_text("an old mistake\n")
    process = _start(processes, log, "import sys; print('a new mistake'); sys.exit(3)")

    with pytest.raises(NotReadyError, match=r"status 3:\na new mistake"):
        process.await_ready(lambda: False, 10)
