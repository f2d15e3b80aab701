"""GLiNER2 models with random heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from catalog.schema import ExtractFacts, ExtractKind, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

TEXTS = [
    "Ada Lovelace met Charles Babbage in London.",
    "Paris.",
    "The court in Berlin fined ACME Corporation 4 million euros on Monday, and Ben Okafor of Lagos paid at once.",
    "ACME filed. ACME paid. Beta filed.",
]
LABELS = ["person", "company", "city"]
SCHEMA = {
    "structures": {
        "fine": {
            "fields": [
                {"name": "payer", "dtype": "str", "description": "who pays"},
                {"name": "amounts"},
                {"name": "kind", "dtype": "str", "choices": ["civil", "criminal"]},
            ]
        }
    },
    "classifications": [
        {"task": "mood", "labels": ["glad", "sad"]},
        {"task": "topic", "labels": ["law", "travel", "science"], "multi_label": True, "cls_threshold": 0.4},
    ],
}

KINDS = (ExtractKind.ENTITIES, ExtractKind.RELATIONS, ExtractKind.CLASSIFICATIONS, ExtractKind.STRUCTURE)


def model(kind: str = "span") -> tuple[Spec, Path | None]:
    spec = Spec(
        id=f"random/gliner2-{kind}",
        family="gliner2",
        tasks=Tasks(extract=ExtractFacts(kinds=KINDS)),
        parameters=5_000_000,
        max_length=128,
    )
    return spec, folder("gliner2") / kind


def items() -> Sequence[Payload]:
    return [{"text": text} for text in TEXTS]


def library(path: Path | None, device: str) -> Any:
    """The model as its own library reads it."""
    from gliner2 import AutoExtractor

    return AutoExtractor.from_pretrained(str(path), map_location=device)


def all_of(output: Output) -> Any:
    found = dict(output.fields)
    if "entities" in found:
        found["entities"] = sorted(found["entities"], key=_place)
    return found


def _place(one: Mapping[str, Any]) -> Any:
    return one["start"], one["end"], one["label"]


def flat(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The library's entities as a list."""
    listed = [
        {"text": one["text"], "label": label, "score": one["confidence"], "start": one["start"], "end": one["end"]}
        for label, some in found.items()
        for one in some
    ]
    return sorted(listed, key=_place)


def entities(path: Path | None, device: str) -> Answers:
    own = library(path, device)

    def answers(payloads: Sequence[Payload]) -> list[Any]:
        texts = [one["text"] for one in payloads]
        found = own.batch_extract_entities(texts, LABELS, threshold=0.4, include_confidence=True, include_spans=True)
        return [{"entities": flat(one["entities"])} for one in found]

    return answers


def classes(path: Path | None, device: str) -> Answers:
    own = library(path, device)

    def answers(payloads: Sequence[Payload]) -> list[Any]:
        texts = [one["text"] for one in payloads]
        found = own.batch_classify_text(texts, {"mood": ["glad", "sad", "angry"]}, include_confidence=True)
        moods = [one["mood"] for one in found]
        return [{"classifications": [{"label": one["label"], "score": one["confidence"]}]} for one in moods]

    return answers


def several(path: Path | None, device: str) -> Answers:
    return partial(_several, library(path, device))


def _several(own: Any, payloads: Sequence[Payload]) -> list[Any]:
    from gliner2 import Schema

    texts = [one["text"] for one in payloads]
    schemas = [Schema.from_dict({**SCHEMA, "entities": LABELS, "relations": ["paid by"]}) for _ in texts]
    rich = own.batch_extract(texts, schemas, threshold=0.4, include_confidence=True, include_spans=True)
    plain = own.batch_extract(texts, schemas, threshold=0.4)
    answers = []
    for one, other in zip(rich, plain, strict=True):
        spans = flat(one["entities"])
        labels = {(span["start"], span["end"]): span["label"] for span in spans}
        ends = [
            {
                "relation": "paid by",
                "score": min(pair["head"]["confidence"], pair["tail"]["confidence"]),
                **{
                    side: {
                        "text": pair[side]["text"],
                        "label": labels.get((pair[side]["start"], pair[side]["end"]), side),
                        "score": pair[side]["confidence"],
                        "start": pair[side]["start"],
                        "end": pair[side]["end"],
                    }
                    for side in ("head", "tail")
                },
            }
            for pair in one["relation_extraction"]["paid by"]
        ]
        chosen = [one["mood"], *one["topic"]]
        answers.append(
            {
                "entities": spans,
                "relations": ends,
                "classifications": [{"label": each["label"], "score": each["confidence"]} for each in chosen],
                "data": {name: other[name] for name in ("fine", "mood", "topic")},
            }
        )
    return answers


def case(name: str, kind: str, reference: Callable[..., Answers], **options: Any) -> Case:
    return Case(
        name=name,
        model=partial(model, kind),
        verb=Verb.EXTRACT,
        items=items,
        options=options,
        bad=({}, {"text": 7}, {"text": "half \ud83d pair"}),
        reference=reference,
        found=all_of,
    )


CASES = [
    case("entities", "span", entities, labels=LABELS, threshold=0.4),
    case("boundary", "boundary", entities, labels=LABELS, threshold=0.4),
    case("classes", "span", classes, labels=["glad", "sad", "angry"], classification_task="mood"),
    case(
        "several",
        "span",
        several,
        labels=LABELS,
        relation_labels=["paid by"],
        output_schema=SCHEMA,
        threshold=0.4,
    ),
]
