"""How requests made from our OpenAPI document are sent: to models that there are, and without long waits.

Loaded by schemathesis. What is replaced keeps its type, so that requests that are wrong on purpose stay wrong.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgpack
import schemathesis
from schemathesis import Case, HookContext, SerializationContext

WRITER, READER = "fake/writer", "roost/fake"
_WRITING = ("generate", "chat", "completions", "responses")


@schemathesis.serializer("application/msgpack")
def as_msgpack(context: SerializationContext, value: Any) -> bytes:
    """The bodies of routes that take msgpack."""
    packed: bytes = msgpack.packb(value, default=str)
    return packed


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Names of real models, and three of four others, become those of weightless ones; long waits become short."""
    writes = any(word in case.operation.path for word in _WRITING)
    for place, name in _models(case):
        given = place.get(name)
        if isinstance(given, str) and ("/" in given or crc32(given.encode("utf-8", "replace")) % 4):
            place[name] = WRITER if writes or place.get("verb") == "generate" else READER
    if case.query.get("wait"):
        case.query["wait"] = 0.1
    if "prefer" in case.headers:
        case.headers["prefer"] = "wait=5"


def _models(case: Case[Any]) -> list[tuple[dict[str, Any], str]]:
    """Where a request names its model: in its body, or in its path."""
    found = [(case.body, "model")] if isinstance(case.body, dict) else []
    return [*found, (case.path_parameters, "id" if "/models/" in case.operation.path else "model")]
