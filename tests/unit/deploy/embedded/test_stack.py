from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deploy.embedded.errors import EmbeddedError
from deploy.embedded.stack import Stack, shared_counters
from tasks.settings import Settings


def test_a_start_that_is_refused_for_a_busy_port_leaves_no_report(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        stack = Stack(Settings(data_dir=tmp_path, port=busy.getsockname()[1], flower_port=0), lambda _: None)
        with pytest.raises(EmbeddedError, match="ROOST_PORT"):
            stack.start()
        stack.stop()

    assert list(tmp_path.iterdir()) == []


def test_api_processes_count_together_in_a_folder_that_is_empty_at_each_start(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "counter_1.db").touch()

    assert shared_counters(folder, {}) == {"PROMETHEUS_MULTIPROC_DIR": str(folder)}
    assert list(folder.iterdir()) == []


def test_a_folder_for_counters_that_the_operator_names_is_left_alone(tmp_path: Path) -> None:
    given = {"PROMETHEUS_MULTIPROC_DIR": "/somewhere"}

    assert shared_counters(tmp_path / "metrics", given) == given
    assert list(tmp_path.iterdir()) == []
