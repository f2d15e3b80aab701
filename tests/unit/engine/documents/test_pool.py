"""The pool with a converter that misbehaves on demand: real processes, no library."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from engine.documents.errors import ConversionFailed, ConverterDied, Damaged, TimedOut, TooLarge
from engine.documents.pool import Pool, PoolClosed
from engine.documents.process import Order
from engine.errors import LoadFailed, LoadReason

STUB = "tests.unit.engine.documents.stubs:Stub"
MIB = 2**20


def new_pool(processes: int = 1, memory: int = 0, fat: int = 0, **settings: Any) -> Pool:
    return Pool(Order("stub", STUB, settings, memory=memory), processes=processes, load_s=60, fat=fat)


@pytest.fixture
def pool() -> Iterator[Pool]:
    found = new_pool(memory=300 * MIB)
    found.start()
    yield found
    found.close()


def text(pool: Pool, said: str, seconds: float = 30.0, until: float | None = None) -> Any:
    found = pool.convert({"data": said.encode()}, seconds, until)
    return found["text"] if isinstance(found, dict) else found


@pytest.mark.parametrize("endless", ["sleep", "spin"])
def test_a_document_that_never_ends_takes_its_process_with_it_and_the_next_ones_are_read(
    pool: Pool, endless: str
) -> None:
    began = time.monotonic()
    before = pool.pids
    found = text(pool, endless, seconds=0.5)
    assert isinstance(found, TimedOut)
    assert 0.5 <= time.monotonic() - began < 3
    assert [text(pool, f"file {i}") for i in range(10)] == [f"FILE {i}" for i in range(10)]
    assert pool.pids != before
    assert not psutil.pid_exists(before[0])


def test_a_deadline_ends_a_document_before_its_own_limit(pool: Pool) -> None:
    began = time.monotonic()
    assert isinstance(text(pool, "sleep", seconds=60, until=began + 0.4), TimedOut)
    assert 0.4 <= time.monotonic() - began < 3


def test_a_converter_is_told_to_end_by_itself_before_it_is_killed(pool: Pool) -> None:
    found = pool.convert({"data": b"x"}, 10.0)
    assert isinstance(found, dict)
    assert 8 < found["soft_s"] < 10


@pytest.mark.parametrize(("fate", "how"), [("die", "SIGSEGV"), ("exit", "ended by itself \\(3\\)")])
def test_a_document_that_kills_its_process_fails_alone(pool: Pool, fate: str, how: str) -> None:
    found = text(pool, fate)
    assert isinstance(found, ConverterDied)
    assert not found.retryable
    with pytest.raises(ConverterDied, match=how):
        raise found
    assert text(pool, "next") == "NEXT"


def test_a_document_that_eats_memory_is_stopped_at_the_bound(pool: Pool) -> None:
    pid = pool.pids
    assert isinstance(text(pool, "eat"), TooLarge)
    assert text(pool, "next") == "NEXT"
    assert pool.pids == pid


def test_a_process_that_has_grown_fat_is_replaced() -> None:
    pool = new_pool(fat=60 * MIB)
    pool.start()
    try:
        thin = pool.pids
        assert text(pool, "next") == "NEXT"
        assert pool.pids == thin
        assert text(pool, "grow") == "GROW"
        assert pool.pids != thin
        assert text(pool, "next") == "NEXT"
    finally:
        pool.close()


def test_errors_keep_their_code_and_tell_nothing_of_the_document(pool: Pool) -> None:
    assert isinstance(text(pool, "damaged"), Damaged)
    secret = text(pool, "secret")
    assert isinstance(secret, ConversionFailed)
    assert "ValueError" in secret.message
    assert "secret" not in secret.message
    assert isinstance(text(pool, "deep"), TooLarge)


def test_several_processes_work_side_by_side() -> None:
    pool = new_pool(processes=2)
    pool.start()
    try:
        held = threading.Thread(target=text, args=(pool, "sleep", 1.0))
        held.start()
        began = time.monotonic()
        assert text(pool, "beside") == "BESIDE"
        assert time.monotonic() - began < 1.0
        held.join()
    finally:
        pool.close()


def test_closing_ends_a_document_that_is_being_read() -> None:
    pool = new_pool()
    pool.start()
    pids, met = pool.pids, []

    def read() -> None:
        try:
            text(pool, "sleep", 60)
        except PoolClosed as error:
            met.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    pool.close()
    reader.join(10)
    assert len(met) == 1
    assert not psutil.pid_exists(pids[0])
    assert pool.pids == []


def test_a_converter_that_cannot_be_made_fails_the_load_with_its_reason() -> None:
    pool = new_pool(fails=True)
    with pytest.raises(LoadFailed, match="no such weights") as failed:
        pool.start()
    assert failed.value.reason is LoadReason.NOT_FOUND
    assert pool.pids == []


def test_a_process_dies_with_its_owner_whatever_it_computes() -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid, idle = owner.stdout.readline().split()
    child = psutil.Process(int(pid))
    while child.cpu_times().user < float(idle) + 0.2:
        assert child.is_running()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


_OWNER = f"""
import threading
import psutil
from engine.documents.pool import Pool
from engine.documents.process import Order
pool = Pool(Order("stub", "{STUB}", {{}}), processes=1, load_s=60)
pool.start()
idle = psutil.Process(pool.pids[0]).cpu_times().user
threading.Thread(target=pool.convert, args=({{"data": b"spin"}}, 600.0)).start()
print(pool.pids[0], idle, flush=True)
"""
