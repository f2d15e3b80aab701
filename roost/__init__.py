"""The Python client of Roost. Needs httpx, msgpack, numpy and standardwebhooks, and nothing of the server."""

from roost.arrays import Array, SparseVector
from roost.backfill import Progress
from roost.client import AsyncClient, AsyncJob, Client, Job
from roost.embedding import Embedder
from roost.errors import (
    Conflict,
    ConnectionFailed,
    ItemFailed,
    JobFailed,
    NoSuchValue,
    NotAllowed,
    NotFound,
    NotSigned,
    Overloaded,
    RequestRefused,
    RoostError,
    ServerFailed,
    StillRunning,
    TooLarge,
    UnexpectedReply,
)
from roost.events import Event
from roost.job_info import JobInfo
from roost.results import Item, Result
from roost.signed import verify

__all__ = [
    "Array",
    "AsyncClient",
    "AsyncJob",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "Embedder",
    "Event",
    "Item",
    "ItemFailed",
    "Job",
    "JobFailed",
    "JobInfo",
    "NoSuchValue",
    "NotAllowed",
    "NotFound",
    "NotSigned",
    "Overloaded",
    "Progress",
    "RequestRefused",
    "Result",
    "RoostError",
    "ServerFailed",
    "SparseVector",
    "StillRunning",
    "TooLarge",
    "UnexpectedReply",
    "verify",
]
