"""The client installed alone, into an environment with nothing else: it imports, and has only what it says it needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the client alone, built from a copy of its folder."""
    folder = tmp_path_factory.mktemp("alone")
    built = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(ROOT / "roost", folder / "source", ignore=built)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    constraints = str(ROOT / "constraints.txt")
    done = subprocess.run(
        [*pip, "install", "--constraint", constraints, str(folder / "source")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return python


@pytest.mark.slow
def test_the_client_stands_alone(alone: Path) -> None:
    code = (
        "import json, importlib.metadata as m; from importlib.util import find_spec as f;"
        "from roost import AsyncClient, Client; from roost.client import Client as same; assert same is Client;"
        "Client('http://127.0.0.1:1').close();"
        "print(json.dumps([sorted(n for n in ('api', 'tasks', 'torch', 'rich', 'pydantic') if f(n)),"
        " sorted(r.partition('>')[0] for r in m.requires('roost-client'))]))"
    )
    done = subprocess.run(
        [alone, "-I", "-W", "error", "-c", code], cwd="/", capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], ["httpx", "msgpack", "numpy", "standardwebhooks"]]


@pytest.mark.slow
def test_a_server_that_is_not_there_is_the_client_s_own_error(alone: Path) -> None:
    code = (
        "from roost import Client, ConnectionFailed\n"
        "try: Client('http://127.0.0.1:9', patience_s=0.1).encode('acme/owl', ['a'])\n"
        "except ConnectionFailed as error: print(error.code, error.retryable)"
    )
    done = subprocess.run([alone, "-I", "-c", code], cwd="/", capture_output=True, text=True, timeout=120)
    assert done.stdout == "connection_failed True\n", done.stderr


def test_the_typed_mark_is_in_the_package() -> None:
    assert (ROOT / "roost" / "py.typed").is_file()
