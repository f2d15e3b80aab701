"""Released clients against a real stack: each suite of tests/clients, by the pytest of its own environment.

`sie-sdk` needs Python 3.12, and frameworks pin what Roost does not. Where their environment is missing the suites are
skipped; under CI they fail.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.claims.models import standins
from tests.acceptance import peer_models
from tests.acceptance.fakes import fake, parser, writer
from tests.acceptance.small_models import PATIENT

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "tests" / "clients"
ENVIRONMENT = ROOT / ".venv-clients"
SUITES = sorted(path.name for path in CLIENTS.iterdir() if any(path.glob("test_*.py")))
LIMIT_S = 600
MODELS = {
    "fake/vectors": fake(),
    "fake/cold": fake(load_seconds=6.0),
    "fake/slow": fake(load_seconds=30.0),
    "fake/writer": writer(),
    "fake/parser": parser(),
}
"""What the suites may name besides the names of the article's script (`standins`) and the built-in catalog. Of that,
`sentence-transformers/all-MiniLM-L6-v2`, `roost/minilm-token-states`, `roost/smollm2-135m-gguf` have real weights."""


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of the suites' environment, as their list has it."""
    found = ENVIRONMENT / ".installed"
    if not found.is_file() or found.read_text() != (CLIENTS / "requirements.txt").read_text():
        reason = f"{ENVIRONMENT.name} is not made or not up to date: run `make clients`, which needs Python 3.12"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(reason)
        pytest.skip(reason)
    return ENVIRONMENT / "bin" / "python"


@pytest.fixture(scope="module")
def stack(python: Path, start_stack: StartStack) -> Any:
    return start_stack(models={**MODELS, **standins(), **peer_models.specs()}, **PATIENT)


@pytest.mark.parametrize("suite", SUITES)
def test_an_unmodified_client_works(stack: Any, python: Path, suite: str) -> None:
    command = [str(python), "-m", "pytest", "-q", "-c", f"{CLIENTS}/pytest.ini", f"{CLIENTS}/{suite}"]
    environment = {**os.environ, "ROOST_URL": stack.url, "NO_PROXY": "127.0.0.1"}
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S
    )
    if ran.returncode != 0:
        pytest.fail(f"{suite}:\n{ran.stdout}", pytrace=False)
