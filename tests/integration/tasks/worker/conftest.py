"""The stage that tests of the worker play on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.valkey import ValkeyServer
from tasks.settings import plain_redis
from tests.integration.tasks.worker.stage import Stage


@pytest.fixture
def stage(broker_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(broker_url, tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def stock_stage(broker_url: str, tmp_path: Path) -> Iterator[Stage]:
    """The same over kombu's own transport."""
    stage = Stage(plain_redis(broker_url), tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that the test may stop and start again; it keeps its port and its data."""
    server = ValkeyServer(tmp_path / "valkey", tmp_path / "valkey.log")
    server.start()
    yield server
    if server.started:
        server.stop()
