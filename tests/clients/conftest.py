"""What every suite of released clients is given. The stack is started, and its models named, by test_clients.py."""

from __future__ import annotations

import os

import pytest

# Before any framework reads them: none of them may call home, and each is told of the service as of OpenAI.
os.environ["OPENAI_BASE_URL"] = f"{os.environ['ROOST_URL']}/v1"
os.environ["OPENAI_API_KEY"] = "none"
os.environ["ANONYMIZED_TELEMETRY"] = "False"
os.environ["LANGSMITH_TRACING"] = "false"
os.environ["DO_NOT_TRACK"] = "1"


@pytest.fixture(scope="session")
def url() -> str:
    """The address of the stack, without a slash at its end."""
    return os.environ["ROOST_URL"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
