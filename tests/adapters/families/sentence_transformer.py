"""The family's model is MiniLM from an installed package: real weights, no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog.loader import Catalog
from catalog.schema import Source, Spec
from catalog.terms import Verb
from catalog.weights import locate
from tests.adapters.case import Case, Payload

TEXTS = [
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


def model() -> tuple[Spec, Path | None]:
    spec = Catalog.load().find("sentence-transformers/all-MiniLM-L6-v2").spec
    packaged = spec.model_copy(update={"source": Source(package=spec.source.package)})
    return packaged, locate(packaged)


def items() -> list[Payload]:
    return [{"text": text} for text in TEXTS]


def reference(folder: Path | None, items: Sequence[Payload], device: str) -> list[Any]:
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(folder), device=device, local_files_only=True)
    return [{"dense": vector} for vector in library.encode([item["text"] for item in items], batch_size=4)]


CASES = [
    Case(
        name="encode",
        model=model,
        verb=Verb.ENCODE,
        items=items,
        load={"dtype": "float32"},
        bad=({}, {"text": 7}, {"text": "half \ud83d pair"}),
        reference=reference,
        tolerance=1e-5,
    )
]
