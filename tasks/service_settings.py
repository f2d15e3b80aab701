"""The settings of what makes it a service: keys, limits, webhooks, backfills. Part of `tasks.settings`."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from tasks.webhooks.addresses import parse_allowed


class Auth(StrEnum):
    """Whether callers need a key."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


def lowered(value: object) -> object:
    """A word as it is compared: without case and space around it."""
    return value.strip().lower() if isinstance(value, str) else value


FLOWER_PREFIX = "/flower"
"""Where Flower is, by the API and on its own port: its pages link to themselves by it."""


def _a_server(value: str) -> str:
    if value and not re.fullmatch(r"https?://[^/@?#\s]+/?", value):
        raise ValueError("must be http://host:port, without a path or a password")
    return value


def _an_allow_list(value: str) -> str:
    parse_allowed(value)
    return value


class ServiceSettings(BaseModel):
    """Sizes are bytes, times seconds, and 0 is no limit where a limit may be 0."""

    # Who may ask
    auth: Annotated[
        Auth,
        Field(description="Callers need a key: on, off, or auto (on unless ROOST_HOST is local)"),
        BeforeValidator(lowered),
    ] = Auth.AUTO
    public_url: Annotated[
        str, Field(description="How callers reach the API, such as https://roost.example.org; empty: as they did")
    ] = ""

    # Flower, which callers reach by the API at /flower/
    flower_host: Annotated[str, Field(description="Address Flower itself listens on")] = "127.0.0.1"
    flower_port: Annotated[int, Field(ge=0, le=65535, description="Port of Flower; 0 starts none")] = 5555
    flower_url: Annotated[
        str,
        Field(description="Where the API finds Flower, as http://flower:5555; empty: on this machine"),
        AfterValidator(_a_server),
    ] = ""
    flower_auth: Annotated[
        str,
        Field(
            description="user:password between the API and Flower; needed if Flower listens beyond loopback; empty: "
            "`roost up` makes one"
        ),
    ] = ""

    # What one tenant may, unless `roost keys limit` says otherwise for it
    tenant_requests_per_s: Annotated[float, Field(ge=0, description="Jobs a second of one tenant; 0: no limit")] = 0.0
    tenant_burst: Annotated[int, Field(ge=1, description="Jobs that a tenant may submit at once beyond its rate")] = 50
    tenant_open_jobs: Annotated[
        int, Field(ge=0, description="Jobs of one tenant that are queued or running at once; 0: no limit")
    ] = 0
    tenant_items_per_day: Annotated[int, Field(ge=0, description="Items of one tenant in a UTC day; 0: no limit")] = 0
    tenant_tokens_per_day: Annotated[
        int, Field(ge=0, description="Tokens of one tenant in a UTC day, counted when jobs end; 0: no limit")
    ] = 0

    # What does not go into rows
    blob_bytes: Annotated[
        int, Field(ge=16 * 1024, description="Inputs and results above this size are kept in the blob store")
    ] = 256 * 1024
    unstored_s: Annotated[
        int, Field(ge=10, description="How long the result of a job with store=false waits to be fetched")
    ] = 600

    # Webhooks
    webhook_allow: Annotated[
        str,
        Field(
            description="Hosts and networks inside that webhooks may reach all the same, by http too, as "
            "10.1.0.0/16,hooks.lan,*.svc.lan"
        ),
        AfterValidator(_an_allow_list),
    ] = ""
    webhook_http: Annotated[
        bool, Field(description="Whether webhooks may go to http:// beyond what ROOST_WEBHOOK_ALLOW names")
    ] = False
    webhook_timeout_s: Annotated[float, Field(gt=0, le=60, description="Longest that one attempt may take")] = 15.0
    webhook_in_flight: Annotated[int, Field(ge=1, description="Attempts that one sender makes at once")] = 512
    webhook_retention_s: Annotated[
        int, Field(ge=3600, description="How long deliveries that have ended stay listed")
    ] = 30 * 86_400

    # Files that callers give by URL
    fetch: Annotated[bool, Field(description="Whether documents, images and sound are fetched by URL: on or off")] = (
        True
    )
    fetch_allow: Annotated[
        str,
        Field(description="Hosts and networks inside that files may be fetched from; as ROOST_WEBHOOK_ALLOW"),
        AfterValidator(_an_allow_list),
    ] = ""
    fetch_http: Annotated[
        bool, Field(description="Whether files may come by http:// from beyond what ROOST_FETCH_ALLOW names")
    ] = False
    fetch_bytes: Annotated[
        int, Field(ge=1024, description="Largest file that is fetched; those of a job have ROOST_MAX_BODY_BYTES")
    ] = 32 * 2**20
    fetch_files: Annotated[int, Field(ge=1, description="Most files by URL in one job")] = 64
    fetch_timeout_s: Annotated[
        float, Field(gt=0, le=600, description="Seconds that the files of one job may take together")
    ] = 30.0
    fetch_in_flight: Annotated[
        int, Field(ge=1, description="Files that one process fetches at once; at most a quarter are one tenant's")
    ] = 16

    # Backfills
    backfill_sources: Annotated[
        str,
        Field(description="Folders and URLs of fsspec that backfills may read on the server, separated by ','"),
    ] = ""
    backfill_in_flight: Annotated[
        int, Field(ge=1, description="Documents of one backfill that a feeder has under way at once")
    ] = 64

    @property
    def flower_base(self) -> str:
        """Where the API finds Flower; empty where there is none."""
        if self.flower_url or not self.flower_port:
            return self.flower_url
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.flower_host, self.flower_host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.flower_port}"
