"""The requests of each call: pure functions from what a caller says to what is sent."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from roost import inputs
from roost.errors import RequestRefused
from roost.wire import EVENTS, JSON, MSGPACK, Request, packed

POLL_S = 30.0
"""The longest that one request waits for a job; what sits between client and server often ends a minute's silence."""

JOB_FIELDS = frozenset(
    {"query", "labels", "output_schema", "lane", "priority", "deadline_s", "tags", "retention_s", "store", "webhook"}
)
"""What is a field of the job itself; everything else that a caller names is an option of the verb."""

_MAX_KEY = 256


@dataclass(frozen=True, slots=True)
class Asked:
    """A job to submit. `key` makes it safe to send twice; without one it never is."""

    verb: str
    model: str
    items: list[Any]
    fields: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None


def asked(verb: str, model: str, items: Any, given: Mapping[str, Any], key: str | None) -> Asked:
    """A job from the arguments of a call. Raises RequestRefused for what cannot be sent."""
    if key is not None:
        check_key(key)
    return Asked(verb, model, inputs.items_of(items), job_fields(given), key)


def streamed(model: str, prompt: Any, given: Mapping[str, Any], key: str | None) -> Asked:
    """A job whose one text is told as it is made. Raises as `asked`."""
    return asked("generate", model, [prompt], {**given, "stream": True}, key or new_key())


def job_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a job and its options, from one set of names. `options` itself may be given as a map."""
    options = {**(given.get("options") or {})}
    fields: dict[str, Any] = {"options": options}
    for name, value in given.items():
        if name in JOB_FIELDS:
            if value is not None:
                fields[name] = _field(name, value)
        elif name != "options":
            options[name] = value
    return fields


def _field(name: str, value: Any) -> Any:
    if name == "query":
        return inputs.item_of(value, "query")
    return {"url": value} if name == "webhook" and isinstance(value, str) else value


def new_key() -> str:
    """A key that nobody else uses."""
    return f"client-{uuid.uuid4().hex}"


def check_key(key: str) -> None:
    """Raises RequestRefused for what is no idempotency key."""
    if not 1 <= len(key) <= _MAX_KEY or not (key.isascii() and key.isprintable()):
        raise RequestRefused(
            f"A key is 1 to {_MAX_KEY} printable ASCII characters.", code="invalid_request", param="key"
        )


def short_key(key: str) -> str:
    """The key itself, or where it has grown too long, its beginning and a digest of all of it."""
    return key if len(key) <= _MAX_KEY else f"{key[:180]}#{hashlib.sha256(key.encode()).hexdigest()}"


def post_job(job: Asked, wait_s: float) -> Request:
    """Submit; with `wait_s` the answer is the end, if it comes in time."""
    headers = {
        "Content-Type": MSGPACK,
        "Accept": MSGPACK,
        "Prefer": f"wait={wait_s:.3f}" if wait_s > 0 else "respond-async",
    }
    if job.key is not None:
        headers["Idempotency-Key"] = job.key
    body = packed({"verb": job.verb, "model": job.model, "items": job.items, **job.fields})
    return Request("POST", "/v1/jobs", headers=headers, body=body, wait_s=wait_s, again=job.key is not None)


def get_job(job_id: str, wait_s: float = 0.0) -> Request:
    """Look at a job, or wait for its end."""
    params = {"wait": f"{wait_s:.3f}"} if wait_s > 0 else {}
    return Request("GET", job_path(job_id), params, {"Accept": JSON}, wait_s=wait_s)


def get_result(job_id: str) -> Request:
    """A job's result, its arrays as bytes."""
    return Request("GET", job_path(job_id, "/result"), headers={"Accept": MSGPACK})


def get_events(job_id: str, last_id: str) -> Request:
    """A job's events, from after `last_id`."""
    headers = {"Accept": EVENTS} | ({"Last-Event-ID": last_id} if last_id else {})
    return Request("GET", job_path(job_id, "/events"), headers=headers, wait_s=POLL_S, streamed=True)


def post_change(job_id: str, change: str) -> Request:
    """Cancel a job, or retry it. A retry that was answered by a lost reply would be refused the second time."""
    return Request("POST", job_path(job_id, f"/{change}"), headers={"Accept": JSON}, again=change == "cancel")


def delete_job(job_id: str) -> Request:
    """Remove a job that has ended."""
    return Request("DELETE", job_path(job_id), headers={"Accept": JSON})


def get_json(path: str, params: Mapping[str, Any] | None = None) -> Request:
    """Anything else that is looked at. Parameters that are None are left out."""
    told = {name: str(value) for name, value in (params or {}).items() if value is not None}
    return Request("GET", path, told, {"Accept": JSON})


def model_path(model: str) -> str:
    """The path of a model, whose id may have slashes."""
    return f"/v1/models/{quote(model, safe='/:@')}"


def job_path(job_id: str, more: str = "") -> str:
    """The path of a job, or of one of its routes."""
    return f"/v1/jobs/{quote(job_id, safe='')}{more}"
