"""What Whisper gives besides a text: times, long sound heard to its end, options that are none of its own refused."""

from __future__ import annotations

import gc
import io
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from catalog.loader import Catalog
from catalog.options import parse_options
from catalog.terms import Verb
from engine.adapters import whisper
from engine.adapters.base import Adapter
from engine.audio import MOST_SECONDS, Sound
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


def test_long_sound_that_the_limit_cut_is_marked(adapter: Adapter) -> None:
    first, rate = soundfile.read(AUDIO / "ceiling.flac", dtype="float32")
    file = io.BytesIO()
    soundfile.write(file, np.concatenate([first, np.zeros(38 * rate, np.float32)]), rate, format="FLAC")
    whole, cut = heard(adapter, file.getvalue()), heard(adapter, file.getvalue(), max_new_tokens=4)
    assert isinstance(whole, Output)
    assert isinstance(cut, Output)
    assert (whole.truncated, cut.truncated) == (False, True)


def test_no_two_long_sounds_are_there_at_once(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    sounds: list[weakref.ref[Any]] = []
    there: list[int] = []

    def watched(audio: Any, rate: int) -> Sound:
        gc.collect()
        there.append(sum(one() is not None for one in sounds))
        samples = np.zeros(31 * rate, np.float32)
        sounds.append(weakref.ref(samples))
        return Sound(samples, rate)

    monkeypatch.setattr(whisper, "read_sound", watched)
    parsed = parse_options(adapter.spec, Verb.EXTRACT, {}, {"max_new_tokens": 1})
    adapter.run(batch(Verb.EXTRACT, [{"audio": {"data": b""}}] * 3, [parsed] * 3))
    assert there == [0, 0, 0]


def test_the_catalog_says_how_long_a_sound_may_be() -> None:
    longest = {spec.max_length for spec in Catalog.load().specs if spec.family == "whisper"}
    assert longest == {MOST_SECONDS}


def test_a_second_of_sound_is_booked_with_what_it_takes_on_the_way_to_features(adapter: Adapter) -> None:
    if adapter.device != "cpu":
        pytest.skip("on a card that is the host's memory")
    samples, spectrum, powers = 4 * 16_000, 100 * 201 * 8, 100 * 201 * 4
    assert adapter.footprint().per_token > samples + spectrum + powers


def test_raw_samples_of_a_told_rate_are_heard(adapter: Adapter) -> None:
    samples, rate = soundfile.read(AUDIO / "ceiling.flac", dtype="int16")
    parsed = parse_options(adapter.spec, Verb.EXTRACT, {}, {})
    raw = {"audio": {"data": samples.astype("<i2").tobytes(), "sample_rate": rate}}
    (outcome,) = adapter.run(batch(Verb.EXTRACT, [raw], [parsed]))
    assert isinstance(outcome, Output)
    assert outcome.fields["data"]["text"] == data(adapter, clip("ceiling"))["text"]


@pytest.mark.parametrize("timestamps", ["none", "segment", "word"])
def test_a_text_that_the_limit_cut_is_marked_and_its_neighbour_is_not(adapter: Adapter, timestamps: str) -> None:
    options = {"timestamps": timestamps}
    whole = heard(adapter, clip("ceiling"), **options)
    cut = heard(adapter, clip("ceiling"), max_new_tokens=3, **options)
    assert isinstance(whole, Output)
    assert isinstance(cut, Output)
    assert not whole.truncated
    assert cut.truncated
    assert len(cut.fields["data"]["text"]) < len(whole.fields["data"]["text"])


def test_in_one_pass_only_the_text_that_was_cut_is_marked(adapter: Adapter) -> None:
    names = ("ceiling", "dollars")
    tokens = {}
    for name in names:
        alone = heard(adapter, clip(name))
        assert isinstance(alone, Output)
        tokens[name] = alone.tokens
    short, long = sorted(names, key=lambda name: tokens[name])
    assert tokens[short] + 2 < tokens[long]
    parsed = parse_options(adapter.spec, Verb.EXTRACT, {}, {"max_new_tokens": tokens[short] + 2})
    items = [{"audio": {"data": clip(name)}} for name in (short, long)]
    found = adapter.run(batch(Verb.EXTRACT, items, [parsed] * 2))
    assert [one.truncated for one in found if isinstance(one, Output)] == [False, True]


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"language": "de"}, "options.language"),
        ({"task": "translate"}, "options.task"),
        ({"task": "sing"}, "options.task"),
        ({"max_new_tokens": 225}, "options.max_new_tokens"),
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
