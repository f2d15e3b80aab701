from __future__ import annotations

import os

import pytest

from tests.bench.usage import CLIENT, Meter, Spent, peak_mib, role_of


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("/x/bin/postgres -D /tmp/data", "postgres"),
        ("postgres: roost roost 127.0.0.1(1) idle", "postgres"),
        ("/x/valkey-server 127.0.0.1:6379", "valkey"),
        ("python -m tasks.child --fd 9 --name w", "child"),
        ("python -m celery -A tasks.celery flower --port=5555", "flower"),
        ("python -m celery -A tasks.celery beat", "beat"),
        ("python -m celery -A tasks.celery worker -Q jobs.sweep", "sweeper"),
        ("python -m celery -A tasks.celery worker -n w@host", "parent"),
        ("python -m uvicorn api.app:app", "api"),
    ],
)
def test_a_command_line_tells_the_part(line: str, role: str) -> None:
    assert role_of(line.split()) == role


def test_an_unknown_command_goes_by_its_own_name() -> None:
    assert role_of(["/bin/cat", "-"], "cat") == "cat"


def test_work_is_counted_as_the_clients_own() -> None:
    meter = Meter()
    meter.opened()
    sum(n * n for n in range(2_000_000))
    meter.closed()
    assert meter.spent.cpu[CLIENT] > 0
    assert 0 < meter.spent.share(CLIENT) <= 1.5


def test_processor_time_is_shared_out_over_the_jobs() -> None:
    assert Spent(2.0, {"api": 0.5, "child": 1.0}).per(1000) == {"child": 1000.0, "api": 500.0}


def test_no_jobs_means_no_time_a_job() -> None:
    assert Spent(2.0, {"api": 0.5}).per(0) == {}


def test_the_peak_of_a_process_is_known_on_linux() -> None:
    assert peak_mib(os.getpid()) > 1


def test_what_strangers_took_is_never_less_than_nothing() -> None:
    assert Spent(2.0, {}, elsewhere=1.0).others == 0.5
    assert Spent(2.0, {}, elsewhere=-0.01).others == 0.0
