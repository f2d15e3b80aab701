from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.backfill import Backfill, Order, Part, Progress, plan_of
from roost.errors import Conflict, RequestRefused
from roost.results import Item
from roost.steps import Patience
from tests.unit.roost.scripted import Server, error, job, packed, reply


def plan(batch: int = 2, in_flight: int = 2, start: int = 0, *, ordered: bool = True, **fields: Any) -> Backfill:
    return plan_of("encode", "acme/owl", fields, "night", batch, in_flight, ordered, start, Patience.of(60.0))


def done(*texts: str) -> Any:
    rows = [{"text": text} for text in texts]
    return packed(job("succeeded", result={"id": "j1", "model": "acme/owl", "items": rows}))


def work(server: Server, part: Part, made: Backfill | None = None) -> list[Item]:
    found = server.run((made or plan()).steps(part, 0.0))
    assert found is not None
    return found


def test_an_input_is_cut_into_parts_as_it_is_read() -> None:
    read: list[int] = []

    def source() -> Iterator[int]:
        for n in itertools.count():
            read.append(n)
            yield n

    parts = plan(batch=3).parts(source())
    assert next(parts) == Part(0, 0, [0, 1, 2])
    assert next(parts) == Part(1, 3, [3, 4, 5])
    assert read == [0, 1, 2, 3, 4, 5]


def test_the_last_part_may_be_short_and_an_empty_input_has_none() -> None:
    assert list(plan(batch=2).parts("abc")) == [Part(0, 0, ["a", "b"]), Part(1, 2, ["c"])]
    assert list(plan().parts([])) == []


def test_parts_that_are_done_are_passed_over_and_the_others_keep_their_numbers() -> None:
    assert [part.number for part in plan(batch=2, start=4).parts("abcdef")] == [2]
    assert [part.number for part in plan(batch=2, start=3).parts("abcdef")] == [1, 2]


def test_items_before_the_start_are_not_given() -> None:
    items = work(Server(done("c", "d")), Part(1, 2, ["c", "d"]), plan(start=3))
    assert [(item.index, item.text) for item in items] == [(3, "d")]


def test_a_part_is_a_job_of_the_bulk_lane_under_the_run_s_name() -> None:
    server = Server(done("a", "b"))
    items = work(server, Part(7, 14, ["a", "b"]), plan(normalize=True, tags=["mine"]))
    assert [item.index for item in items] == [14, 15]
    assert server.requests[0].headers["Idempotency-Key"] == "night/7"
    assert server.sent == [
        {
            "verb": "encode",
            "model": "acme/owl",
            "items": ["a", "b"],
            "lane": "bulk",
            "tags": ["mine", "run:night"],
            "options": {"normalize": True},
        }
    ]


def test_an_item_that_the_server_refuses_fails_alone_and_by_its_own_place() -> None:
    refused = error(422, "invalid_request", param="items[1].oops")
    server = Server(refused, done("a", "c"))
    items = work(server, Part(1, 3, ["a", {"oops": 1}, "c"]))
    assert [item.index for item in items] == [3, 4, 5]
    assert [item.ok for item in items] == [True, False, True]
    assert items[1].error is not None
    assert items[1].error.param == "items[4].oops"
    assert server.sent[1]["items"] == ["a", "c"]
    assert [request.headers["Idempotency-Key"] for request in server.requests] == ["night/1", "night/1-4"]


def test_an_item_that_cannot_be_read_is_not_sent(tmp_path: Path) -> None:
    server = Server(done("b"))
    items = work(server, Part(0, 0, [tmp_path / "none.pdf", "b"]))
    assert items[0].error is not None
    assert items[0].error.code == "unreadable_file"
    assert items[1].text == "b"


def test_a_part_in_which_nothing_can_be_sent_asks_for_nothing() -> None:
    assert [item.ok for item in work(Server(), Part(0, 0, [object(), object()]))] == [False, False]


def test_a_part_that_is_too_large_is_halved_and_one_item_that_is_fails() -> None:
    large = error(413, "limit_exceeded", param="body")
    # The whole, its first half, and of that the first item by itself.
    server = Server(large, large, large, done("b"), done("c", "d"))
    items = work(server, Part(0, 0, ["a" * 9, "b", "c", "d"]))
    assert [item.ok for item in items] == [False, True, True, True]
    assert [request.headers["Idempotency-Key"] for request in server.requests] == [
        "night/0",
        "night/0a",
        "night/0aa",
        "night/0ab",
        "night/0b",
    ]


@pytest.mark.parametrize(
    "refusal", [error(422, "invalid_option", param="options.x"), error(404, "model_not_found", param="model")]
)
def test_what_would_meet_every_part_is_raised(refusal: Any) -> None:
    with pytest.raises(RequestRefused):
        work(Server(refusal), Part(0, 0, ["a"]))


