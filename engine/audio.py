"""Sound in a file as one channel of samples at the rate that a model listens at. Formats are told by content.

WAV, FLAC, OGG (Vorbis, Opus), MP3 and what else libsndfile reads; raw 16-bit little-endian PCM where the caller gives
its rate. Channels are averaged, block by block, so that only the one channel is ever there whole. Only the calls import
the libraries.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ItemRejected

MOST_BYTES = 64 * 2**20
"""A file that is larger is refused before it is opened."""

MOST_SECONDS = 2 * 3600.0
"""Longer sound is refused, by what its header says and again by what it holds."""

_BLOCK = 2**18
"""Samples that are decoded at a time, of all channels together."""

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
    if raw is not None and not data.startswith(_SIGNED) and data[4:8] != b"ftyp":
        return _pcm(data, int(raw), rate)
    return _decoded(data, rate)


def _pcm(data: bytes, own: int, rate: int) -> Sound | ItemRejected:
    if len(data) % 2:
        return ItemRejected("Raw audio must be 16-bit samples, so an even number of bytes.", param="audio")
    samples = np.frombuffer(data, "<i2")
    starts = range(0, len(samples), _BLOCK)
    return _joined((samples[at : at + _BLOCK].astype(np.float32) / np.float32(32768) for at in starts), own, rate)


def _decoded(data: bytes, rate: int) -> Sound | ItemRejected:
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.frames > MOST_SECONDS * file.samplerate:
                return _too_long(file.frames / file.samplerate)
            return _joined(_blocks(file), int(file.samplerate), rate)
    except (soundfile.SoundFileError, RuntimeError, ValueError) as error:
        message = "The audio cannot be read: send WAV, FLAC, OGG or MP3, or raw 16-bit PCM with its sample_rate."
        return ItemRejected(f"{message} ({type(error).__name__})", param="audio")


def _blocks(file: Any) -> Iterator[NDArray[np.float32]]:
    """A file's samples, its channels averaged. A small file may hold very many: only a block is there at a time."""
    frames = max(1, _BLOCK // int(file.channels))
    while len(block := file.read(frames, dtype="float32", always_2d=True)):
        yield block.mean(axis=1, dtype=np.float32)


def _joined(blocks: Iterable[NDArray[np.float32]], own: int, rate: int) -> Sound | ItemRejected:
    """Blocks of one channel at the rate `own`, as a sound at `rate`."""
    import soxr

    stream = None if own == rate else soxr.ResampleStream(own, rate, 1)
    found: list[NDArray[np.float32]] = []
    count = 0
    for block in blocks:
        count += len(block)
        if count > MOST_SECONDS * own:
            return _too_long(count / own)
        if not np.isfinite(block).all():
            return ItemRejected("The audio holds values that are no numbers.", param="audio")
        found.append(block if stream is None else stream.resample_chunk(block))
    if not count:
        return ItemRejected("The audio holds no sound.", param="audio")
    if stream is not None:
        found.append(stream.resample_chunk(np.empty(0, np.float32), last=True))
    return Sound(np.concatenate(found, dtype=np.float32), rate)


def _too_long(seconds: float) -> ItemRejected:
    message = f"The audio lasts {seconds:.0f} s; at most {MOST_SECONDS:.0f} are read. Send it in parts."
    return ItemRejected(message, param="audio")
