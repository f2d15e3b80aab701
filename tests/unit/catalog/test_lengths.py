"""Prices of what nobody has opened yet."""

from __future__ import annotations

import io
import wave
from typing import Any

import pytest

from catalog.lengths import PAGE_BYTES, SECOND_BYTES, TURN_TOKENS, audio_seconds, document_pages, media_length
from catalog.schema import ExtractFacts, ExtractKind, Spec, Tasks, Unit


def spec(unit: Unit = "tokens", image_length: int = 1) -> Spec:
    return Spec(
        id="m",
        family="f",
        tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.DOCUMENT,))),
        parameters=0,
        max_length=100,
        unit=unit,
        image_length=image_length,
    )


def wav(seconds: float, rate: int = 8000, channels: int = 1) -> bytes:
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(2 * channels * round(seconds * rate)))
    return sound.getvalue()


def pdf(pages: int) -> bytes:
    tree = b"<< /Type /Pages /Count 3 >>"
    return b"%PDF-1.7\n" + tree + b"".join(b"<< /Type /Page >>\n<< /Type/Page/Parent 1 0 R>>\n" for _ in range(pages))


@pytest.mark.parametrize(
    ("data", "pages"),
    [
        (pdf(3), 6),
        (b"junk before\n" + pdf(1), 2),
        (b"%PDF-1.7 all of it packed" + bytes(3 * PAGE_BYTES), 4),
        (b"PK\x03\x04" + bytes(PAGE_BYTES), 2),
        (b"/Type /Page in a text that is no PDF", 1),
        (b"", 1),
    ],
)
def test_pages_are_counted_where_a_pdf_names_them_and_else_guessed_by_size(data: bytes, pages: int) -> None:
    assert document_pages(data) == pages


@pytest.mark.parametrize(("rate", "channels"), [(8000, 1), (44_100, 2)])
def test_the_seconds_of_a_wav_are_in_its_header(rate: int, channels: int) -> None:
    assert audio_seconds(wav(2.5, rate, channels)) == pytest.approx(2.5)
    assert audio_seconds(wav(2.5, rate, channels), sample_rate=1000) == pytest.approx(2.5)


def test_raw_sound_is_as_long_as_its_rate_says_and_packed_sound_is_guessed() -> None:
    assert audio_seconds(bytes(64_000), sample_rate=16_000) == pytest.approx(2.0)
    assert audio_seconds(bytes(3 * SECOND_BYTES)) == pytest.approx(3.0)
    assert audio_seconds(b"OggS" + bytes(SECOND_BYTES), sample_rate=1000) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("data", [b"", b"RIFF", b"RIFF....WAVEfmt " + bytes(40), wav(0)])
def test_a_broken_header_harms_nothing(data: bytes) -> None:
    assert 0 <= audio_seconds(data) < 1


@pytest.mark.parametrize(
    ("unit", "image_length", "payload", "length"),
    [
        ("tokens", 1, {"text": "a b c"}, 0),
        ("tokens", 50, {"images": [{"data": b"x"}] * 3}, 150),
        ("tiles", 1, {"images": [{"data": b"x"}]}, 1),
        ("pages", 1, {"document": {"data": pdf(2)}}, 4),
        ("tokens", 500, {"document": {"data": pdf(2)}}, 2000),
        ("seconds", 1, {"audio": {"data": wav(2.6)}}, 3),
        ("seconds", 1, {"audio": {"data": b"x"}}, 1),
        ("tokens", 1, {"multivector": {"num_tokens": 7, "token_dims": 2, "values": b""}}, 7),
        ("tokens", 1, {"messages": [{"role": "user", "content": "a"}] * 2}, 2 * TURN_TOKENS),
    ],
)
def test_what_an_item_holds_besides_text_has_a_length(
    unit: Unit, image_length: int, payload: dict[str, Any], length: int
) -> None:
    assert media_length(spec(unit, image_length), payload) == length