def test_another_run_of_the_same_name_is_raised() -> None:
    with pytest.raises(Conflict, match="Run 'night' was begun with other inputs, batch or options") as caught:
        work(Server(error(409, "idempotency_conflict", param="Idempotency-Key")), Part(0, 0, ["a"]))
    assert (caught.value.code, caught.value.param) == ("idempotency_conflict", "run")


LOST = {"code": "worker_lost", "message": "Lost.", "retryable": True}
EMPTY = {"code": "empty_text", "message": "Empty.", "retryable": False}


def test_a_job_that_fails_is_told_at_each_of_its_items() -> None:
    items = work(Server(packed(job("failed", error=LOST, result=None))), Part(1, 2, ["a", "b"]))
    assert [(item.index, item.error.code if item.error else "") for item in items] == [
        (2, "worker_lost"),
        (3, "worker_lost"),
    ]


def test_a_job_whose_items_all_fail_tells_each_its_own_error() -> None:
    rows = [{"error": EMPTY | {"param": "items[0]"}}, {"error": EMPTY | {"message": "More empty."}}]
    failed = packed(job("failed", error=EMPTY, result={"id": "j1", "model": "m", "items": rows}))
    items = work(Server(failed), Part(1, 2, ["", ""]))
    assert [item.error.message for item in items if item.error] == ["Empty.", "More empty."]
    assert items[0].fields["error"]["param"] == "items[2]"


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_part_that_failed_in_an_earlier_run_is_tried_again(status: str) -> None:
    server = Server(
        packed(job(status, error=LOST if status == "failed" else None, result=None), idempotent_replayed="true"),
        reply(job("queued"), 202),
        reply(job("succeeded")),
        packed({"id": "j1", "model": "m", "items": [{"text": "a"}]}),
    )
    assert [item.text for item in work(server, Part(0, 0, ["a"]))] == ["a"]
    assert server.paths[1] == "POST /v1/jobs/j1/retry"


def test_a_part_that_can_do_no_better_is_not_tried_again() -> None:
    server = Server(packed(job("failed", error=EMPTY, result=None), idempotent_replayed="true"))
    assert not work(server, Part(0, 0, ["a"]))[0].ok


def items_of(part: int, batch: int = 2) -> list[Item]:
    return [Item(part * batch + n, {"text": "x"}) for n in range(batch)]


def test_ordered_results_wait_for_those_before_them() -> None:
    order = Order.of(plan(), "abcdef", None)
    assert order.took(1, items_of(1)) == []
    assert [item.index for item in order.took(0, items_of(0))] == [0, 1, 2, 3]
    assert [item.index for item in order.took(2, items_of(2))] == [4, 5]


def test_unordered_results_are_given_as_they_come() -> None:
    order = Order.of(plan(ordered=False), "abcdef", None)
    assert [item.index for item in order.took(1, items_of(1))] == [2, 3]


def test_ordered_results_after_a_start_begin_there() -> None:
    order = Order.of(plan(start=4), "abcdef", None)
    assert [item.index for item in order.took(2, items_of(2))] == [4, 5]


def test_what_waits_to_be_given_takes_room_so_memory_is_bounded() -> None:
    order = Order.of(plan(in_flight=2), iter("abc"), None)
    assert order.may_start(1)
    assert not order.may_start(2)
    for number in (1, 2, 3):
        order.took(number, items_of(number))
    assert not order.may_start(1)
    order.took(0, items_of(0))
    assert order.may_start(1)


def test_progress_counts_what_is_done_and_what_failed() -> None:
    told: list[Progress] = []
    order = Order.of(plan(start=2), "abcdef", told.append)
    order.took(1, [Item(2, {"text": "x"}), Item(3, {"error": EMPTY})])
    assert (told[0].done, told[0].failed, told[0].total) == (2, 1, 4)
    Order.of(plan(), iter("ab"), told.append).took(0, items_of(0))
    assert told[1].total is None


@pytest.mark.parametrize(
    ("given", "says"), [({"batch": 0}, "batch"), ({"in_flight": 0}, "in_flight"), ({"start": -1}, "start")]
)
def test_numbers_that_make_no_sense_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestRefused, match=says):
        plan(**given)


@pytest.mark.parametrize("run", ["", "two words", "é", "x" * 101])
def test_a_run_has_a_name_that_a_key_can_have(run: str) -> None:
    with pytest.raises(RequestRefused, match="name"):
        plan_of("encode", "m", {}, run, 1, 1, True, 0, Patience.of(None))
