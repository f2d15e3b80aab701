"""A child that cannot start with its settings on this machine says why, to its parent and in its log, and ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

StartChild = Callable[..., Any]


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def refusal(child: Any) -> tuple[str, str]:
    """Code and message of the refusal; the child has ended after it."""
    _, code, message = child.next("refused")
    assert child.ended()
    assert child.process.wait(30) == 1
    return code, message


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"device": "cuda:7"}, "device_unavailable", "ROOST_DEVICE=cuda:7 is not there"),
        ({"budget": "900TiB"}, "invalid_budget", "ROOST_BUDGET='900TiB' is"),
        ({"reserve": "100%"}, "invalid_budget", "ROOST_RESERVE='100%' is all of cpu"),
        ({"host_budget": "900tib"}, "invalid_budget", "ROOST_HOST_BUDGET='900tib' is"),
        ({"pinned": "nobody/knows"}, "model_not_found", "'nobody/knows' is not in the catalog"),
    ],
)
def test_settings_that_the_machine_cannot_meet_are_named(
    start_child: StartChild, settings: dict[str, str], code: str, words: str
) -> None:
    told, message = refusal(start_child(ready=False, **settings))
    assert told == code
    assert words in message


def test_an_account_that_others_may_write_is_not_joined(start_child: StartChild, open_folder: Path) -> None:
    code, message = refusal(start_child(ready=False, ledger_dir=open_folder))
    assert code == "ledger_unusable"
    assert "ROOST_LEDGER_DIR" in message
