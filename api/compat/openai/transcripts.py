"""A transcript in the forms that OpenAI gives it: JSON short and long, plain text, subtitles."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from api.schemas import Reply


class Duration(Reply):
    """How much was heard."""

    type: Literal["duration"]
    seconds: float


class Segment(Reply):
    """A part of the text, its times in seconds. What is not known of how it was decoded is null."""

    id: int
    start: float
    end: float
    text: str
    temperature: float
    compression_ratio: float
    seek: None
    tokens: None
    avg_logprob: None
    no_speech_prob: None


class Word(Reply):
    """A word, its times in seconds."""

    word: str
    start: float
    end: float


class Transcript(Reply):
    """The text; of `verbose_json` also what it was made of."""

    text: str
    usage: Duration
    task: Literal["transcribe", "translate"] | None = None
    language: str | None = None
    duration: float | None = None
    segments: list[Segment] | None = None
    words: list[Word] | None = None


def short(data: Mapping[str, Any]) -> dict[str, Any]:
    """The form `json` of what a model gave as `data`."""
    return {"text": data["text"], "usage": {"type": "duration", "seconds": data["seconds"]}}


def verbose(data: Mapping[str, Any], task: str, temperature: float, granularities: Sequence[str]) -> dict[str, Any]:
    """The form `verbose_json`."""
    language = data["language"] if task == "transcribe" else "en"
    found = {**short(data), "task": task, "language": language, "duration": data["seconds"]}
    if "segment" in granularities:
        found["segments"] = [_segment(index, part, temperature) for index, part in enumerate(data["segments"])]
    if "word" in granularities:
        found["words"] = [{"word": word["text"], "start": word["start"], "end": word["end"]} for word in data["words"]]
    return found


def _segment(index: int, part: Mapping[str, Any], temperature: float) -> dict[str, Any]:
    raw = part["text"].encode()
    known = {name: part[name] for name in ("start", "end", "text")}
    ratio = len(raw) / len(zlib.compress(raw))
    unknown = dict.fromkeys(("seek", "tokens", "avg_logprob", "no_speech_prob"))
    return {"id": index, **known, "temperature": temperature, "compression_ratio": ratio, **unknown}


def srt(data: Mapping[str, Any]) -> str:
    """SubRip: numbered, with a comma in its times."""
    return "".join(
        f"{number}\n{_time(part['start'], ',')} --> {_time(part['end'], ',')}\n{_line(part['text'])}\n\n"
        for number, part in enumerate(data["segments"], 1)
    )


def vtt(data: Mapping[str, Any]) -> str:
    """WebVTT."""
    return "WEBVTT\n\n" + "".join(
        f"{_time(part['start'], '.')} --> {_time(part['end'], '.')}\n{_line(part['text'])}\n\n"
        for part in data["segments"]
    )


def _time(seconds: float, point: str) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(whole, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}{point}{milliseconds:03d}"


def _line(text: str) -> str:
    """The text on one line, without what would look like times."""
    return " ".join(text.split()).replace("-->", "->")
