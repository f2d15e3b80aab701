"""The weightless generator. It gives no vectors; what it promises besides is in tests/unit/engine/adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.schema import Spec, Tasks

LOAD: dict[str, Any] = {"bytes": 1000, "new_tokens": 8}
BAD_LOAD: dict[str, Any] = {"new_token": 8}
UNREADABLE: list[object] = [None, 7, "  "]


def model() -> tuple[Spec, Path | None]:
    return Spec(id="g", family="fake_generator", tasks=Tasks(generate={}), parameters=0, max_length=4096), None


def texts() -> list[str]:
    return [f"prompt number {i} " * (i * 3 % 7 + 1) for i in range(10)]


def reference(folder: Path | None, texts: list[str], device: str) -> NDArray[np.float32] | None:
    return None
