"""A trained BERT with a random head, and a ModernBERT of random weights: neither ranks, both compute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog.schema import ScoreFacts, Source, Spec, Tasks
from catalog.terms import Verb
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

QUERIES = ("where do ships go", "Kündigungsfrist?", "日本語")
TEXTS = (
    "A harbour is where ships go.",
    "Der Vertrag endet am 31. März, sofern er nicht verlängert wird.",
    "short",
    "",
    "a longer passage about ships and harbours and what they carry, " * 30,
    "[SEP] and [CLS] and [MASK] are words here",
    "emoji 👩‍👩‍👧 and accents e\u0301 ﬁ",
)


def spec(kind: str, max_length: int) -> Spec:
    return Spec(
        id=f"random/{kind}",
        family="cross_encoder",
        source=Source(path="/given/to/the/adapter"),
        tasks=Tasks(score=ScoreFacts(scale="probability")),
        parameters=1,
        max_length=max_length,
    )


def bert() -> tuple[Spec, Path | None]:
    return spec("bert-reranker", 128), folder("cross_encoder")


def modernbert() -> tuple[Spec, Path | None]:
    return spec("modernbert-reranker", 128), folder("modernbert_reranker")


def items() -> list[Payload]:
    return [{"text": text, "query": {"text": QUERIES[i % 3]}} for i, text in enumerate(TEXTS)]


def reference(folder: Path | None, device: str) -> Answers:
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    library = CrossEncoder(str(folder), device=device, local_files_only=True, max_length=128)
    # The library reads literals of control tokens as those tokens unless it is told not to.
    library.tokenizer.split_special_tokens = True

    def answers(items: Sequence[Payload]) -> list[Any]:
        pairs = [(item["query"]["text"], item["text"]) for item in items]
        scores = library.predict(pairs)
        raw = library.predict(pairs, activation_fn=Identity())
        return [{"score": float(one), "raw_score": float(other)} for one, other in zip(scores, raw, strict=True)]

    return answers


BAD: tuple[Payload, ...] = (
    {"query": {"text": "no text"}},
    {"text": "no query"},
    {"text": "half \ud83d pair", "query": {"text": "q"}},
    {"text": "t", "query": {"text": "half \ude00 pair"}},
)

CASES = [
    Case("bert", bert, Verb.SCORE, items, bad=BAD, reference=reference, tolerance=1e-5),
    Case("modernbert", modernbert, Verb.SCORE, items, bad=BAD[:1], reference=reference, tolerance=1e-5),
]
