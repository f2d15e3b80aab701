"""How long an item is before anybody has opened it: a price for media, in the model's own unit. Pure; guesses.

Texts are counted by the model's tokenizer (`catalog.tokenizer`); what is here looks at no more than headers. A wrong
guess costs a queue that is a little too short or too long, no more: the adapter counts for itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from catalog.schema import Spec

PAGE_BYTES = 60_000
"""Of a document that tells nothing: what a page takes."""

SECOND_BYTES = 16_000
"""Of audio that tells nothing: what a second takes (128 kbit/s)."""

TURN_TOKENS = 8
"""What a chat template puts around a message."""

_PAGE = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")


def media_length(spec: Spec, payload: Mapping[str, Any]) -> int:
    """What an item's images, audio, document, vectors and turns count in the spec's unit; 0 if it has none of these."""
    length = len(payload.get("images", ())) * spec.image_length
    if "document" in payload:
        pages = document_pages(payload["document"]["data"])
        length += pages if spec.unit == "pages" else pages * spec.image_length
    if "audio" in payload:
        audio = payload["audio"]
        length += max(1, round(audio_seconds(audio["data"], audio.get("sample_rate"))))
    if "multivector" in payload:
        length += int(payload["multivector"]["num_tokens"])
    if "messages" in payload:
        length += TURN_TOKENS * len(payload["messages"])
    return length


def document_pages(data: bytes) -> int:
    """Pages of a document: those that a PDF names in the clear, or a guess by its size."""
    named = len(_PAGE.findall(data)) if data[:1024].find(b"%PDF") >= 0 else 0
    return max(1, named or -(-len(data) // PAGE_BYTES))


def audio_seconds(data: bytes, sample_rate: int | None = None) -> float:
    """Seconds of sound: exact for a plain WAV header and for raw 16-bit PCM of a told rate, else by size."""
    if data[:4] == b"RIFF" and data[8:16] == b"WAVEfmt " and len(data) > 44:
        per_second = int.from_bytes(data[28:32], "little")
        if per_second:
            return (len(data) - 44) / per_second
    if sample_rate and data[:4] not in (b"RIFF", b"fLaC", b"OggS"):
        return len(data) / (2 * sample_rate)
    return len(data) / SECOND_BYTES
