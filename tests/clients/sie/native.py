"""The native API's own answer to the same question, as numpy arrays: what the peer's client has to be given, too."""

from __future__ import annotations

from typing import Any

import httpx
import msgpack
import numpy as np

TYPES = {"float32": "<f4", "float16": "<f2", "int8": "i1", "uint8": "u1", "ubinary": "u1"}


def result(url: str, verb: str, model: str, items: list[Any], **more: Any) -> dict[str, Any]:
    """The result of a job, its arrays unpacked."""
    body = msgpack.packb({"verb": verb, "model": model, "items": items, **more})
    headers = {"content-type": "application/msgpack", "accept": "application/msgpack", "prefer": "wait=60"}
    answer = httpx.post(f"{url}/v1/jobs", content=body, headers=headers, timeout=90)
    job = msgpack.unpackb(answer.content)
    assert job["status"] == "succeeded", job
    for item in job["result"]["items"]:
        for name in {"dense", "sparse", "multivector"} & item.keys():
            item[name] = unpacked(item[name])
    found: dict[str, Any] = job["result"]
    return found


def unpacked(stored: dict[str, Any]) -> Any:
    values = np.frombuffer(stored["values"], TYPES[stored["dtype"]])
    if "indices" in stored:
        return {"indices": np.frombuffer(stored["indices"], "<i4"), "values": values}
    return values.reshape(stored["num_tokens"], -1) if "num_tokens" in stored else values
