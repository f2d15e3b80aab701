"""From the form of an audio call to an extract job, and back to a transcript."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from api.compat.failures import JobFailed, renamed
from api.compat.openai.audio_form import Upload
from api.compat.openai.transcriptions import TranscriptionsRequest, TranslationsRequest, to_job, to_reply
from api.compat.shapes import shaped
from catalog.errors import InvalidOption, RoostError
from tasks.errors import InvalidRequest
from tasks.request import parse_request
from tests.unit.api.compat.ends import ended

DATA = {"text": "Mind the step.", "language": "en", "seconds": 1.5}
TIMED = {**DATA, "segments": [{"start": 0.0, "end": 1.5, "text": "Mind the step."}], "words": []}


def asked(**fields: Any) -> TranscriptionsRequest:
    return shaped(TranscriptionsRequest, {"model": "org/ear", **fields})


def job(request: TranslationsRequest, name: str = "a.mp3") -> dict[str, Any]:
    raw = dict(to_job(request, Upload(b"sound", name, {})).raw)
    assert parse_request(raw, 1).verb == "extract"
    return raw


def test_a_file_becomes_the_sound_of_one_item() -> None:
    assert job(asked())["items"] == [{"audio": {"data": b"sound", "format": "mp3"}}]
    assert job(asked(), "speech")["items"] == [{"audio": {"data": b"sound"}}]


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"response_format": "text", "stream": "false", "temperature": "0"}, {}),
        ({"language": "de", "temperature": "0.5"}, {"language": "de", "temperature": 0.5}),
        ({"response_format": "srt"}, {"timestamps": "segment"}),
        ({"response_format": "verbose_json"}, {"timestamps": "segment"}),
        ({"response_format": "verbose_json", "timestamp_granularities": ["word"]}, {"timestamps": "word"}),
        ({"response_format": "verbose_json", "timestamp_granularities": ["segment", "word"]}, {"timestamps": "word"}),
    ],
)
def test_fields_become_options(fields: dict[str, Any], options: dict[str, Any]) -> None:
    assert job(asked(**fields))["options"] == options


def test_a_translation_is_the_other_task() -> None:
    assert job(shaped(TranslationsRequest, {"model": "org/ear"}))["options"] == {"task": "translate"}


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"stream": "true"}, "stream", "comes whole"),
        ({"prompt": "Mind the gap"}, "prompt", "led by one"),
        ({"response_format": "diarized_json"}, "response_format", "must be 'json'"),
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities", "verbose_json"),
        (
            {"response_format": "verbose_json", "timestamp_granularities": ["wrod"]},
            "timestamp_granularities[0]",
            "word",
        ),
        ({"temperature": "hot"}, "temperature", "valid number"),
        ({"temperature": "2"}, "temperature", "less than or equal to 1"),
        ({"langauge": "de"}, "langauge", "did you mean 'language'?"),
    ],
)
def test_what_is_refused_is_named(fields: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(RoostError) as raised:
        asked(**fields)
    assert raised.value.param == param
    assert said in raised.value.message


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("items[0]", "file"),
        ("items[0].audio.data", "file"),
        ("audio", "file"),
        ("options.task", "model"),
        ("options.language", "language"),
        ("verb", "model"),
    ],
)
def test_errors_of_the_job_name_the_fields_of_the_form(ours: str, theirs: str) -> None:
    names = to_job(asked(), Upload(b"sound", "", {})).names
    assert renamed(InvalidOption(param=ours), names).param == theirs


@pytest.mark.parametrize(
    ("form", "media", "begins"),
    [
        ("json", "application/json", b'{"text":"Mind the step."'),
        ("text", "text/plain; charset=utf-8", b"Mind the step.\n"),
        ("srt", "text/plain; charset=utf-8", b"1\n00:00:00,000 -->"),
        ("vtt", "text/plain; charset=utf-8", b"WEBVTT\n\n"),
        ("verbose_json", "application/json", b'{"text":"Mind the step."'),
    ],
)
def test_a_transcript_comes_in_the_form_asked_for(form: str, media: str, begins: bytes) -> None:
    data = DATA if form in ("json", "text") else TIMED
    reply = to_reply(ended("extract", [{"data": data, "tokens": 4}]), asked(response_format=form))
    assert reply.headers["content-type"] == media
    assert bytes(reply.body).startswith(begins)


def test_the_long_form_says_what_was_done() -> None:
    end = ended("extract", [{"data": TIMED, "tokens": 4}])
    said = to_reply(end, shaped(TranslationsRequest, {"model": "org/ear", "response_format": "verbose_json"}))
    assert orjson.loads(bytes(said.body))["task"] == "translate"


def test_a_file_that_is_no_sound_is_the_field_at_fault() -> None:
    row = {"error": {"code": "invalid_item", "message": "No sound.", "param": "audio", "retryable": False}}
    with pytest.raises(JobFailed) as raised:
        to_reply(ended("extract", [row]), asked())
    assert raised.value.param == "file"


def test_a_model_that_hears_but_writes_no_transcript_is_the_field_at_fault() -> None:
    with pytest.raises(InvalidRequest) as raised:
        to_reply(ended("extract", [{"entities": [], "tokens": 4}]), asked())
    assert raised.value.param == "model"
