"""MiniLM from an installed package, with real weights; besides, causal embedders of random weights in their layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog.loader import Catalog
from catalog.schema import Source, Spec
from catalog.terms import Verb
from catalog.weights import locate
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

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


def reference(folder: Path | None, device: str) -> Answers:
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(folder), device=device, local_files_only=True)

    def answers(items: Sequence[Payload]) -> list[Any]:
        return [{"dense": vector} for vector in library.encode([item["text"] for item in items])]

    return answers


def tiny(name: str) -> Callable[[], tuple[Spec, Path | None]]:
    """A model of random weights whose own files say what its prompts are."""

    def model() -> tuple[Spec, Path | None]:
        made = {
            "id": f"random/{name.replace('_', '-')}",
            "family": "sentence_transformer",
            "source": {"path": str(folder(name))},
            "tasks": {"encode": {"dims": 48}},
            "parameters": 1,
            "max_length": 128,
        }
        return Spec.model_validate(made), folder(name)

    return model


def queries(folder: Path | None, device: str) -> Answers:
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(folder), device=device, local_files_only=True)

    def answers(items: Sequence[Payload]) -> list[Any]:
        return [{"dense": vector} for vector in library.encode_query([item["text"] for item in items])]

    return answers


def documents(folder: Path | None, device: str) -> Answers:
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(folder), device=device, local_files_only=True)

    def answers(items: Sequence[Payload]) -> list[Any]:
        return [{"dense": vector} for vector in library.encode_document([item["text"] for item in items])]

    return answers


def short() -> list[Payload]:
    return [{"text": text} for text in TEXTS if len(text) < 40]


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
    ),
    Case(
        name="causal-queries",
        model=tiny("qwen3_embedding"),
        verb=Verb.ENCODE,
        items=short,
        options={"is_query": True},
        reference=queries,
        tolerance=2e-5,
    ),
    Case(
        name="gemma-documents",
        model=tiny("gemma_embedding"),
        verb=Verb.ENCODE,
        items=short,
        reference=documents,
        tolerance=2e-5,
    ),
]
