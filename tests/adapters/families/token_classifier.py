"""A trained BERT with a random head of CoNLL tags: it finds no names, and computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog.schema import ExtractFacts, ExtractKind, Source, Spec, Tasks
from catalog.terms import Verb
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

TEXTS = (
    "Angela Smith was hired by ACME in Berlin.",
    "short",
    "",
    "After İstanbul, ΟΔΟΣ and 👩‍👩‍👧 comes Cafe\u0301 Paris, then 𝐁𝐞𝐫𝐥𝐢𝐧 and Rome.",  # noqa: RUF001
    "ACME filed. ACME paid. Beta filed.",
    "a passage that is longer than the others, about Hamburg and its harbours, " * 4,
)


def spec(max_length: int = 200) -> Spec:
    return Spec(
        id="random/tagger",
        family="token_classifier",
        source=Source(path="/given/to/the/adapter"),
        tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.ENTITIES,), labels=("PER", "ORG", "LOC", "MISC"))),
        parameters=1,
        max_length=max_length,
    )


def model() -> tuple[Spec, Path | None]:
    return spec(), folder("token_labels")


def items() -> list[Payload]:
    return [{"text": text} for text in TEXTS]


def reference(aggregation: str) -> Callable[[Path | None, str], Answers]:
    def of(folder: Path | None, device: str) -> Answers:
        from transformers import pipeline

        library = pipeline("token-classification", model=str(folder), device=device, aggregation_strategy=aggregation)

        def answers(items: Sequence[Payload]) -> list[Any]:
            found = []
            for item in items:
                text = item["text"]
                entities = [
                    {
                        "text": text[one["start"] : one["end"]],
                        "label": one["entity_group"],
                        "score": float(one["score"]),
                        "start": one["start"],
                        "end": one["end"],
                    }
                    for one in library(text)
                ]
                found.append({"entities": entities})
            return found

        return answers

    return of


BAD: tuple[Payload, ...] = ({}, {"text": 7}, {"text": "half \ud83d pair"})

CASES = [
    Case("simple", model, Verb.EXTRACT, items, bad=BAD, reference=reference("simple"), tolerance=1e-5),
    Case(
        "first",
        model,
        Verb.EXTRACT,
        items,
        load={"aggregation": "first"},
        bad=BAD[:1],
        reference=reference("first"),
        tolerance=1e-5,
    ),
]
