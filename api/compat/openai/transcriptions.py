"""POST /v1/audio/transcriptions and /v1/audio/translations: one file of speech, its text in the form asked for."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from api.compat.calls import run
from api.compat.dialect import route_class
from api.compat.endpoints import Asked, Ended
from api.compat.failures import check_rows
from api.compat.openai.audio_form import Upload, upload_of
from api.compat.openai.errors import CALL_ERRORS, render
from api.compat.openai.transcripts import Transcript, short, srt, verbose, vtt
from api.compat.shapes import shaped, untaken
from api.media import Media, dumps
from api.services import services
from catalog.terms import Verb
from tasks.errors import InvalidRequest
from tasks.items import Strict, fault

router = APIRouter(route_class=route_class(render), tags=["openai"])


class TranslationsRequest(Strict):
    """What a form holds besides its file. A translation is into English."""

    model_config = ConfigDict(strict=False)  # a form has texts alone

    model: Annotated[str, Field(min_length=1)]
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    temperature: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    prompt: Annotated[None, untaken("no model here is led by one"), Field(description="Refused")] = None


class TranscriptionsRequest(TranslationsRequest):
    """What a form holds besides its file."""

    language: Annotated[str | None, Field(min_length=1, max_length=40, description="Such as `en`")] = None
    timestamp_granularities: Annotated[
        list[Literal["word", "segment"]] | None, Field(description="Of `verbose_json`; `timestamp_granularities[]`")
    ] = None
    stream: Annotated[bool | None, Field(description="Refused, but for `false`")] = None

    @model_validator(mode="after")
    def _can_be_done(self) -> TranscriptionsRequest:
        if self.stream:
            raise fault("is not taken: a transcript comes whole", "stream")
        if self.timestamp_granularities is not None and self.response_format != "verbose_json":
            raise fault("needs the response_format verbose_json", "timestamp_granularities")
        return self


_NAMES = {
    "items": "file",
    "items[0]": "file",
    "items[0].audio": "file",
    "items[0].audio.data": "file",
    "audio": "file",
    "verb": "model",
    "options.task": "model",
    "options.timestamps": "timestamp_granularities",
    "options": "",
}


def to_job(asked: TranslationsRequest, upload: Upload) -> Asked:
    """The extract job of a form."""
    ending = PurePath(upload.name).suffix.removeprefix(".")[:10]
    audio = {"data": upload.data, **({"format": ending} if ending.isalnum() else {})}
    options: dict[str, Any] = {}
    if not isinstance(asked, TranscriptionsRequest):
        options["task"] = "translate"
    elif asked.language is not None:
        options["language"] = asked.language
    if asked.temperature:
        options["temperature"] = asked.temperature
    if asked.response_format not in ("json", "text"):
        options["timestamps"] = "word" if "word" in _granularities(asked) else "segment"
    raw = {"verb": Verb.EXTRACT.value, "model": asked.model, "items": [{"audio": audio}], "options": options}
    return Asked(raw, _NAMES)


def to_reply(ended: Ended, asked: TranslationsRequest) -> Response:
    """The transcript in the form asked for. Raises the error of a file that could not be heard."""
    check_rows(ended, _NAMES)
    data = ended.rows[0].get("data", {})
    if "text" not in data:
        raise InvalidRequest(f"Model {ended.job.model!r} writes no transcripts.", param="model")
    match asked.response_format:
        case "text":
            return Response(data["text"] + "\n", media_type="text/plain")
        case "srt":
            return Response(srt(data), media_type="text/plain")
        case "vtt":
            return Response(vtt(data), media_type="text/plain")
        case "json":
            reply = short(data)
        case "verbose_json":
            task = "transcribe" if isinstance(asked, TranscriptionsRequest) else "translate"
            reply = verbose(data, task, asked.temperature, _granularities(asked))
    return Response(dumps(reply), media_type=Media.JSON.value)


def _granularities(asked: TranslationsRequest) -> list[str]:
    given = asked.timestamp_granularities if isinstance(asked, TranscriptionsRequest) else None
    return list(given or ("segment",))


def _documented(kind: type[TranslationsRequest]) -> dict[str, Any]:
    """The form in OpenAPI."""
    schema = kind.model_json_schema()
    file = {"type": "string", "format": "binary", "description": "WAV, FLAC, OGG or MP3, told by its content"}
    schema["properties"] = {"file": file, **schema["properties"]}
    schema["required"] = ["file", *schema["required"]]
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
    **CALL_ERRORS,
}


async def _heard(request: Request, kind: type[TranslationsRequest]) -> Response:
    upload = await upload_of(request, services(request).settings.max_body_bytes)
    asked = shaped(kind, upload.fields)
    return to_reply(await run(request, to_job(asked, upload), size=len(upload.data)), asked)


@router.post(
    "/v1/audio/transcriptions",
    summary="Write down speech, as OpenAI does",
    response_model=Transcript,
    responses=_REPLIES,
    openapi_extra=_documented(TranscriptionsRequest),
)
async def transcriptions(request: Request) -> Response:
    """The text of a file of speech, as one job of the verb `extract`. Subtitles and text come as plain text."""
    return await _heard(request, TranscriptionsRequest)


@router.post(
    "/v1/audio/translations",
    summary="Write down speech in English, as OpenAI does",
    response_model=Transcript,
    responses=_REPLIES,
    openapi_extra=_documented(TranslationsRequest),
)
async def translations(request: Request) -> Response:
    """The text of a file of speech in English, whatever language it is in, by a model that translates."""
    return await _heard(request, TranslationsRequest)
