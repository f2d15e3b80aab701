"""What a Celery message carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.terms import Lane, Verb
from tasks.messages import INLINE_BYTES, Submission, pack, travels, unpack

MAKE = Callable[..., Submission]


@pytest.fixture
def make() -> MAKE:
    def job(**fields: Any) -> Submission:
        values: dict[str, Any] = {
            "id": UUID(int=2**127 + 5),
            "caller": "anna",
            "verb": Verb.ENCODE,
            "model": "org/model:small",
            "revision": "abc",
            "lane": Lane.BULK,
            "bucket": "s",
            "priority": 9,
            "options": {"dims": 64, "prompt": "query: ", "nested": {"a": [1, None, True]}},
            "inputs": b"\x91\x81\xa4text\xa1a",
            "lengths": [3, 4],
            "costs": [0.5, 1.25],
            "faults": {1: {"code": "empty_text", "message": "m", "retryable": False}},
            "created": 1_700_000_000.123456,
            "deadline": 1_700_000_060.5,
            "retention_s": 3600,
            "reply_to": "api-1",
            "fence": 4,
            "attempt": 2,
            "sent": 1_700_000_000.5,
        }
        return Submission(**values | fields)

    return job


def test_a_job_adds_up_its_items(make: MAKE) -> None:
    assert (make().items, make().cost_ms) == (2, 1.75)


def test_a_stored_job_comes_back_without_what_only_its_row_needs(make: MAKE) -> None:
    job = make(tags=("a",), idempotency_key="k", body_hash=b"h")

    assert unpack(pack(job)) == make()


def test_a_job_without_a_row_comes_back_whole(make: MAKE) -> None:
    job = make(stored=False, tags=["a", "b"], idempotency_key="k", body_hash=b"h")

    assert unpack(pack(job)) == job


def test_verb_and_lane_come_back_as_what_they_were(make: MAKE) -> None:
    job = unpack(pack(make()))

    assert job.verb is Verb.ENCODE
    assert job.lane is Lane.BULK


@pytest.mark.parametrize(
    ("size", "stored", "travels"),
    [(INLINE_BYTES, True, True), (INLINE_BYTES + 1, True, False), (INLINE_BYTES + 1, False, True)],
)
def test_inputs_travel_when_they_are_small_or_have_no_row(make: MAKE, size: int, stored: bool, travels: bool) -> None:
    inputs = b"x" * size

    assert unpack(pack(make(inputs=inputs, stored=stored))).inputs == (inputs if travels else b"")


def test_options_too_large_for_a_message_wait_in_the_row_with_all_else(make: MAKE) -> None:
    large = {"labels": ["x" * 500] * 100}
    job = make(inputs=b"x", options=large)

    sent = unpack(pack(job))

    assert not travels(job)
    assert (sent.inputs, sent.options) == (b"", {})
    assert len(pack(job)) < 1024


def test_inputs_in_the_blob_store_are_named_in_the_message(make: MAKE) -> None:
    job = make(inputs=b"", inputs_blob="jobs/ab/key", keep=False)

    sent = unpack(pack(job))

    assert (sent.inputs, sent.inputs_blob, sent.keep) == (b"", "jobs/ab/key", False)


@given(st.binary(max_size=64))
def test_bytes_that_are_no_message_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a Roost message"):
        unpack(data)


@given(st.data())
def test_a_message_cut_short_is_a_value_error(data: st.DataObject) -> None:
    job = Submission(
        UUID(int=1), "a", Verb.ENCODE, "m", None, Lane.BULK, "s", 5, {}, b"", [1], [1.0], {}, 1.0, None, 60
    )  # fmt: skip
    whole = pack(job)
    end = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(ValueError, match="not a Roost message"):
        unpack(whole[:end])
