"""Sound is told by content, brought to one channel and one rate, and refused with what to do."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from engine import audio as audio_module
from engine.audio import MOST_BYTES, Sound, read_sound
from engine.errors import ItemRejected

RATE = 16_000


def tone(rate: int, seconds: float = 0.5, channels: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    wave = 0.5 * np.sin(2 * np.pi * 440 * np.arange(int(rate * seconds)) / rate)
    return np.repeat(wave[:, None], channels, axis=1).astype(np.float32)


def file(samples: np.ndarray[Any, Any], rate: int, form: str, subtype: str | None = None) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=form, subtype=subtype)
    return out.getvalue()


def loudest(sound: Sound) -> float:
    """The frequency with the most of the sound."""
    spectrum = np.abs(np.fft.rfft(sound.samples))
    return float(np.fft.rfftfreq(len(sound.samples), 1 / sound.rate)[int(spectrum.argmax())])


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_every_format_and_rate_gives_the_same_tone(form: str, rate: int) -> None:
    sound = read_sound({"data": file(tone(rate), rate, form)}, RATE)
    assert isinstance(sound, Sound)
    assert sound.rate == RATE
    assert sound.seconds == pytest.approx(0.5, abs=0.1)
    assert loudest(sound) == pytest.approx(440, abs=5)


def test_channels_are_averaged() -> None:
    both = tone(RATE, channels=2)
    both[:, 1] = 0
    sound = read_sound({"data": file(both, RATE, "WAV", "FLOAT")}, RATE)
    assert isinstance(sound, Sound)
    assert np.allclose(sound.samples, both[:, 0] / 2, atol=1e-6)


def test_raw_samples_need_their_rate() -> None:
    raw = (tone(8_000)[:, 0] * 32767).astype("<i2").tobytes()
    sound = read_sound({"data": raw, "sample_rate": 8_000}, RATE)
    assert isinstance(sound, Sound)
    assert loudest(sound) == pytest.approx(440, abs=5)
    assert isinstance(read_sound({"data": raw}, RATE), ItemRejected)


def test_a_files_own_rate_wins_over_a_told_one() -> None:
    sound = read_sound({"data": file(tone(8_000), 8_000, "WAV"), "sample_rate": 44_100}, RATE)
    assert isinstance(sound, Sound)
    assert loudest(sound) == pytest.approx(440, abs=5)


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"RIFF\x00\x00\x00\x00WAVE",
        b"ID3" + b"\0" * 100,
        file(tone(RATE), RATE, "FLAC")[:60],
        file(tone(RATE, 0), RATE, "WAV"),
    ],
    ids=["noise", "empty head", "no frames", "cut short", "no samples"],
)
def test_what_is_no_sound_is_refused(data: bytes) -> None:
    assert isinstance(read_sound({"data": data}, RATE), ItemRejected)


def test_numbers_that_are_none_are_refused() -> None:
    samples = tone(RATE)
    samples[7] = np.nan
    assert isinstance(read_sound({"data": file(samples, RATE, "WAV", "FLOAT")}, RATE), ItemRejected)


def test_too_much_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(read_sound({"data": bytes(MOST_BYTES + 1)}, RATE), ItemRejected)
    monkeypatch.setattr(audio_module, "MOST_SECONDS", 0.1)
    refused = read_sound({"data": file(tone(RATE), RATE, "WAV")}, RATE)
    assert isinstance(refused, ItemRejected)
    assert "in parts" in refused.message


def test_raw_sound_that_lasts_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio_module, "MOST_SECONDS", 0.1)
    refused = read_sound({"data": bytes(2 * 1600 + 2), "sample_rate": RATE}, RATE)
    assert isinstance(refused, ItemRejected)
    assert "in parts" in refused.message
    assert isinstance(read_sound({"data": bytes(2 * 1600), "sample_rate": RATE}, RATE), Sound)


def test_a_small_file_of_many_samples_takes_little_memory() -> None:
    silence = file(np.zeros((4 * 192_000, 8), np.int16), 192_000, "FLAC")
    assert len(silence) < 50_000
    read_sound({"data": silence}, RATE)
    tracemalloc.start()
    sound = read_sound({"data": silence}, RATE)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(sound, Sound)
    assert sound.seconds == pytest.approx(4, abs=0.01)
    # Decoded whole it has 24 MiB.
    assert most < 5 * 2**20


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_blocks_meet_without_a_seam(rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tone(rate, channels=2)
    monkeypatch.setattr(audio_module, "_BLOCK", 1000)
    sound = read_sound({"data": file(whole, rate, "WAV", "FLOAT")}, RATE)
    assert isinstance(sound, Sound)
    expected = soxr.resample(whole[:, 0], rate, RATE)
    assert len(sound.samples) == len(expected)
    assert np.allclose(sound.samples, expected, atol=1e-4)
