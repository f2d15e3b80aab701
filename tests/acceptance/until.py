"""Waiting for what nothing but asking tells, with an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], patience_s: float = 60.0) -> T:
    """The first thing that a look finds that is not nothing. The test fails when none does in time."""
    end = time.monotonic() + patience_s
    while not (found := look()):
        assert time.monotonic() < end, f"still not so after {patience_s:g} s"
    return found
