from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.accounts import Account, closed_folder, unprivileged
from deploy.embedded.errors import EmbeddedError

STRANGER = Account("stranger", uid=54321, gid=54321)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, which pytest's own are not when root runs it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder


def test_the_first_folder_that_an_account_may_not_enter_is_named(open_folder: Path) -> None:
    closed = open_folder / "closed"
    (closed / "open").mkdir(parents=True)
    closed.chmod(0o700)

    assert closed_folder(closed / "open", STRANGER) == closed


def test_an_owner_is_judged_by_the_owner_s_bits(open_folder: Path) -> None:
    inner = open_folder / "inner"
    inner.mkdir()
    inner.chmod(0o700)

    assert closed_folder(inner, Account("owner", uid=inner.stat().st_uid, gid=54321)) is None


def test_a_path_that_is_not_there_yet_counts_up_to_its_last_folder(open_folder: Path) -> None:
    assert closed_folder(open_folder / "not" / "there" / "yet", STRANGER) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its rights away")
def test_root_runs_the_server_as_whoever_owns_the_data(open_folder: Path) -> None:
    os.chown(open_folder, 54321, 54322)

    account = unprivileged(open_folder, [])

    assert account is not None
    assert (account.uid, account.gid) == (54321, 54322)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its rights away")
def test_root_runs_the_server_as_an_account_without_rights(open_folder: Path) -> None:
    account = unprivileged(open_folder / "not there yet", [open_folder])

    assert account is not None
    assert account.uid != 0
    assert account.capability == -1


def test_a_user_keeps_the_user_and_is_told_of_data_that_is_somebody_else_s(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_folder.stat().st_uid != 54323
    monkeypatch.setattr(os, "geteuid", lambda: 54323)

    assert unprivileged(open_folder / "not there yet", []) is None
    with pytest.raises(EmbeddedError, match="belongs to another user"):
        unprivileged(open_folder, [])
