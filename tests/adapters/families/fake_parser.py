"""The weightless parser. It gives no vectors; what it promises besides is in tests/unit/engine/adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.schema import Spec, Tasks

LOAD: dict[str, Any] = {"bytes": 1000}
BAD_LOAD: dict[str, Any] = {"byte": 1000}
UNREADABLE: list[object] = [None, 7]


def model() -> tuple[Spec, Path | None]:
    tasks = Tasks(extract={})
    return Spec(id="p", family="fake_parser", tasks=tasks, parameters=0, max_length=64, unit="pages"), None


def texts() -> list[str]:
    return [f"page {i}\f" * (i * 3 % 7 + 1) for i in range(10)]


def reference(folder: Path | None, texts: list[str], device: str) -> NDArray[np.float32] | None:
    return None
