"""Jobs to hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgpack
import pytest

from catalog.terms import Lane, Verb
from tasks.child.hand import Held
from tasks.messages import Submission


@pytest.fixture
def make_submission() -> Callable[..., Submission]:
    def make(**changes: Any) -> Submission:
        items = changes.pop("items", [{"text": "some words"}])
        values: dict[str, Any] = {
            "id": UUID(int=1),
            "caller": "anyone",
            "verb": Verb.ENCODE,
            "model": "roost/fake",
            "revision": None,
            "lane": Lane.INTERACTIVE,
            "bucket": "xs",
            "priority": 5,
            "options": {},
            "inputs": msgpack.packb(items),
            "lengths": [4] * len(items),
            "costs": [1.0] * len(items),
            "faults": {},
            "created": 1_000.0,
            "deadline": None,
            "retention_s": 60,
        }
        return Submission(**{**values, **changes})

    return make


@pytest.fixture
def make_held(make_submission: Callable[..., Submission]) -> Callable[..., Held]:
    def make(**changes: Any) -> Held:
        job = make_submission(**changes)
        return Held(job, msgpack.unpackb(job.inputs), received=1_000.0, arrived=50.0)

    return make
