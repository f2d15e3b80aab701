"""A trained BERT with a random head of inference: it decides nothing, and computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog.schema import ExtractFacts, ExtractKind, Source, Spec, Tasks
from catalog.terms import Verb
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

LABELS = ["ships", "the end of a contract", "cooking", "[SEP]"]
TEXTS = (
    "A harbour is where ships go.",
    "Der Vertrag endet am 31. März.",
    "0",
    "Boil it, then [MASK] it.",
    "a passage that is longer than the others, about ships and harbours, " * 4,
)


def model() -> tuple[Spec, Path | None]:
    spec = Spec(
        id="random/nli",
        family="zero_shot_nli",
        source=Source(path="/given/to/the/adapter"),
        tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.CLASSIFICATIONS,))),
        parameters=1,
        max_length=128,
    )
    return spec, folder("nli")


def items() -> list[Payload]:
    return [{"text": text} for text in TEXTS]


def reference(**options: Any) -> Callable[[Path | None, str], Answers]:
    def of(folder: Path | None, device: str) -> Answers:
        from transformers import pipeline

        library: Any = pipeline("zero-shot-classification", model=str(folder), device=device)
        library.tokenizer.split_special_tokens = True

        def answers(items: Sequence[Payload]) -> list[Any]:
            found = []
            for item in items:
                # The pipeline itself takes no empty text; one blank is read as none.
                answer = library(item["text"] or " ", candidate_labels=LABELS, **options)
                pairs = zip(answer["labels"], answer["scores"], strict=True)
                found.append({"classifications": [{"label": label, "score": score} for label, score in pairs]})
            return found

        return answers

    return of


BAD: tuple[Payload, ...] = ({}, {"text": "half \ud83d pair"})
TEMPLATE = {"hypothesis_template": "It is about {}, is it not?", "multi_label": True}

CASES = [
    Case("one", model, Verb.EXTRACT, items, options={"labels": LABELS}, bad=BAD, reference=reference(), tolerance=1e-5),
    Case(
        "each",
        model,
        Verb.EXTRACT,
        items,
        options={"labels": LABELS, **TEMPLATE},
        bad=BAD[:1],
        reference=reference(**TEMPLATE),
        tolerance=1e-5,
    ),
]
