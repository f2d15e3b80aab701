"""What a caller asks of a backfill, checked before anything runs: its shape, and that each step can read what it gets.

Errors name the field, as `steps[1].options.overlap`, and offer the nearest valid name. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, Field, ValidationError, model_validator

from catalog.errors import InvalidOption, UnsupportedVerb
from catalog.loader import Choice
from catalog.schema import ExtractKind
from catalog.terms import Verb
from tasks.backfills.chunking import Cut, Unit
from tasks.errors import InvalidRequest
from tasks.files import SHOWN, parsed_id
from tasks.items import Strict, fault, plain
from tasks.request import MAX_OPTIONS, explain

MOST_STEPS = 8
MOST_LISTED = 10_000
"""Files that a request may list itself; more come in a manifest."""

TEXTUAL = frozenset({ExtractKind.DOCUMENT, ExtractKind.TEXT, ExtractKind.TRANSCRIPT})
"""What an extraction finds that later steps can read."""

DEFAULT_TOKENS, DEFAULT_CHARS = 256, 1000


class StepName(StrEnum):
    """What a step does: one of the verbs; `parse`, the `extract` of a model that makes text; or `chunk`."""

    PARSE = "parse"
    CHUNK = "chunk"
    ENCODE = "encode"
    SCORE = "score"
    EXTRACT = "extract"
    GENERATE = "generate"

    @property
    def verb(self) -> Verb | None:
        """The verb of its jobs; None where it has none."""
        if self is StepName.CHUNK:
            return None
        return Verb.EXTRACT if self is StepName.PARSE else Verb(self.value)


class Format(StrEnum):
    """How the output is written."""

    JSONL = "jsonl"
    PARQUET = "parquet"


Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(plain)]
Label = Annotated[str, Field(min_length=1, max_length=512), AfterValidator(plain)]
Labels = Annotated[dict[str, str | int | float | bool | None], Field(max_length=32)]


class DocumentRef(Strict):
    """One document: where it is, what to call it, and what tells that it has not changed."""

    file: Annotated[str | None, Field(description="An uploaded file's id")] = None
    path: Annotated[str | None, Field(description="A path or URL of ROOST_BACKFILL_SOURCES")] = None
    url: Annotated[str | None, Field(description="From where it is fetched, as files of items are")] = None
    id: Annotated[Label | None, Field(description="What its rows call it; left out, its file or path")] = None
    fingerprint: Annotated[Label | None, Field(description="Changes when the content does, such as a hash")] = None
    metadata: Annotated[Labels | None, Field(description="Told in each of its rows")] = None

    @model_validator(mode="after")
    def _is_somewhere(self) -> DocumentRef:
        given = [name for name in ("file", "path", "url") if getattr(self, name) is not None]
        if len(given) != 1:
            raise fault("is one too many" if given else "is missing: name one of 'file', 'path' and 'url'", "path")
        if self.file is not None and parsed_id(SHOWN, self.file) is None:
            raise fault(f"must be the id of an uploaded file, which begins with {SHOWN!r}", "file")
        if self.url is not None and not self.url.startswith(("https://", "http://")):
            raise fault("must begin with https:// or http://", "url")
        return self


class SourceRequest(Strict):
    """Which documents: one of three."""

    files: Annotated[
        list[DocumentRef] | None, Field(min_length=1, max_length=MOST_LISTED, description="The documents themselves")
    ] = None
    manifest: Annotated[str | None, Field(description="An uploaded JSONL file with a document in each line")] = None
    path: Annotated[
        str | None, Field(max_length=2048, description="A folder, glob or prefix of ROOST_BACKFILL_SOURCES")
    ] = None

    @model_validator(mode="after")
    def _is_one(self) -> SourceRequest:
        given = [name for name in ("files", "manifest", "path") if getattr(self, name) is not None]
        if len(given) != 1:
            raise fault("must have one of 'files', 'manifest' and 'path'")
        return self


class StepRequest(Strict):
    """One step. All but `chunk` have a model; `score` has a query."""

    step: Annotated[StepName, Field(strict=False, description="What to do")]
    model: Annotated[str | None, Field(min_length=1, description="A model's id, or `id:profile`")] = None
    query: Annotated[str | None, Field(min_length=1, description="Of `score`: what texts are scored against")] = None
    prompt: Annotated[
        str | None, Field(max_length=10_000, description="Of `generate`: what to say, with `{text}` for the text")
    ] = None
    options: Annotated[
        dict[str, Any], Field(max_length=MAX_OPTIONS, description="Those of the verb; of `chunk` size, unit, overlap")
    ] = {}  # noqa: RUF012 - pydantic copies it

    @model_validator(mode="after")
    def _fits(self) -> StepRequest:
        if (self.model is None) != (self.step is StepName.CHUNK):
            raise fault("is missing" if self.model is None else "is not for 'chunk', which needs none", "model")
        if (self.query is None) == (self.step is StepName.SCORE):
            raise fault("is missing" if self.query is None else "is for 'score' alone", "query")
        if self.prompt is not None and (self.step is not StepName.GENERATE or "{text}" not in self.prompt):
            raise fault("is for 'generate' alone, and holds '{text}' where the text goes", "prompt")
        return self

    def said(self, text: str) -> str:
        """What its model reads of a text."""
        return text if self.prompt is None else self.prompt.replace("{text}", text)


class OutputRequest(Strict):
    """How the output is written."""

    format: Annotated[Format, Field(strict=False)] = Format.JSONL


class BackfillRequest(Strict):
    """Documents to work through."""

    name: Annotated[
        Name | None, Field(description="Run again under the same name, unchanged documents are skipped")
    ] = None
    source: SourceRequest
    steps: Annotated[list[StepRequest], Field(min_length=1, max_length=MOST_STEPS, description="In their order")]
    output: OutputRequest = OutputRequest()
    skip_unchanged: Annotated[bool, Field(description="false does all documents again")] = True


class ChunkRequest(Strict):
    """The options of `chunk`."""

    size: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    unit: Annotated[Unit | None, Field(strict=False)] = None
    overlap: Annotated[int | None, Field(ge=0)] = None


@dataclass(frozen=True, slots=True)
class Model:
    """The model of a step, and what it reads before each text."""

    choice: Choice
    prefix: str = ""


def parse_backfill(raw: object) -> BackfillRequest:
    """The request in a decoded body. Raises InvalidRequest or LimitExceeded that names the field."""
    if not isinstance(raw, Mapping):
        raise InvalidRequest("The body must be a JSON object.")
    try:
        return BackfillRequest.model_validate(raw)
    except ValidationError as error:
        raise explain(error.errors(include_url=False)) from None


def check_chain(steps: Sequence[StepRequest], models: Sequence[Model | None]) -> None:
    """Whether each step can read what comes before it. `models` has one for each step. Raises RoostError."""
    ends: str | None = None
    for place, (step, model) in enumerate(zip(steps, models, strict=True)):
        at = f"steps[{place}]"
        if ends is not None:
            raise InvalidRequest(f"'{at}' has no text to read: {ends}.", param=at)
        verb = step.step.verb
        if model is None or verb is None:
            if any(one.step is StepName.CHUNK for one in steps[:place]):
                raise InvalidRequest(f"'{at}' is a second 'chunk'; a chain has one.", param=at)
            cut_of(steps, models, place)
            continue
        spec = model.choice.spec
        if not spec.does(verb):
            said = f"Model {spec.id!r} does not {verb.value}; it does: {', '.join(spec.verbs)}."
            raise UnsupportedVerb(said, param=f"{at}.step")
        if place and step.step is StepName.PARSE:
            raise InvalidRequest(f"'{at}' must come first: 'parse' reads the document itself.", param=at)
        if place and "text" not in spec.inputs:
            said = f"Model {spec.id!r} reads no texts, and what comes before gives texts."
            raise InvalidRequest(said, param=f"{at}.model")
        if step.step is StepName.PARSE and not gives_text(step, model):
            said = f"Model {spec.id!r} makes no text of a document; 'extract' is what it does."
            raise InvalidRequest(said, param=f"{at}.model")
        if not gives_text(step, model):
            ends = f"'steps[{place}]' ({step.step.value}) gives none"


def gives_text(step: StepRequest, model: Model | None) -> bool:
    """Whether later steps can read what this one gives."""
    if step.step in (StepName.CHUNK, StepName.GENERATE) or model is None:
        return True
    facts = model.choice.spec.tasks.extract
    return step.step.verb is Verb.EXTRACT and facts is not None and bool(TEXTUAL.intersection(facts.kinds))


def cut_of(steps: Sequence[StepRequest], models: Sequence[Model | None], place: int) -> Cut:
    """How the step `chunk` at this place cuts: what it asks for, or what fits the model that reads the chunks.

    Raises InvalidRequest.
    """
    at = f"steps[{place}].options"
    try:
        asked = ChunkRequest.model_validate(steps[place].options)
    except ValidationError as error:
        found = [{**one, "loc": ("steps", place, "options", *one["loc"])} for one in error.errors(include_url=False)]
        wrong = explain(found, ChunkRequest)
        raise InvalidOption(wrong.message, param=wrong.param) from None
    reader = next((model for model in models[place + 1 :] if model is not None), None)
    spec = None if reader is None else reader.choice.spec
    counted = spec is not None and spec.unit == "tokens"
    if asked.unit is Unit.TOKENS and not counted:
        raise InvalidOption(f"'{at}.unit' cannot be 'tokens': no model comes after it.", param=f"{at}.unit")
    unit = asked.unit or (Unit.TOKENS if counted else Unit.CHARS)
    size = asked.size or (DEFAULT_TOKENS if unit is Unit.TOKENS else DEFAULT_CHARS)
    if unit is Unit.TOKENS and reader is not None and spec is not None:
        # The model's own marks around a text, and a token for each two characters of what it reads before it.
        most = max(1, spec.max_length - 4 - (len(reader.prefix) + 1) // 2)
        if asked.size is not None and asked.size > most:
            said = f"'{at}.size' must be at most {most}: {spec.id!r} reads {spec.max_length} tokens."
            raise InvalidOption(said, param=f"{at}.size")
        size = min(size, most)
    overlap = size // 8 if asked.overlap is None else asked.overlap
    if overlap >= size:
        raise InvalidOption(f"'{at}.overlap' must be less than the size, {size}.", param=f"{at}.overlap")
    return Cut(size, overlap, unit)


def recipe_of(steps: Sequence[StepRequest], models: Sequence[Model | None]) -> bytes:
    """What makes two backfills give the same of the same document."""
    named = [None if model is None else (model.choice.key, model.choice.spec.source.revision) for model in models]
    asked = [step.model_dump(mode="json") for step in steps]
    return blake2b(orjson.dumps([asked, named], option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
