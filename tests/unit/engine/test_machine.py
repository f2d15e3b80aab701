from __future__ import annotations

import os

import numpy as np
import pytest

from engine import machine


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the system's files say, by their path; those not named are not there."""
    files: dict[str, str] = {}
    monkeypatch.setattr(machine, "_read", lambda path: files.get(path, ""))
    return files


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ("model name\t: Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz\n", "intel-xeon-gold-6130"),
        ("model name\t: AMD EPYC 7B13 64-Core Processor\n", "amd-epyc-7b13"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "arm-0x41-0xd0c"),
    ],
)
def test_a_processor_has_one_short_name_on_all_machines(told: dict[str, str], facts: str, name: str) -> None:
    told["/proc/cpuinfo"] = facts * 2
    assert machine.processor() == name


def test_a_processor_without_a_name_has_that_of_its_kind(told: dict[str, str]) -> None:
    assert machine.processor() == machine.slug(os.uname().machine)


def test_a_container_s_memory_is_free_where_only_files_fill_it(told: dict[str, str]) -> None:
    told["/proc/meminfo"] = "MemAvailable:    1000000 kB\n"
    told["/sys/fs/cgroup/memory.max"] = "1000"
    told["/sys/fs/cgroup/memory.current"] = "900"
    told["/sys/fs/cgroup/memory.stat"] = "anon 300\ninactive_file 600\n"
    assert machine.free_bytes(1000) == 700


def test_without_a_limit_the_machine_s_own_word_counts(told: dict[str, str]) -> None:
    told["/proc/meminfo"] = "MemAvailable:    2 kB\n"
    told["/sys/fs/cgroup/memory.max"] = "max"
    told["/sys/fs/cgroup/memory.current"] = "900"
    assert machine.free_bytes(10_000) == 2048


def test_a_container_with_a_limit_is_a_device_of_its_own(told: dict[str, str]) -> None:
    assert machine.identity() == "cpu"
    told["/sys/fs/cgroup/memory.max"] = "1000"
    assert machine.identity().startswith("cpu-")


def test_the_largest_processes_are_told_and_this_one_is_not_among_them() -> None:
    block = np.ones(2**20, dtype=np.uint8)
    users = machine.users(3)
    assert len(users) <= 3
    assert os.getpid() not in {use.pid for use in users}
    assert list(users) == sorted(users, key=lambda use: -use.bytes)
    del block
