"""A Grounding DINO of random weights, against the library's own call on each image alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog.schema import ExtractFacts, ExtractKind, Spec, Tasks
from catalog.terms import Verb
from tests.adapters.case import Answers, Case, Payload
from tests.adapters.detections import objects
from tests.adapters.pictures import broken, item, opened
from tests.small import folder

FEW = ("red hat", "cat", "face")
MANY = ("apple", "bird", "boat", "book", "bus", "cake", "car", "cat", "chair", "clock", "cow", "cup", "dog")
PASSES = (MANY[:11], MANY[11:])
"""The model reads 24 tokens: two around the text, and two for each of these labels."""


def model(name: str) -> Callable[[], tuple[Spec, Path | None]]:
    def found() -> tuple[Spec, Path | None]:
        spec = Spec(
            id=f"random/{name}",
            family="grounding_dino",
            tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.OBJECTS,))),
            inputs=("image",),
            unit="tiles",
            parameters=5_000_000,
            max_length=24,
        )
        return spec, folder(name)

    return found


def items() -> list[Payload]:
    sizes = [(80, 60), (60, 80), (80, 60), (1, 1), (300, 20)]
    return [item(number, size, "PNG" if number % 2 else "WEBP") for number, size in enumerate(sizes)]


def reference(kind: str, prompts: Sequence[Sequence[str]]) -> Callable[[Path | None, str], Answers]:
    def opened_for(files: Path | None, device: str) -> Answers:
        import torch
        import transformers

        assert files is not None
        library: Any = getattr(transformers, f"{kind}ForObjectDetection").from_pretrained(files)
        library.to(device).eval()
        words = transformers.AutoTokenizer.from_pretrained(files)
        images = transformers.GroundingDinoImageProcessorPil.from_pretrained(files)
        both = transformers.GroundingDinoProcessor(images, words)

        def answers(items: Sequence[Payload]) -> list[Any]:
            out = []
            for payload in items:
                image = opened(payload)
                found: list[Any] = []
                for labels in prompts:
                    sent = both(images=image, text=[list(labels)], return_tensors="pt").to(device)
                    with torch.inference_mode():
                        made = library(**sent)
                    told = both.post_process_grounded_object_detection(
                        made, threshold=0.0, target_sizes=[image.size[::-1]]
                    )
                    text = ". ".join(labels) + "."
                    offsets = words(text, return_offsets_mapping=True)["offset_mapping"]
                    for scores, box in zip(made.logits[0].sigmoid(), told[0]["boxes"].tolist(), strict=True):
                        by_label = {
                            label: max(
                                float(score)
                                for score, (start, end) in zip(scores, offsets, strict=False)
                                if text.index(label) <= start < end <= text.index(label) + len(label)
                            )
                            for label in labels
                        }
                        best = max(by_label, key=lambda label: by_label[label])
                        if by_label[best] > 0.6:
                            found.append((best, by_label[best], box))
                out.append({"objects": objects(found, image.size)})
            return out

        return answers

    return opened_for


def case(name: str, small: str, kind: str, labels: Sequence[str], prompts: Sequence[Sequence[str]]) -> Case:
    return Case(
        name=name,
        model=model(small),
        verb=Verb.EXTRACT,
        items=items,
        options={"labels": list(labels), "box_threshold": 0.6},
        bad=({}, {"text": "a cat"}, broken(), {"images": [*item(1)["images"], *item(2)["images"]]}),
        reference=reference(kind, prompts),
        tolerance=1e-5,
    )


CASES = [
    case("few-labels", "grounding_dino", "GroundingDino", (*FEW, "cat"), [FEW]),
    case("many-labels", "grounding_dino", "GroundingDino", MANY[::-1], PASSES),
    case("mm", "mm_grounding_dino", "MMGroundingDino", FEW, [FEW]),
]
