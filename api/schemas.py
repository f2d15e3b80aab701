"""The shapes of requests and replies, as OpenAPI shows them. A test holds real replies against them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from catalog.terms import Lane, Verb
from tasks.jobs import State


class Reply(BaseModel):
    """A reply, or a part of one: it has these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class ErrorBody(Reply):
    """Why something failed. `code` never changes its meaning; `message` says what to do."""

    code: str
    message: str
    param: Annotated[str | None, Field(description="The field at fault")] = None
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later")] = False
    job_id: str | None = None


class ErrorReply(Reply):
    """The body of every reply with an error status."""

    error: ErrorBody


class StoredError(Reply):
    """The error of a job or of one item."""

    code: str
    message: str
    retryable: bool = False
    param: str | None = None


class Cost(Reply):
    """Milliseconds on the device: as predicted at submission, and as they were."""

    predicted_ms: float
    device_ms: float | None


class Timings(Reply):
    """Where the milliseconds of a job went. The parts add up to the total."""

    admit_ms: float
    queue_ms: float
    load_ms: float
    batch_wait_ms: float
    device_ms: float
    commit_ms: float
    total_ms: float


class Usage(Reply):
    """What was read and made. What a model does not count is not there."""

    tokens: Annotated[int, Field(description="All that were read and made")]
    items: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    pages: int | None = None
    images: int | None = None
    audio_ms: int | None = None


class Urls(Reply):
    """Paths of this job's other routes."""

    self: str
    result: str
    events: str
    cancel: str
    retry: str


class JobObject(Reply):
    """A job. Times are UTC."""

    id: str
    object: Literal["job"]
    status: State
    verb: Verb
    model: str
    revision: str | None
    lane: Lane
    priority: int
    items: int
    items_failed: int
    cost: Cost
    attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    expires_at: Annotated[datetime | None, Field(description="When an ended job and its result are deleted")]
    tags: list[str]
    options: Annotated[dict[str, Any], Field(description="Empty once the result went, of a job with `store` false")]
    store: Annotated[bool, Field(description="False: inputs went when it ended, the result goes once it was answered")]
    error: StoredError | None
    timings: Timings | None
    usage: Usage | None
    worker: str | None
    urls: Urls


class DeletedJob(Reply):
    """A job that is gone, with inputs and result."""

    id: str
    object: Literal["job"]
    deleted: Literal[True]


class Vector(Reply):
    """A dense vector. `values` are numbers, or with `encoding=base64` the little-endian bytes of them.

    `dims` counts dimensions even where `binary` and `ubinary` pack eight into one value. `scale` comes with `int8`
    and `uint8`.
    """

    dims: int
    dtype: Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]
    values: list[float] | list[int] | str
    scale: float | None = None


class Sparse(Reply):
    """A sparse vector: the `values` at the rising `indices`, and zero at all others of `dims`."""

    dims: int
    dtype: Literal["float32", "float16"]
    indices: Annotated[list[int] | str, Field(description="With base64 little-endian int32")]
    values: list[float] | str


class Multivector(Reply):
    """One vector for each token or patch, row by row."""

    token_dims: int
    num_tokens: int
    dtype: Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"]
    values: list[list[float]] | list[list[int]] | str
    scale: float | None = None


class Entity(Reply):
    """A piece of the item's text: `text[start:end]` in Unicode code points."""

    text: str
    label: str
    score: float
    start: int
    end: int


class Relation(Reply):
    """Two entities and what is between them."""

    head: Entity
    tail: Entity
    relation: str
    score: float


class Classification(Reply):
    """A label of the whole item."""

    label: str
    score: float


class Detected(Reply):
    """Something in an image."""

    label: str
    score: float
    bbox: Annotated[
        list[int],
        Field(
            min_length=4,
            max_length=4,
            description="left, top, width, height in pixels of the image as displayed (EXIF orientation applied)",
        ),
    ]


class ResultItem(Reply):
    """The outcome of one item, in the order of the request: the fields of its verb, or its error."""

    id: str | None = None
    dense: Vector | None = None
    sparse: Sparse | None = None
    multivector: Multivector | None = None
    score: float | None = None
    raw_score: Annotated[float | None, Field(description="Before the activation, where there is one")] = None
    rank: Annotated[int | None, Field(description="Among the items of a score; 0 is the best")] = None
    entities: list[Entity] | None = None
    relations: list[Relation] | None = None
    classifications: list[Classification] | None = None
    objects: list[Detected] | None = None
    data: Annotated[
        dict[str, Any] | None, Field(description="A structure, a document, a page's text or a transcript")
    ] = None
    text: Annotated[str | None, Field(description="What was generated")] = None
    finish_reason: Annotated[
        str | None, Field(description="`stop`, or `length` where max_tokens or the context ended it")
    ] = None
    logprobs: list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tokens: int | None = None
    truncated: bool | None = None
    error: StoredError | None = None


class Score(Reply):
    """One place of a ranking."""

    index: Annotated[int, Field(description="The item's place in the request, from 0")]
    item_id: str | None = None
    score: float
    rank: Annotated[int, Field(description="0 is the best")]


class ResultObject(Reply):
    """A job's result."""

    id: str
    object: Literal["result"]
    status: State
    model: str
    items: list[ResultItem]
    scores: Annotated[
        list[Score] | None, Field(description="Of a score: its items, best first, at most `top_n` of them")
    ] = None
    usage: Usage | None


class JobWithResult(JobObject):
    """A job that ended while its caller waited. `result` is null when it ended without any."""

    result: ResultObject | None


class FailedResult(Reply):
    """The result of a job that did not succeed: its error, and the outcomes of its items if it got that far."""

    error: ErrorBody
    id: str
    status: State
    items: list[ResultItem] | None


class JobList(Reply):
    """A page of jobs, newest first."""

    object: Literal["list"]
    data: list[JobObject]
    has_more: bool
    next_cursor: str | None


class NotReady(Reply):
    """Why the service cannot run jobs just now."""

    error: ErrorBody
    reasons: dict[str, str]
