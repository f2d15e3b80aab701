"""The weightless model, with memory that it really takes and gives back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.loader import Catalog
from catalog.schema import Spec

LOAD: dict[str, Any] = {"bytes": 64 * 2**20, "allocate": True}
BAD_LOAD: dict[str, Any] = {"byte": 1}
UNREADABLE: list[object] = [None, 7]


def model() -> tuple[Spec, Path | None]:
    return Catalog.load().find("roost/fake").spec, None


def texts() -> list[str]:
    return [f"text number {i} " * (i * 3 % 7 + 1) for i in range(10)]


def reference(folder: Path | None, texts: list[str], device: str) -> NDArray[np.float32] | None:
    return None
