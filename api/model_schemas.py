"""The shapes of replies about models and devices, as OpenAPI shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from api.schemas import ErrorBody, Reply, StoredError
from catalog.schema import Tasks
from catalog.terms import Verb

_STATES = "resident, loading, leaving (no new batches), parked (in host memory), failed or absent"


class ModelWorker(Reply):
    """A worker that was ever asked for the model, and how the model stands there, as of its last heartbeat."""

    name: str
    device: str
    profile: str
    state: Annotated[str, Field(description=_STATES)]
    bytes: int | None
    leases: Annotated[int | None, Field(description="Batches that run on it now")]
    pinned: bool
    loads: Annotated[int, Field(description="How often it was loaded since the worker started")]
    evictions: int
    load_s: Annotated[float, Field(description="Seconds that the last load took")]
    waiting: Annotated[int, Field(description="Items that wait for it on this worker")]
    last_used: datetime | None
    last_error: Annotated[ErrorBody | None, Field(description="Why it could not be loaded last time")]


class CostPrice(Reply):
    """Milliseconds of a batch of n items padded to length L: `base + per_token·n·L + per_square·n·L²`.

    A length is in the model's `unit`. `per_new` is what each new token of a sequence adds where a model generates.
    """

    base: float
    per_token: float
    per_square: float
    per_new: float


class ModelBytes(Reply):
    """What a model takes: its weights on devices, what its running batches have been lent, and in host memory."""

    weights: int
    activations: int
    host: int


class TooLarge(Reply):
    """A worker that the model can never run on, and why."""

    worker: str
    reason: str


class ModelObject(Reply):
    """A model of the catalog, and where it is loaded just now."""

    id: str
    object: Literal["model"]
    created: Annotated[int, Field(description="For OpenAI's clients. Always 0: the catalog knows it of no model")]
    owned_by: Annotated[str, Field(description="For OpenAI's clients: what the id has before its slash")]
    family: str
    description: str
    licence: str
    verbs: list[Verb]
    tasks: Annotated[Tasks, Field(description="What is known of each verb that it does; null for the others")]
    options: Annotated[dict[Verb, list[str]], Field(description="The options that a job of each verb may send")]
    inputs: Annotated[list[str], Field(description="What an item may hold")]
    image_length: Annotated[int, Field(description="What an image counts, in the model's `unit`")]
    loras: Annotated[list[str], Field(description="The LoRA adapters that a job of `generate` may name")]
    profiles: list[str]
    dims: int | None
    matryoshka: list[int]
    prompts: list[str]
    outputs: list[str]
    max_length: int
    unit: Annotated[str, Field(description="What lengths count: tokens, pages, tiles or seconds")]
    parameters: int
    verified: bool
    needs: Annotated[list[str], Field(description="What it cannot be loaded without: code of its own, pickled weights")]
    allowed: Annotated[bool, Field(description="Whether the operator lets it have what it needs")]
    cost: Annotated[CostPrice, Field(description="What jobs of this model are priced by now")]
    loaded: bool
    state: Annotated[str, Field(description=f"Over all workers, the one nearest to serving: {_STATES}")]
    bytes: Annotated[ModelBytes, Field(description="Summed over all workers")]
    waiting: Annotated[int, Field(description="Items that wait for it on all workers")]
    queued: Annotated[int, Field(description="Its jobs in the queues that no worker has taken")]
    workers: list[ModelWorker]
    too_large: Annotated[
        list[TooLarge],
        Field(description="Workers that it can never run on. Where that is all of them, jobs are refused"),
    ]


class ModelList(Reply):
    """All models of the catalog."""

    object: Literal["list"]
    data: list[ModelObject]
    problems: Annotated[
        list[str],
        Field(description="Files of the catalog that are no good as they are now; what they said before holds"),
    ]


class DeviceMemory(Reply):
    """A device's account, in bytes. What a worker does not tell is null."""

    budget: Annotated[int | None, Field(description="What this worker's models may take")]
    weights: Annotated[int | None, Field(description="What their weights take")]
    lent: Annotated[int | None, Field(description="What running batches have been lent for activations")]
    total: Annotated[int | None, Field(description="All of the device's memory")]
    free: Annotated[int | None, Field(description="What of it is free for anybody")]
    others: Annotated[int | None, Field(description="What other workers of ours hold on the device")]
    foreign: Annotated[int | None, Field(description="What is used on the device by no worker of ours")]
    host: Annotated[int | None, Field(description="What models take in host memory")]
    host_budget: Annotated[int | None, Field(description="What they may take there")]


