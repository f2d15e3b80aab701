"""The family's model is MiniLM from an installed package: real weights, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.loader import Catalog
from catalog.schema import Source, Spec
from catalog.weights import locate

LOAD: dict[str, Any] = {"dtype": "float32"}
BAD_LOAD: dict[str, Any] = {"dtyp": "float32"}
UNREADABLE: list[object] = [None, 7, "half \ud83d pair"]


def model() -> tuple[Spec, Path | None]:
    spec = Catalog.load().find("sentence-transformers/all-MiniLM-L6-v2").spec
    packaged = spec.model_copy(update={"source": Source(package=spec.source.package)})
    return packaged, locate(packaged)


def texts() -> list[str]:
    return [
        "short",
        "A sentence of some ordinary words.",
        "Der Vertrag endet am 31. März, sofern er nicht verlängert wird.",
        "日本語の文章もある。",
        "emoji 👩‍👩‍👧 and accents e\u0301 ﬁ",
        "punctuation, only: (some) [more] {and} <less>!",
        "\n\ttabs and\nlines\r\n",
        "a longer passage about ships and harbours, " * 4,
        "numbers 1 2 3.14 1e-9 0xff",
        "the very last text of this list",
    ]


def reference(folder: Path | None, texts: list[str], device: str) -> NDArray[np.float32] | None:
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(folder), device=device, local_files_only=True)
    return np.asarray(library.encode(texts, batch_size=4), dtype=np.float32)
