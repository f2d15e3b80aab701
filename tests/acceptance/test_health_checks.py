"""The health checks of the images, against the real processes that they are for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from deploy import health
from deploy.embedded.ports import chosen
from deploy.environment import exported
from tasks.settings import Settings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def settings(start_stack: Callable[..., Any]) -> Settings:
    """Those of a whole stack that runs, as its containers would have them."""
    stack = start_stack(flower_port=chosen(0), flower_auth="ada:secret", events="on")
    port = int(stack.url.rpartition(":")[2])
    found: Settings = stack.settings.model_copy(update={"port": port})
    return found


@pytest.mark.parametrize("check", ["api", "worker", "beat", "feeder", "flower"])
def test_a_process_that_runs_is_well(check: str, settings: Settings) -> None:
    health.CHECKS[check](settings)


def test_the_chores_worker_is_well_by_way_of_the_broker(settings: Settings) -> None:
    """In a process of its own, as in its container: the check imports the Celery application of these settings."""
    done = subprocess.run(
        [sys.executable, "-m", "deploy.health", "chores"],
        env={**os.environ, **exported(settings)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_flower_refuses_another_password(settings: Settings) -> None:
    with pytest.raises(health.Unwell, match="401"):
        health.flower(settings.model_copy(update={"flower_auth": "ada:guess"}))
