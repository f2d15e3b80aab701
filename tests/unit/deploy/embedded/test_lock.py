from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.embedded import lock
from deploy.embedded.errors import AlreadyRunningError


def test_a_second_stack_on_a_folder_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "roost.lock"
    with lock.held(path), pytest.raises(AlreadyRunningError, match=rf"pid {os.getpid()}.*roost down"), lock.held(path):
        pass


def test_the_holder_is_known_while_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "roost.lock"
    assert lock.holder(path) is None
    with lock.held(path):
        assert lock.holder(path) == os.getpid()
    assert lock.holder(path) is None


def test_a_lock_file_without_a_holder_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "roost.lock"
    path.write_text("99999999\n")
    with lock.held(path):
        assert lock.holder(path) == os.getpid()


def test_a_lock_that_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "roost.lock"
    with pytest.raises(RuntimeError), lock.held(path):
        raise RuntimeError

    assert not path.exists()
