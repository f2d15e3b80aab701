"""Scores of two runs of one model: a pass in other company, or on other threads, may round its last bits otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def scored(pairs: Iterable[tuple[Any, float]]) -> list[tuple[Any, Any]]:
    """The same names or places in the same order, each with nearly its score."""
    return [(name, pytest.approx(score, abs=1e-5)) for name, score in pairs]
