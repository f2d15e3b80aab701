"""What every suite of released clients is given. The stack is started, and its models named, by test_clients.py."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def url() -> str:
    """The address of the stack, without a slash at its end."""
    return os.environ["ROOST_URL"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
