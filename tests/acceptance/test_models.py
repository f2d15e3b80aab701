"""Models, devices and settings that are not as they should be: each has a named error, and all else goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deploy.embedded.errors import EmbeddedError

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]


def test_a_device_that_is_not_there_ends_its_worker_with_what_is(start_stack: StartStack) -> None:
    with pytest.raises(EmbeddedError) as refusal:
        start_stack(device="cuda:7")
    told = str(refusal.value)
    assert "ended with status 78" in told
    assert "device_unavailable: ROOST_DEVICE=cuda:7 is not there" in told
    assert "Use auto or cpu" in told
