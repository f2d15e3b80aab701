"""What waiters are told."""

from __future__ import annotations

from uuid import UUID

from tasks.jobs import State
from tasks.notices import Change, Reply, pack_changes, pack_replies, unpack_changes, unpack_replies


def test_the_changes_of_a_batch_travel_in_one_message() -> None:
    changes = [Change(UUID(int=1), State.RUNNING, 3, items_done=7), Change(UUID(int=2), "failed", 2)]

    assert unpack_changes(pack_changes(changes)) == changes


def test_a_reply_travels_with_its_result() -> None:
    reply = Reply(
        id=UUID(int=9),
        state=State.FAILED,
        version=4,
        attempt=2,
        fence=3,
        items_failed=1,
        error={"code": "all_items_failed", "message": "m", "retryable": False},
        device_ms=1.5,
        started=1.25,
        finished=2.5,
        expires=100.0,
        worker="gpu-0",
        result=b"\0\xff",
        has_result=True,
        timings={"queue_ms": 1.0},
        usage={"tokens": 5},
    )

    assert unpack_replies(pack_replies([reply, reply])) == [reply, reply]


def test_nothing_to_tell_is_an_empty_message() -> None:
    assert unpack_changes(pack_changes([])) == []
    assert unpack_replies(pack_replies([])) == []
