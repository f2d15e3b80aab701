"""The Python client of Roost. Needs httpx, msgpack and numpy, and nothing of the server."""

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
]
