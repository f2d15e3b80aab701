"""What Whisper gives besides a text: times, long sound heard to its end, options that are none of its own refused."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from catalog.options import parse_options
from catalog.terms import Verb
from engine.adapters.base import Adapter
from engine.errors import ItemRejected
from engine.types import Output
from tests.adapters.conftest import batch, build, cases_of

AUDIO = Path(__file__).parents[2] / "files" / "audio"


@pytest.fixture(scope="module")
def adapter() -> Iterator[Adapter]:
    built = build(cases_of("whisper")[0])
    built.load()
    yield built
    built.unload()


def heard(adapter: Adapter, data: bytes, **options: Any) -> Output | ItemRejected:
    parsed = parse_options(adapter.spec, Verb.EXTRACT, {}, options)
    (outcome,) = adapter.run(batch(Verb.EXTRACT, [{"audio": {"data": data}}], [parsed]))
    assert isinstance(outcome, Output | ItemRejected)
    return outcome


def data(adapter: Adapter, sound: bytes, **options: Any) -> dict[str, Any]:
    outcome = heard(adapter, sound, **options)
    assert isinstance(outcome, Output), outcome
    found: dict[str, Any] = outcome.fields["data"]
    return found


def clip(name: str) -> bytes:
    return (AUDIO / f"{name}.flac").read_bytes()


def test_a_sentence_is_heard(adapter: Adapter) -> None:
    found = data(adapter, clip("ceiling"))
    assert "kitchen ceiling" in found["text"].lower()
    assert found["language"] == "en"
    assert found["seconds"] == pytest.approx(2.5, abs=1.0)


def test_words_have_times_that_rise_within_the_sound(adapter: Adapter) -> None:
    found = data(adapter, clip("ceiling"), timestamps="word")
    times = [(word["start"], word["end"]) for word in found["words"]]
    assert len(times) >= 5
    assert all(0 <= start <= end <= found["seconds"] for start, end in times)
    assert times == sorted(times)
    assert [part["text"] for part in found["segments"]]


def test_long_sound_is_heard_to_its_end(adapter: Adapter) -> None:
    # A sentence, forty seconds of silence, and another: the second lies beyond the model's window.
    first, rate = soundfile.read(AUDIO / "ceiling.flac", dtype="float32")
    last, _ = soundfile.read(AUDIO / "dollars.flac", dtype="float32")
    file = io.BytesIO()
    soundfile.write(file, np.concatenate([first, np.zeros(38 * rate, np.float32), last]), rate, format="FLAC")
    found = data(adapter, file.getvalue(), timestamps="segment")
    assert found["seconds"] > 40
    assert "ceiling" in found["text"].lower()
    assert "$200" in found["text"]
    assert found["segments"][-1]["start"] >= 30


def test_raw_samples_of_a_told_rate_are_heard(adapter: Adapter) -> None:
    samples, rate = soundfile.read(AUDIO / "ceiling.flac", dtype="int16")
    parsed = parse_options(adapter.spec, Verb.EXTRACT, {}, {})
    raw = {"audio": {"data": samples.astype("<i2").tobytes(), "sample_rate": rate}}
    (outcome,) = adapter.run(batch(Verb.EXTRACT, [raw], [parsed]))
    assert isinstance(outcome, Output)
    assert outcome.fields["data"]["text"] == data(adapter, clip("ceiling"))["text"]


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"language": "de"}, "options.language"),
        ({"task": "translate"}, "options.task"),
        ({"task": "sing"}, "options.task"),
    ],
)
def test_what_an_english_model_cannot_do_is_refused(adapter: Adapter, options: dict[str, str], param: str) -> None:
    outcome = heard(adapter, clip("dollars"), **options)
    assert isinstance(outcome, ItemRejected)
    assert outcome.param == param


def test_an_interrupted_transcription_ends(adapter: Adapter) -> None:
    other = build(cases_of("whisper")[0])
    other.load()
    other.interrupt()
    ended: list[str] = []

    def run() -> None:
        try:
            heard(other, clip("ceiling"))
        except RuntimeError as error:
            ended.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert ended == ["interrupted"]
    other.unload()
