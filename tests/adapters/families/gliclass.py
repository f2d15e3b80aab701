"""GLiClass models with random heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog.schema import ExtractFacts, ExtractKind, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

TEXTS = [
    "I love this phone, the battery lasts all day.",
    "Bad.",
    "The court in Berlin fined ACME Corporation 4 million euros on Monday and everybody was surprised.",
    "Rain at noon, sun later.",
]
LABELS = ["praise", "complaint", "law and courts", "weather"]
EXAMPLES = [{"text": "It broke at once.", "labels": ["complaint"]}]


def model(kind: str) -> Callable[[], tuple[Spec, Path | None]]:
    spec = Spec(
        id=f"random/gliclass-{kind}",
        family="gliclass",
        tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.CLASSIFICATIONS,))),
        parameters=5_000_000,
        max_length=128,
    )
    return lambda: (spec, folder("gliclass") / kind)


def items() -> Sequence[Payload]:
    return [{"text": text} for text in TEXTS]


def scores(output: Output) -> Any:
    found = output.fields["classifications"]
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    return {one["label"]: one["score"] for one in found}


def pipeline(path: Path | None, device: str) -> Any:
    """The model in its own library's pipeline."""
    from gliclass import GLiClassModel, ZeroShotClassificationPipeline
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(path))
    return ZeroShotClassificationPipeline(
        GLiClassModel.from_pretrained(str(path)), tokenizer, device=device, progress_bar=False
    )


def reference(kind: str, size: int = 8, **options: Any) -> Callable[[Path | None, str], Answers]:
    def call(path: Path | None, device: str) -> Answers:
        own = pipeline(path, device)
        if kind == "single-label":
            options["return_hierarchical"] = True  # which gives the scores of all labels

        def answers(payloads: Sequence[Payload]) -> list[Any]:
            texts = [one["text"] for one in payloads]
            found = own(texts, LABELS, classification_type=kind, batch_size=size, **options)
            return [one if isinstance(one, dict) else {each["label"]: each["score"] for each in one} for one in found]

        return answers

    return call


def case(name: str, kind: str, expected: Callable[[Path | None, str], Answers], **options: Any) -> Case:
    return Case(
        name=name,
        model=model(kind),
        verb=Verb.EXTRACT,
        items=items,
        options={"labels": LABELS, **options},
        bad=({}, {"text": 7}, {"text": "half \ud83d pair"}, {"text": "a <<LABEL>> inside"}),
        reference=expected,
        found=scores,
    )


CASES = [
    case("several", "first", reference("multi-label", threshold=0.45), multi_label=True, threshold=0.45),
    case("one", "first", reference("single-label")),
    # One by one, since the library's mean has the padding of a batch in it.
    case("average", "average", reference("multi-label", size=1, threshold=0.0), multi_label=True, threshold=0),
    case(
        "examples",
        "first",
        reference("multi-label", threshold=0.0, examples=EXAMPLES, prompt="What is it about? "),
        multi_label=True,
        threshold=0,
        examples=EXAMPLES,
        instruction="What is it about? ",
    ),
]