class ResidentBytes(ModelBytes):
    """What a model takes on one worker, and what its weights were expected to take before they were loaded."""

    estimate: int


class Loads(Reply):
    """Loads from files since the worker started."""

    count: int
    last_s: Annotated[float | None, Field(description="Seconds that the last one took; null if there was none")]
    running_s: Annotated[float | None, Field(description="For how long one has been under way")]


class Restores(Reply):
    """Returns from host memory since the worker started."""

    count: int
    last_s: Annotated[float | None, Field(description="Seconds that the last one took; null if there was none")]


class Drops(Reply):
    """How often a model's copy in host memory was given up since the worker started, and why."""

    count: int
    by_reason: Annotated[
        dict[str, int],
        Field(description="room (another model's copy needed it), memory (a batch) or over (the machine ran short)"),
    ]


class Eviction(Reply):
    """The last time that a model left the device."""

    at: datetime
    reason: Annotated[
        str,
        Field(
            description="room (another model needed it), idle (its keep-alive ended), memory (a batch ran out of it) "
            "or over (the budget was passed)"
        ),
    ]
    for_model: Annotated[str | None, Field(description="The model that it made room for")]


class Evictions(Reply):
    """How often a model left the device since the worker started, and why."""

    count: int
    by_reason: dict[str, int]
    last: Eviction | None


class ModelWork(Reply):
    """What a model's batches came to since the worker started."""

    batches: int
    items: int
    real_tokens: int
    padded_tokens: int
    seconds: Annotated[float, Field(description="On the device")]
    predicted_seconds: float


class ResidentModel(Reply):
    """A model on one worker."""

    model: Annotated[str, Field(description="id, or id:profile")]
    state: Annotated[str, Field(description=_STATES)]
    bytes: ResidentBytes
    leases: Annotated[int, Field(description="Batches that run on it now; while there are any it stays")]
    pinned: bool
    waiting: Annotated[int, Field(description="Items that wait for it here")]
    last_used: datetime | None
    loads: Loads
    restores: Restores
    drops: Drops
    evictions: Evictions
    retry_at: Annotated[datetime | None, Field(description="After a failed load, when it may be tried again")]
    comes_at: Annotated[
        datetime | None,
        Field(description="Of one that is waited for and held back or paused, when its load may begin at the latest"),
    ]
    last_error: Annotated[StoredError | None, Field(description="Why it could not be loaded last time")]
    work: ModelWork | None


class WorkerObject(Reply):
    """A live worker as of its last heartbeat: its device, and each model that it was ever asked for."""

    name: str
    object: Literal["worker"]
    device: str
    hardware: Annotated[str, Field(description="What the device is, as costs are kept by")]
    beat_age_s: Annotated[float, Field(description="How old all of this is, in seconds")]
    started_at: datetime | None
    lost: Annotated[bool, Field(description="Whether the device cannot compute any more; the worker then restarts")]
    held: Annotated[int, Field(description="Jobs that it holds")]
    waiting: Annotated[int, Field(description="Items that wait for the device")]
    running: Annotated[int, Field(description="Batches on the device")]
    sequences: Annotated[int, Field(description="Sequences that are being generated")]
    memory: DeviceMemory
    models: list[ResidentModel]
    too_large: Annotated[
        dict[str, str], Field(description="Models that can never fit the budget, each with the reason")
    ]


class Residency(Reply):
    """All live workers."""

    object: Literal["list"]
    data: list[WorkerObject]
