"""Our OpenAPI document is true: requests right and wrong are answered as it says, and none with a 5xx.

Schemathesis makes the requests. What they are, and how, is in the folder openapi beside this file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fakes import writer

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

OPENAPI = Path(__file__).parent / "openapi"
LIMIT_S = 600


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models={"fake/writer": writer()})


def test_every_operation_answers_as_it_is_documented(stack: Any, tmp_path: Path) -> None:
    # Made at the first call, which takes longer than schemathesis waits for it on a busy machine.
    stack.client.get("/openapi.json").raise_for_status()
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", f"{OPENAPI}/schemathesis.toml"]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.acceptance.openapi.hooks", "NO_COLOR": "1"}
    ran = subprocess.run(
        [*command, "run", f"{stack.url}/openapi.json"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(OPENAPI.parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    if ran.returncode != 0:
        pytest.fail(ran.stdout, pytrace=False)
