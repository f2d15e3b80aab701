"""CLIP, SigLIP and SigLIP 2 of random weights, against the library's own two calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog.schema import EncodeFacts, Spec, Tasks
from catalog.terms import Verb
from tests.adapters.case import Answers, Case, Payload
from tests.adapters.pictures import broken, item, opened
from tests.small import folder

TEXTS = ["a bird", "A roost is a place where birds sleep.", "日本語", "queue " * 60, "<|endoftext|> </s> and more"]


def model(name: str, dims: int, reads: int) -> Callable[[], tuple[Spec, Path | None]]:
    def found() -> tuple[Spec, Path | None]:
        spec = Spec(
            id=f"random/{name}",
            family="vision_text",
            tasks=Tasks(encode=EncodeFacts(dims=dims)),
            inputs=("text", "image"),
            image_length=4,
            parameters=300_000,
            max_length=reads,
        )
        return spec, folder(name)

    return found


def items() -> list[Payload]:
    pictures = [item(1), item(2, (30, 90), "JPEG"), item(3, (1, 1)), item(4, (64, 64), "WEBP")]
    return [payload for pair in zip([{"text": text} for text in TEXTS], pictures, strict=False) for payload in pair]


def reference(processor: str, *, whole: bool) -> Callable[[Path | None, str], Answers]:
    def opened_for(files: Path | None, device: str) -> Answers:
        import torch
        import transformers

        assert files is not None
        library = transformers.AutoModel.from_pretrained(files).to(device).eval()
        words = transformers.AutoTokenizer.from_pretrained(files)
        images = getattr(transformers, processor).from_pretrained(files)
        longest = library.config.text_config.max_position_embeddings

        def answers(items: Sequence[Payload]) -> list[Any]:
            found = []
            for payload in items:
                with torch.inference_mode():
                    if "text" in payload:
                        sent = words(
                            payload["text"],
                            padding="max_length" if whole else True,
                            truncation=True,
                            max_length=longest,
                            return_tensors="pt",
                        )
                        vector = library.get_text_features(**sent.to(device)).pooler_output[0]
                    else:
                        sent = images(images=opened(payload), return_tensors="pt")
                        vector = library.get_image_features(**sent.to(device)).pooler_output[0]
                found.append({"dense": (vector / vector.norm()).cpu().numpy()})
            return found

        return answers

    return opened_for


BAD: tuple[Payload, ...] = (
    {},
    {"text": 7},
    {"text": "half \ud83d pair"},
    broken(),
    {**item(5), "text": "both"},
    {"images": []},
)


def case(name: str, dims: int, reads: int, processor: str, *, whole: bool) -> Case:
    return Case(
        name=name,
        model=model(name, dims, reads),
        verb=Verb.ENCODE,
        items=items,
        bad=BAD,
        reference=reference(processor, whole=whole),
        tolerance=1e-5,
    )


CASES = [
    case("clip", 48, 32, "CLIPImageProcessorPil", whole=False),
    case("siglip", 64, 24, "SiglipImageProcessorPil", whole=True),
    case("siglip2", 64, 24, "Siglip2ImageProcessorPil", whole=True),
]
