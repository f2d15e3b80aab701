"""Every setting of every process, read once at the entry point from `ROOST_…` variables and passed down.

docs/operations.md holds the same table; a test compares them.
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tasks.service_settings import Auth, ServiceSettings, lowered

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:[kmgt](?:i?b)?|b|(%))?", re.IGNORECASE)
_DEVICE = re.compile(r"auto|cpu|cuda(?::\d{1,3})?")
_REDIS = ("roost", "roosts", "redis", "rediss", "unix")
_BROKERS = (*_REDIS, "amqp", "amqps", "pyamqp", "memory")
_SECRET = frozenset({"database_url", "broker_url", "notify_url", "flower_auth"})


class EventsMode(StrEnum):
    """Whether workers send task events, which Flower needs."""

    ON = "on"
    OFF = "off"


class Eviction(StrEnum):
    """What makes a model worth keeping."""

    VALUE = "value"
    LRU = "lru"


class HubModels(StrEnum):
    """Whether a caller may name any repository of the hub."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class LogLevel(StrEnum):
    """How much a process logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _a_budget(value: str) -> str:
    """The form alone: whether the device has as much is for the engine to say."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("is no size: give bytes, 8GiB, or a share such as 60%")
    amount = float(match[1])
    if not amount or (match[2] and amount > 100):
        raise ValueError("must be more than nothing, and a share at most 100%")
    return value


def _a_reserve(value: str) -> str:
    return value if value.strip() in {"0", "0%"} else _a_budget(value)


def _a_host_budget(value: str) -> str:
    return value if value in {"auto", "0"} else _a_budget(value)


def _a_worker_name(value: str) -> str:
    if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", value):
        raise ValueError("must be up to 41 letters, digits, dots, dashes or underscores")
    return value


def _a_device(value: str) -> str:
    if not _DEVICE.fullmatch(value):
        raise ValueError("is no device: use auto, cpu, cuda or cuda:N")
    return value


def _a_database(value: str) -> str:
    scheme, there, _ = value.partition("://")
    if value and not (there and scheme.partition("+")[0] in {"postgresql", "postgres"}):
        raise ValueError("must be a PostgreSQL address: postgresql://user:password@host:5432/database")
    return value


def _a_broker(value: str) -> str:
    # Stock transports take several addresses, one after the other when a broker is away.
    if value and not all(_scheme(part) in _BROKERS for part in value.split(";")):
        raise ValueError("must start with roost://, roosts://, redis://, rediss://, amqp:// or amqps://")
    return value


def _a_notifier(value: str) -> str:
    if value and _scheme(value) not in _REDIS:
        raise ValueError("must be a Redis or Valkey, and start with redis:// or rediss://")
    return value


def _scheme(url: str) -> str:
    return url.partition("://")[0] if "://" in url else ""


