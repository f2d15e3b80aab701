"""Sound in a file as one channel of samples at the rate that a model listens at. Formats are told by content.

WAV, FLAC, OGG (Vorbis, Opus), MP3 and what else libsndfile reads; raw 16-bit little-endian PCM where the caller gives
its rate. Channels are averaged. Only the calls import the libraries.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ItemRejected

MOST_BYTES = 64 * 2**20
"""A file that is larger is refused before it is opened."""

MOST_SECONDS = 4 * 3600.0
"""Longer sound is refused, by what its header says and again by what it holds."""

_SIGNED = (b"RIFF", b"RF64", b"fLaC", b"OggS", b"ID3", b"FORM", b".snd", b"caff", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")


@dataclass(frozen=True, slots=True)
class Sound:
    """One channel of float32 samples within -1 and 1."""

    samples: NDArray[np.float32]
    rate: int

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / self.rate


def read_sound(audio: Mapping[str, Any], rate: int) -> Sound | ItemRejected:
    """The sound of an item's `audio` at `rate` samples a second, or why it cannot be had."""
    data: bytes = audio["data"]
    if len(data) > MOST_BYTES:
        return ItemRejected(f"The audio has {len(data)} bytes; at most {MOST_BYTES} are read.", param="audio")
    raw = audio.get("sample_rate")
    is_raw = raw is not None and not data.startswith(_SIGNED) and data[4:8] != b"ftyp"
    found = _pcm(data, int(raw)) if is_raw and raw is not None else _decoded(data)
    if isinstance(found, ItemRejected):
        return found
    if found.seconds > MOST_SECONDS:
        return _too_long(found.seconds)
    if not len(found.samples):
        return ItemRejected("The audio holds no sound.", param="audio")
    if not np.isfinite(found.samples).all():
        return ItemRejected("The audio holds values that are no numbers.", param="audio")
    if found.rate == rate:
        return found
    import soxr

    return Sound(np.asarray(soxr.resample(found.samples, found.rate, rate), dtype=np.float32), rate)


def _pcm(data: bytes, rate: int) -> Sound | ItemRejected:
    if len(data) % 2:
        return ItemRejected("Raw audio must be 16-bit samples, so an even number of bytes.", param="audio")
    return Sound(np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768), rate)


def _decoded(data: bytes) -> Sound | ItemRejected:
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.frames > MOST_SECONDS * file.samplerate:
                return _too_long(file.frames / file.samplerate)
            samples = file.read(dtype="float32", always_2d=True)
            rate = int(file.samplerate)
    except (soundfile.SoundFileError, RuntimeError, ValueError) as error:
        message = "The audio cannot be read: send WAV, FLAC, OGG or MP3, or raw 16-bit PCM with its sample_rate."
        return ItemRejected(f"{message} ({type(error).__name__})", param="audio")
    return Sound(np.ascontiguousarray(samples.mean(axis=1, dtype=np.float32)), rate)


def _too_long(seconds: float) -> ItemRejected:
    message = f"The audio lasts {seconds:.0f} s; at most {MOST_SECONDS:.0f} are read. Send it in parts."
    return ItemRejected(message, param="audio")
