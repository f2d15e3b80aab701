"""The peer's shapes of models, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas import Reply

SieState = Literal["available", "loading", "loaded", "unloading", "failed"]


class SieLoadError(Reply):
    """Why a model could not be loaded. `permanent`: no worker tries it again by itself."""

    code: str
    message: str
    attempts: Annotated[int, Field(description="Workers that tried and failed")]
    permanent: bool


class SieDims(Reply):
    """How long the vectors of each output are; what a model does not give is not there."""

    dense: int | None = None
    sparse: int | None = None
    multivector: int | None = None


class SieProfile(Reply):
    """One profile. No digest is made of profiles, and none calls another service."""

    is_default: bool
    identity: None
    remote_contract_sha256: None
    remote_execution_sha256: None
    runtime_instance_id: None


class SieCapabilities(Reply):
    """What a model that generates can do."""

    streaming: bool
    grammar: list[str]
    tools: bool
    lora_adapters: list[str]


class SieRouting(Reply):
    """Whether another service is called for it: none ever is."""

    policy: None
    upstream_kind: None


class SieModelInfo(Reply):
    """A model, as the peer's client reads it."""

    name: str
    inputs: list[str]
    outputs: Annotated[
        list[str], Field(description="What `encode` gives; `score` of a reranker, `json` and `text` of the others")
    ]
    dims: SieDims
    loaded: bool
    state: SieState
    last_error: SieLoadError | None
    max_sequence_length: Annotated[int | None, Field(description="In tokens; null for what counts something else")]
    profiles: dict[str, SieProfile]
    revision: str | None
    capabilities: SieCapabilities | None
    routing: SieRouting
    aliases: list[str]
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class SieModelList(Reply):
    """All models of the catalog."""

    models: list[SieModelInfo]
