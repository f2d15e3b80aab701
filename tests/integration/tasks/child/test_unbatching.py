"""Jobs of many callers in one child: whatever a batch holds, each job's result is that of its own text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection

from catalog.options import EncodeOptions
from catalog.schema import EncodeFacts, Spec, Tasks
from catalog.terms import Lane, Verb
from engine.adapters.fake import FakeAdapter, FakeOptions
from engine.types import Batch, Entry, Item, Output, Work
from tasks.db import Database
from tasks.messages import Submission
from tasks.results import unpack_rows
from tasks.store import read

JOBS = 64
DIMS = 8


def alone(text: str) -> bytes:
    """The vector of a text that has a batch for itself."""
    spec = Spec(id="m", family="fake", tasks=Tasks(encode=EncodeFacts(dims=DIMS)), parameters=0, max_length=512)
    item = Item(0, {"text": text}, 4, 1.0)
    work = Work("w", "m", Verb.ENCODE, (item,), EncodeOptions(), Lane.INTERACTIVE, 5, 0.0)
    [outcome] = FakeAdapter(spec, FakeOptions(dims=DIMS), None, "cpu").run(
        Batch(1, "m", Verb.ENCODE, (Entry(work, item),))
    )
    assert isinstance(outcome, Output)
    return bytes(outcome.fields["dense"]["values"])


@pytest.mark.parametrize("size", [1, 2, 7])
def test_each_job_gets_the_vector_of_its_own_number(
    size: int,
    start_child: Callable[..., Any],
    texts: Callable[..., bytes],
    stored_job: Callable[..., Submission],
    database: Database,
) -> None:
    child = start_child({"m": {"dims": DIMS, "load_seconds": 0.2}}, batch_items=size, lanes=2)
    jobs = {n: stored_job(model="m", inputs=texts(f"number {n}"), lengths=[4], costs=[1.0]) for n in range(JOBS)}
    child.run(*jobs.values())
    assert set(child.done(JOBS).values()) == {"succeeded"}

    def rows(connection: Connection) -> dict[int, list[dict[str, Any]]]:
        stored = {n: read.result(connection, job.id, job.caller).rows for n, job in jobs.items()}
        return {n: unpack_rows(data or b"") for n, data in stored.items()}

    for n, found in database.run(rows).items():
        assert len(found) == 1
        assert found[0]["dense"]["values"] == alone(f"number {n}")
    assert len(np.unique([alone(f"number {n}") for n in range(JOBS)])) == JOBS
