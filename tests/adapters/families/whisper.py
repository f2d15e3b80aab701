"""The family's model is Whisper tiny.en with its real weights; it hears sentences spoken by a speech synthesiser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog.schema import ExtractFacts, ExtractKind, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

AUDIO = Path(__file__).parents[2] / "files" / "audio"


def model() -> tuple[Spec, Path | None]:
    spec = Spec(
        id="openai/whisper-tiny.en",
        family="whisper",
        tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.TRANSCRIPT,))),
        parameters=37_760_640,
        max_length=7_200,
        unit="seconds",
        inputs=("audio",),
    )
    return spec, folder("whisper_tiny_en")


def items() -> list[Payload]:
    return [{"audio": {"data": (AUDIO / f"{name}.flac").read_bytes()}} for name in ("ceiling", "dollars")]


def reference(folder: Path | None, device: str) -> Answers:
    import io

    import soundfile
    import torch
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizer

    assert folder is not None
    library: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    library.to(device)
    listen, words = WhisperFeatureExtractor.from_pretrained(folder), WhisperTokenizer.from_pretrained(folder)

    def answers(items: Sequence[Payload]) -> list[Any]:
        found = []
        for item in items:
            samples, rate = soundfile.read(io.BytesIO(item["audio"]["data"]), dtype="float32")
            heard = listen(samples, sampling_rate=rate, return_tensors="pt", return_attention_mask=True)
            ids = library.generate(heard.input_features, attention_mask=heard.attention_mask, do_sample=False)
            found.append(words.batch_decode(ids, skip_special_tokens=True)[0].strip())
        return found

    return answers


def transcript(output: Output) -> str:
    text: str = output.fields["data"]["text"]
    return text


CASES = [
    Case(
        name="transcript",
        model=model,
        verb=Verb.EXTRACT,
        items=items,
        bad=({}, {"audio": {"data": b"no sound at all"}}, {"audio": {"data": b"odd", "sample_rate": 16_000}}),
        reference=reference,
        found=transcript,
    )
]
