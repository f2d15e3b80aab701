"""GLiNER models of each kind, with random heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog.schema import ExtractFacts, ExtractKind, Source, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

TEXTS = [
    "Ada Lovelace met Charles Babbage in London.",
    "Paris",
    "The court in Berlin fined ACME Corporation 4 million euros on Monday, and Ben Okafor of Lagos paid at once.",
    "ACME filed. ACME paid. Beta filed.",
    "Nothing to see here, move along please.",
]
LABELS = ["person", "company", "city"]
RELATIONS = ["works for", "lives in"]


def spec_of(kind: str) -> Spec:
    """A spec of one of the small models."""
    kinds = [ExtractKind.ENTITIES, *([ExtractKind.RELATIONS] if kind == "relex" else [])]
    return Spec(
        id=f"random/gliner-{kind}",
        family="gliner",
        tasks=Tasks(extract=ExtractFacts(kinds=tuple(kinds))),
        source=Source(needs=("pickle",) if kind == "pickled" else ()),
        parameters=5_000_000,
        max_length=128,
    )


def model(kind: str) -> Callable[[], tuple[Spec, Path | None]]:
    return lambda: (spec_of(kind), folder("gliner") / kind)


def items() -> Sequence[Payload]:
    return [{"text": text} for text in TEXTS]


def entities(output: Output) -> Any:
    return sorted(output.fields["entities"], key=_place)


def both(output: Output) -> Any:
    return entities(output), sorted(output.fields["relations"], key=_ends)


def _place(one: dict[str, Any]) -> Any:
    return one["start"], one["end"], one["label"]


def _ends(one: dict[str, Any]) -> Any:
    return _place(one["head"]), _place(one["tail"]), one["relation"]


def library(path: Path | None) -> Any:
    """The model as its own library reads it."""
    import warnings

    from gliner import GLiNER

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said of every bi-encoder
        return GLiNER.from_pretrained(str(path), local_files_only=True)


def reference(options: dict[str, Any], size: int) -> Callable[[Path | None, str], Answers]:
    def call(path: Path | None, device: str) -> Answers:
        own = library(path).to(device)

        def answers(payloads: Sequence[Payload]) -> list[Any]:
            texts = [one["text"] for one in payloads]
            found = own.inference(texts, LABELS, batch_size=size, **options)
            return [sorted(one, key=_place) for one in found]

        return answers

    return call


def related(path: Path | None, device: str) -> Answers:
    own = library(path).to(device)

    def answers(payloads: Sequence[Payload]) -> list[Any]:
        texts = [one["text"] for one in payloads]
        found, relations = own.inference(texts, LABELS, RELATIONS, threshold=0.4, relation_threshold=0.505)
        return [
            (
                sorted(spans, key=_place),
                sorted(
                    (
                        {**one, "head": spans[one["head"]["entity_idx"]], "tail": spans[one["tail"]["entity_idx"]]}
                        for one in between
                    ),
                    key=_ends,
                ),
            )
            for spans, between in zip(found, relations, strict=True)
        ]

    return answers


def case(name: str, kind: str, **options: Any) -> Case:
    return Case(
        name=name,
        model=model(kind),
        verb=Verb.EXTRACT,
        items=items,
        options={"labels": LABELS, **options},
        bad=({}, {"text": 7}, {"text": "half \ud83d pair"}),
        # The library's own batches of models that represent spans of tokens find spans in the padding.
        reference=reference(options, 1 if kind == "token_spans" else 8),
        found=entities,
    )


CASES = [
    case("span", "span", threshold=0.45),
    case("nested", "span", threshold=0.485, flat_ner=False, multi_label=True),
    case("token", "token", threshold=0.45),
    case("token_spans", "token_spans", threshold=0.45),
    case("bi", "bi", threshold=0.5),
    case("bi_token", "bi_token", threshold=0.45),
    case("pickled", "pickled", threshold=0.45),
    Case(
        name="relex",
        model=model("relex"),
        verb=Verb.EXTRACT,
        items=items,
        options={"labels": LABELS, "relation_labels": RELATIONS, "threshold": 0.4, "relation_threshold": 0.505},
        reference=related,
        found=both,
    ),
]
