"""Speech to text by OpenAI's official client, sync and async: a small Whisper with its real weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.acceptance.openai_clients import Both
from tests.acceptance.small_models import PATIENT, whisper

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

SPEECH = Path(__file__).parents[1] / "files" / "audio" / "ceiling.flac"
EAR = "test/whisper-tiny.en"


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models={EAR: whisper()}, **PATIENT)


@pytest.fixture(scope="module")
def clients(stack: Any) -> Iterator[Both]:
    both = Both(stack.url)
    yield both
    both.close()


@pytest.fixture(scope="module")
def heard(stack: Any) -> dict[str, Any]:
    """What the native API makes of the same file."""
    from base64 import b64encode

    item = {"audio": {"data": b64encode(SPEECH.read_bytes()).decode()}}
    body = {"verb": "extract", "model": EAR, "items": [item], "options": {"timestamps": "word"}}
    job = stack.client.post("/v1/jobs", json=body, headers={"Prefer": "wait=60"}).json()
    return dict(job["result"]["items"][0]["data"])


def speech(**fields: Any) -> Callable[[Any], Any]:
    return lambda c: c.audio.transcriptions.create(**{"model": EAR, "file": SPEECH, **fields})


def test_a_file_is_written_down(clients: Both, heard: dict[str, Any]) -> None:
    assert "ceiling" in heard["text"].lower()
    for reply in clients.call(speech(language="en")):
        assert reply.text == heard["text"]
        assert (reply.usage.type, reply.usage.seconds) == ("duration", heard["seconds"])


def test_a_file_may_come_as_bytes_with_a_name(clients: Both, heard: dict[str, Any]) -> None:
    for reply in clients.call(speech(file=("speech.flac", SPEECH.read_bytes(), "audio/flac"), temperature=0)):
        assert reply.text == heard["text"]


def test_plain_text_and_subtitles_come_as_such(clients: Both, heard: dict[str, Any]) -> None:
    for text in clients.call(speech(response_format="text")):
        assert text == heard["text"] + "\n"
    for form, begins in (("srt", "1\n00:00:0"), ("vtt", "WEBVTT\n\n00:00:0")):
        for text in clients.call(speech(response_format=form)):
            assert text.startswith(begins)
            assert heard["segments"][0]["text"] in text


def test_the_long_form_has_the_times_of_segments_and_words(clients: Both, heard: dict[str, Any]) -> None:
    for reply in clients.call(speech(response_format="verbose_json", timestamp_granularities=["segment", "word"])):
        assert (reply.text, reply.language, reply.duration) == (heard["text"], "en", heard["seconds"])
        assert [(s.start, s.end, s.text) for s in reply.segments] == [
            (s["start"], s["end"], s["text"]) for s in heard["segments"]
        ]
        assert [(w.start, w.end, w.word) for w in reply.words] == [
            (w["start"], w["end"], w["text"]) for w in heard["words"]
        ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"file": ("a.wav", b"no sound at all")}, "file"),
        ({"file": ("a.wav", b"")}, "file"),
        ({"language": "de"}, "language"),
        ({"prompt": "Mind the gap."}, "prompt"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities"),
        ({"temperature": 3}, "temperature"),
        ({"stream": True}, "stream"),
        ({"include": ["logprobs"]}, "include"),
        ({"model": "roost/fake"}, "model"),
        ({"extra_body": {"langauge": "en"}}, "langauge"),
    ],
    ids=str,
)
def test_what_is_refused_names_its_field(clients: Both, fields: dict[str, Any], param: str) -> None:
    for error in clients.refused(speech(**fields)):
        assert error.param == param


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # the client's own, of its method
def test_an_english_ear_translates_nothing(clients: Both) -> None:
    for error in clients.refused(lambda c: c.audio.translations.create(model=EAR, file=SPEECH)):
        assert error.param == "model"


def test_a_form_without_a_file_or_of_another_kind_is_refused(stack: Any) -> None:
    answer = stack.client.post("/v1/audio/transcriptions", files={"model": (None, EAR)})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file")
    answer = stack.client.post("/v1/audio/transcriptions", json={"model": EAR})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_a_file_beyond_the_limit_is_refused_at_its_length(stack: Any, clients: Both) -> None:
    big = ("big.wav", bytes(stack.settings.max_body_bytes))
    with pytest.raises(openai.APIStatusError) as raised:
        speech(file=big)(clients.sync)
    assert raised.value.status_code == 413
