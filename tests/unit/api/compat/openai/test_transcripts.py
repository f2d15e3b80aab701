"""A transcript in the forms that OpenAI gives it."""

from __future__ import annotations

from api.compat.openai.transcripts import Transcript, short, srt, verbose, vtt

DATA = {
    "text": "Mind the step. The --> ceiling is low.",
    "language": "de",
    "seconds": 3725.5,
    "segments": [
        {"start": 0.0, "end": 1.5, "text": "Mind the step."},
        {"start": 3661.25, "end": 3725.5, "text": "The -->\n ceiling is low."},
    ],
    "words": [{"start": 0.0, "end": 0.4, "text": "Mind"}],
}


def test_the_short_form_is_the_text_and_what_was_heard() -> None:
    reply = short(DATA)
    Transcript.model_validate(reply)
    assert reply == {"text": DATA["text"], "usage": {"type": "duration", "seconds": 3725.5}}


def test_the_long_form_has_segments_or_words_as_asked() -> None:
    reply = verbose(DATA, "transcribe", 0.25, ["segment"])
    Transcript.model_validate(reply)
    assert (reply["task"], reply["language"], reply["duration"]) == ("transcribe", "de", 3725.5)
    assert [(s["id"], s["start"], s["end"], s["temperature"]) for s in reply["segments"]] == [
        (0, 0.0, 1.5, 0.25),
        (1, 3661.25, 3725.5, 0.25),
    ]
    assert "words" not in reply
    only = verbose(DATA, "transcribe", 0.0, ["word"])
    assert only["words"] == [{"word": "Mind", "start": 0.0, "end": 0.4}]
    assert "segments" not in only


def test_a_translation_is_in_english() -> None:
    assert verbose(DATA, "translate", 0.0, [])["language"] == "en"


def test_subtitles_have_their_times_and_one_line_each() -> None:
    assert srt(DATA) == (
        "1\n00:00:00,000 --> 00:00:01,500\nMind the step.\n\n"
        "2\n01:01:01,250 --> 01:02:05,500\nThe -> ceiling is low.\n\n"
    )
    assert vtt(DATA).startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nMind the step.\n\n")
