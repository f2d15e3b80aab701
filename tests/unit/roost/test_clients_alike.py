"""The two clients have the same calls, and need nothing that is not theirs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from roost.client import AsyncClient, AsyncJob, Client, Job

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("one", "other"), [(Client, AsyncClient), (Job, AsyncJob)])
def test_both_have_the_same_calls_with_the_same_arguments(one: type, other: type) -> None:
    def calls(kind: type) -> dict[str, list[tuple[str, object, object]]]:
        return {
            name: [(p.name, p.kind, p.default) for p in inspect.signature(member).parameters.values()]
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert calls(one) == calls(other)
    assert len(calls(one)) > 5


def test_the_client_loads_nothing_of_the_service_and_nothing_heavy() -> None:
    code = (
        "import sys; from roost.client import Client, AsyncClient; from roost import Client as same;"
        "assert Client is same;"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded = set(eval(done.stdout))  # noqa: S307 - the names that the line above printed
    assert {"roost", "httpx", "msgpack", "numpy"} <= loaded
    foreign = {"api", "tasks", "engine", "catalog", "deploy", "torch", "pydantic", "PIL", "orjson", "redis"}
    assert not loaded & foreign
