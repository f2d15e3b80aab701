"""A ColPali and a ColQwen2 of random weights, against the library's own calls on each page and query alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from catalog.schema import EncodeFacts, ScoreFacts, Spec, Tasks
from catalog.terms import Verb
from tests.adapters.case import Answers, Case, Payload
from tests.adapters.pictures import broken, item, opened
from tests.small import folder

READS = 64
PAGES = [item(1), item(2, (60, 90), "JPEG"), item(3, (80, 60), "WEBP"), item(4, (1, 1)), item(5, (120, 30))]
QUERIES = [{"text": text} for text in ("birds", "Which form asks for the date of the loss?", "日本語", "form 7")]


def model(name: str) -> Callable[[], tuple[Spec, Path | None]]:
    def found() -> tuple[Spec, Path | None]:
        spec = Spec(
            id=f"random/{name}",
            family="page_images",
            tasks=Tasks(
                encode=EncodeFacts(outputs=("multivector",), token_dims=24), score=ScoreFacts(scale="similarity")
            ),
            inputs=("text", "image", "multivector"),
            image_length=30,
            parameters=300_000,
            max_length=READS,
        )
        return spec, folder(name)

    return found


def items() -> list[Payload]:
    return [payload for pair in zip(PAGES, [*QUERIES, {"text": "and more"}], strict=True) for payload in pair]


def pairs() -> list[Payload]:
    vectors = np.random.default_rng(5).normal(size=(4, 24)).astype("<f4")
    kept = {"multivector": {"num_tokens": 4, "token_dims": 24, "values": vectors.tobytes()}}
    found: list[Payload] = [{**page, "query": query} for query in QUERIES[:2] for page in (*PAGES[:3], kept)]
    return [*found, {**PAGES[0], "query": kept}]


def library(kind: str, files: Path | None, device: str) -> tuple[Any, Callable[[Payload], Any]]:
    """The library's processor, and the vectors that its model gives of a payload."""
    import torch
    import transformers

    from engine.vision import read_image_processor

    assert files is not None
    model: Any = getattr(transformers, f"{kind}ForRetrieval").from_pretrained(files).to(device).eval()
    words = transformers.AutoTokenizer.from_pretrained(files)
    processor: Any = getattr(transformers, f"{kind}Processor")(read_image_processor(files), words)

    def vectors(payload: Payload) -> Any:
        if "multivector" in payload:
            return torch.frombuffer(bytearray(payload["multivector"]["values"]), dtype=torch.float32).reshape(-1, 24)
        if "images" in payload:
            made = processor.process_images(images=[opened(payload)])
        else:
            made = processor.process_queries([payload["text"]])
        with torch.inference_mode():
            return model(**made.to(device)).embeddings[0].cpu()

    return processor, vectors


def encoded(kind: str) -> Callable[[Path | None, str], Answers]:
    def opened_for(files: Path | None, device: str) -> Answers:
        _, vectors = library(kind, files, device)

        def answers(items: Sequence[Payload]) -> list[Any]:
            return [{"multivector": vectors(payload).numpy()} for payload in items]

        return answers

    return opened_for


def scored(kind: str) -> Callable[[Path | None, str], Answers]:
    def opened_for(files: Path | None, device: str) -> Answers:
        processor, vectors = library(kind, files, device)

        def answers(items: Sequence[Payload]) -> list[Any]:
            return [
                {"score": processor.score_retrieval([vectors(payload["query"])], [vectors(payload)]).item()}
                for payload in items
            ]

        return answers

    return opened_for


BAD: tuple[Payload, ...] = ({}, {"text": 7}, broken(), {**item(5), "text": "both"})
NARROW = {"multivector": {"num_tokens": 1, "token_dims": 7, "values": b"\0" * 28}}
BAD_PAIRS: tuple[Payload, ...] = (
    PAGES[0],
    {"query": {"text": "no page"}},
    {"text": "a text is no page", "query": QUERIES[0]},
    {**broken(), "query": QUERIES[0]},
    {**NARROW, "query": QUERIES[0]},
)

CASES = [
    Case(f"{name}-{verb.value}", model(name), verb, payloads, bad=bad, reference=reference(kind), tolerance=2e-5)
    for name, kind in (("colpali", "ColPali"), ("colqwen2", "ColQwen2"))
    for verb, payloads, bad, reference in (
        (Verb.ENCODE, items, BAD, encoded),
        (Verb.SCORE, pairs, BAD_PAIRS, scored),
    )
]
