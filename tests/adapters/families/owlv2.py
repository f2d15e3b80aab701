"""An OWLv2 and an OWL-ViT of random weights, against the library's own call on each image alone."""

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

LABELS = ("a red hat", "cat", "a photo of a face")
THRESHOLD = 0.5


def model(name: str) -> Callable[[], tuple[Spec, Path | None]]:
    def found() -> tuple[Spec, Path | None]:
        spec = Spec(
            id=f"random/{name}",
            family="owlv2",
            tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.OBJECTS,))),
            inputs=("image",),
            unit="tiles",
            parameters=300_000,
            max_length=16,
        )
        return spec, folder(name)

    return found


def items() -> list[Payload]:
    sizes = [(80, 60), (60, 80), (64, 64), (1, 1), (300, 20)]
    return [item(number, size, "PNG" if number % 2 else "WEBP") for number, size in enumerate(sizes)]


def reference(kind: str) -> Callable[[Path | None, str], Answers]:
    def opened_for(files: Path | None, device: str) -> Answers:
        import torch
        import transformers

        assert files is not None
        library = getattr(transformers, f"{kind}ForObjectDetection").from_pretrained(files).to(device).eval()
        images = getattr(transformers, f"{kind}ImageProcessorPil").from_pretrained(files)
        both = getattr(transformers, f"{kind}Processor")(images, transformers.AutoTokenizer.from_pretrained(files))

        def answers(items: Sequence[Payload]) -> list[Any]:
            out = []
            for payload in items:
                image = opened(payload)
                sent = both(images=image, text=[list(LABELS)], return_tensors="pt").to(device)
                with torch.inference_mode():
                    made = library(**sent)
                told = both.post_process_grounded_object_detection(
                    made, threshold=THRESHOLD, target_sizes=[image.size[::-1]], text_labels=[list(LABELS)]
                )[0]
                found = zip(told["text_labels"], told["scores"].tolist(), told["boxes"].tolist(), strict=True)
                out.append({"objects": objects(found, image.size)})
            return out

        return answers

    return opened_for


def case(name: str, kind: str) -> Case:
    return Case(
        name=name,
        model=model(name),
        verb=Verb.EXTRACT,
        items=items,
        options={"labels": [*LABELS, "cat"], "threshold": THRESHOLD},
        bad=({}, {"text": "a cat"}, broken(), {"images": [*item(1)["images"], *item(2)["images"]]}),
        reference=reference(kind),
        tolerance=1e-5,
    )


CASES = [case("owlv2", "Owlv2"), case("owlvit", "OwlViT")]