class Settings(ServiceSettings, BaseSettings):
    """One flat table. Sizes take suffixes in bytes where noted; times are seconds."""

    model_config = SettingsConfigDict(env_prefix="ROOST_", extra="ignore", frozen=True)

    # Where things are
    data_dir: Annotated[Path, Field(description="Folder of everything the embedded stack keeps")] = Path(".roost")
    database_url: Annotated[
        str, Field(description="postgresql+psycopg://… ; empty starts the embedded server"), AfterValidator(_a_database)
    ] = ""
    broker_url: Annotated[
        str,
        Field(description="roost://, roosts:// (doorbell transport), redis://, amqp:// ; empty starts Valkey"),
        AfterValidator(_a_broker),
    ] = ""
    notify_url: Annotated[
        str,
        Field(description="redis:// for wakes and heartbeats; empty takes the broker's"),
        AfterValidator(_a_notifier),
    ] = ""
    blobs: Annotated[
        str,
        Field(description="Where files are kept: a folder, or a URL of fsspec such as s3://…; empty: in the data dir"),
    ] = ""
    catalog: Annotated[str, Field(description="Folders of model YAMLs besides the built-in ones, separated by ':'")] = (
        ""
    )

    catalog_poll_s: Annotated[
        float, Field(ge=0, description="Seconds between two looks at the YAMLs for changes; 0 reads them once")
    ] = 2.0
    hub_models: Annotated[
        HubModels,
        Field(
            description="Models by any name of the hub, without a YAML: on, off, or auto (on if ROOST_HOST is local)"
        ),
        BeforeValidator(lowered),
    ] = HubModels.AUTO
    model_folders: Annotated[
        str, Field(description="Folders with models as org/name, found by name without a YAML, separated by ':'")
    ] = ""
    trust: Annotated[
        str,
        Field(description="Ids of models that may run code of their own and load pickles, separated by commas"),
    ] = ""

    tei_models: Annotated[
        str,
        Field(
            description="Models of TEI's routes at the root (/embed, /rerank …), separated by commas: each takes the "
            "first that can do it; below /tei/{model} any is served"
        ),
    ] = ""

    # Where the embedded stack listens
    host: Annotated[str, Field(description="Address the API listens on")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port of the API")] = 8080
    postgres_port: Annotated[
        int, Field(ge=0, le=65535, description="Port of the embedded PostgreSQL; 0 picks a free one")
    ] = 0
    valkey_port: Annotated[
        int, Field(ge=0, le=65535, description="Port of the embedded Valkey; 0 picks a free one")
    ] = 0
    api_processes: Annotated[int, Field(ge=1, le=64, description="API processes behind the one port")] = 1

    # The device
    device: Annotated[
        str,
        Field(description="auto, cpu, cuda or cuda:N: the device of this worker"),
        BeforeValidator(lowered),
        AfterValidator(_a_device),
    ] = "auto"
    worker_name: Annotated[
        str,
        Field(description="Name of a worker, before @host: needed for a second one on a device; empty: the device's"),
        AfterValidator(_a_worker_name),
    ] = ""
    budget: Annotated[
        str, Field(description="Memory for models: bytes, 8GiB, or a share such as 60%"), AfterValidator(_a_budget)
    ] = "60%"
    preload: Annotated[str, Field(description="Models to load at start, separated by commas")] = ""
    pinned: Annotated[str, Field(description="Models to load at start that never leave, separated by commas")] = ""
    keep_alive_s: Annotated[
        float,
        Field(
            ge=0, description="A model that nobody used for so long leaves the device; 0 keeps it until room is needed"
        ),
    ] = 0.0
    host_budget: Annotated[
        str,
        Field(description="Host memory for evicted models: bytes, 8GiB, 25%, 0, or auto (25% beside a card)"),
        BeforeValidator(lowered),
        AfterValidator(_a_host_budget),
    ] = "auto"
    min_stay_s: Annotated[
        float,
        Field(
            ge=0, description="A model stays so long or, if nobody waits for it, for its load's time if that is less"
        ),
    ] = 2.0
    pace_s: Annotated[
        float,
        Field(
            ge=0,
            le=120,
            description="While others wait, a model that was sent away comes back no sooner than this after it last "
            "came; loads under a second pause less; 0 never pauses",
        ),
    ] = 60.0
    eviction: Annotated[
        Eviction,
        Field(description="Who leaves first: value (least worth for its bytes) or lru"),
        BeforeValidator(lowered),
    ] = Eviction.VALUE
    loaders: Annotated[int, Field(ge=1, le=16, description="Models loaded at once")] = 1
    reserve: Annotated[
        str,
        Field(description="Memory of the device that no worker may take, whatever its budget: bytes, a share or 0"),
        AfterValidator(_a_reserve),
    ] = "5%"
    ledger_dir: Annotated[
        str,
        Field(description="Folder of the account that the workers on a device share; empty picks one in memory"),
    ] = ""
    host_lanes: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            description="Batches of host-bound models (parsing, OCR) run beside the device's; texts that are generated "
            "there have a lane of their own",
        ),
    ] = 1
    step_ms: Annotated[
        float, Field(gt=0, description="The most that one step of a generating model should take, in ms")
    ] = 50.0
    lanes: Annotated[int, Field(ge=0, le=64, description="Batches computed at once on a CPU; 0 takes one per core")] = 0
    batch_tokens: Annotated[
        int, Field(ge=0, description="Padded tokens a batch may hold; 0 lets the device decide")
    ] = 0
    batch_items: Annotated[int, Field(ge=1, le=4096, description="Items a batch may hold")] = 256
    batch_limit_s: Annotated[float, Field(gt=0, description="A batch running longer kills the engine child")] = 120.0
    load_limit_s: Annotated[float, Field(gt=0, description="A load running longer kills the engine child")] = 600.0

    # The queue
    pull_ms: Annotated[float, Field(gt=0, description="Predicted work a worker holds beyond what runs, in ms")] = 2000.0
    pull_jobs: Annotated[int, Field(ge=1, le=8192, description="Jobs a worker holds at most")] = 1024
    held_lease_s: Annotated[float, Field(ge=2, description="A silent worker's messages go back after this")] = 20.0
    job_lease_s: Annotated[float, Field(ge=2, description="A silent worker's running jobs go back after this")] = 20.0
    max_attempts: Annotated[int, Field(ge=1, le=100, description="Tries of a job that kills its worker")] = 3
    max_deliveries: Annotated[int, Field(ge=1, le=1000, description="Deliveries of a job, whatever the cause")] = 20
    sweep_s: Annotated[float, Field(gt=0, description="Time between two sweeps")] = 5.0
    lost_after_s: Annotated[
        float, Field(gt=0, description="Age at which a job absent from the broker is sent again")
    ] = 5.0
    events: Annotated[EventsMode, Field(description="Task events for Flower: on or off")] = EventsMode.ON
    shutdown_s: Annotated[float, Field(gt=0, description="Grace for a batch in flight at shutdown")] = 30.0

    # Limits at the door
    max_body_bytes: Annotated[int, Field(ge=1024, description="Largest request body")] = 34 * 2**20
    max_items: Annotated[int, Field(ge=1, description="Most items in one job")] = 2048
    max_text_chars: Annotated[int, Field(ge=1, description="Longest text of one item, in characters")] = 1_000_000
    max_wait_s: Annotated[float, Field(gt=0, description="Longest wait that a caller may ask for")] = 120.0
    max_queued: Annotated[
        int, Field(ge=1, description="Submissions waiting to commit in one API process; more get 429")
    ] = 4096
    max_file_bytes: Annotated[int, Field(ge=1024, description="Largest file")] = 2 * 2**30
    max_batch_lines: Annotated[int, Field(ge=1, description="Most lines in the input file of a batch")] = 1_000_000
    batch_in_flight: Annotated[
        int, Field(ge=1, description="Lines of batches that a feeder has queued or running at once")
    ] = 1024
    default_retention_s: Annotated[int, Field(ge=60, description="How long a finished job is kept")] = 7 * 86_400
    max_retention_s: Annotated[int, Field(ge=60, description="Longest retention a caller may ask for")] = 30 * 86_400
    pool_size: Annotated[int, Field(ge=1, le=200, description="Database connections of one process")] = 5

    log_level: Annotated[LogLevel, Field(description="debug, info, warning or error"), BeforeValidator(lowered)] = (
        LogLevel.INFO
    )

    @classmethod
    def from_environment(cls) -> Self:
        """The settings of a process, for its entry point. A wrong one ends it, with a line that says what is valid."""
        try:
            return cls()
        except ValidationError as error:
            raise SystemExit(complaint(error)) from None

    @property
    def redis_url(self) -> str:
        """The plain redis:// form for wakes, heartbeats and the publisher."""
        return plain_redis(self.notify_url or self.broker_url)

    @property
    def blobs_url(self) -> str:
        """Where files are kept, as fsspec takes it."""
        return self.blobs or str(self.data_dir.absolute() / "blobs")

    @property
    def catalog_folders(self) -> list[Path]:
        """The operator's own folders of model YAMLs, in the order in which they override the built-in ones."""
        return [Path(folder) for folder in self.catalog.split(":") if folder]

    @property
    def model_folder_paths(self) -> list[Path]:
        """The folders in which models are found by their name."""
        return [Path(folder) for folder in self.model_folders.split(":") if folder]

    @property
    def trusted(self) -> tuple[str, ...]:
        """The models that may have what they need."""
        return _names(self.trust)

    @model_validator(mode="after")
    def _closed_to_others(self) -> Self:
        if self.auth is Auth.OFF and not self.is_local:
            raise PydanticCustomError(
                "open_to_all",
                "ROOST_AUTH=off is for ROOST_HOST=127.0.0.1 alone: whoever reaches {host} could do all. Leave it out, "
                "and make keys with `roost keys create`",
                {"host": self.host},
            )
        return self

    @property
    def is_local(self) -> bool:
        """Whether the API listens to its own machine alone."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def finds_hub_models(self) -> bool:
        """Whether models of the hub are found by name. Left to itself, only where no other machine can ask."""
        return self.hub_models is HubModels.ON or (self.hub_models is HubModels.AUTO and self.is_local)

    @property
    def preload_names(self) -> tuple[str, ...]:
        """The models to load at start."""
        return _names(self.preload)

    @property
    def tei_model_names(self) -> tuple[str, ...]:
        """The models of TEI's routes that name none."""
        return _names(self.tei_models)

    @property
    def pinned_names(self) -> tuple[str, ...]:
        """The models that never leave."""
        return _names(self.pinned)

    @property
    def doorbell(self) -> bool:
        """Whether the broker is reached through our own transport."""
        return self.broker_url.startswith(("roost://", "roosts://"))


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def complaint(error: ValidationError) -> str:
    """What is wrong with the settings, a line for each: the variable, its value unless secret, and what is valid."""
    return "\n".join(
        _line("_".join(map(str, one["loc"])), one["input"], one["msg"].removeprefix("Value error, "))
        for one in error.errors(include_url=False)
    )


def _line(name: str, value: object, what: str) -> str:
    shown = "" if name in _SECRET else f"={str(value)[:50]!r}"
    return f"ROOST_{name.upper()}{shown}{' ' if what[:1].islower() else ': '}{what}"


def plain_redis(url: str) -> str:
    """`roost://…` as the `redis://…` that a Redis client understands."""
    for ours, plain in (("roosts://", "rediss://"), ("roost://", "redis://")):
        if url.startswith(ours):
            return plain + url.removeprefix(ours)
    return url
