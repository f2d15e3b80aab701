"""Large results on their way to the blob store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import pytest

from tasks.blobs import Blobs
from tasks.child.shelf import Shelf
from tasks.contents import Contents
from tasks.messages import Completion, Submission


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    return Contents(Blobs(str(tmp_path / "blobs")), 16)


@pytest.fixture
def shelf(contents: Contents) -> Iterator[Shelf]:
    made = Shelf(contents, patience_s=0.0)
    yield made
    made.close()


def of(job: Submission, result: bytes) -> Completion:
    return Completion(job, "succeeded", result, 0, None, 1.0, 1.0, 2.0)


def put(shelf: Shelf, completion: Completion) -> Completion:
    ready = Queue[Completion]()
    shelf.put(completion, ready.put)
    return ready.get(timeout=10)


def test_only_what_is_too_large_for_a_row_is_put_away(shelf: Shelf, make_submission: Callable[..., Submission]) -> None:
    assert [shelf.takes(of(make_submission(), b"x" * size)) for size in (0, 16, 17)] == [False, False, True]


def test_a_result_is_put_away_and_named_by_its_key(
    shelf: Shelf, contents: Contents, make_submission: Callable[..., Submission]
) -> None:
    done = put(shelf, of(make_submission(), b"x" * 17))
    assert done.result is None
    assert done.result_blob is not None
    assert contents.get(done.result_blob) == b"x" * 17


def test_a_store_that_is_away_loses_no_result(
    shelf: Shelf, make_submission: Callable[..., Submission], tmp_path: Path
) -> None:
    (tmp_path / "blobs").write_text("a file where the folder was")
    done = put(shelf, of(make_submission(), b"x" * 17))
    assert (done.result, done.result_blob) == (b"x" * 17, None)
