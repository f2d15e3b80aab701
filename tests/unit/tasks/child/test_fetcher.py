"""Inputs from the blob store: there, gone, and away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from catalog.errors import RoostError
from tasks.blobs import Blobs
from tasks.child.fetcher import Fetcher
from tasks.child.inbox import Arrival
from tasks.contents import Contents, new_key
from tasks.messages import Submission

MakeSubmission = Callable[..., Submission]


class Desk:
    """What became of the jobs: `admitted` with their inputs, `failed` with a code, or `returned`."""

    def __init__(self, root: Path) -> None:
        self.contents = Contents(Blobs(str(root)), 16)
        self.heard = Queue[tuple[str, Any]]()
        self.fetcher = Fetcher(
            self.contents, admit=self._admit, fail=self._fail, give_back=self._give_back, patience_s=0.0
        )

    def put(self, job: Submission) -> tuple[str, Any]:
        self.fetcher.put([Arrival(str(job.id), job, 0, 1.0)])
        return self.heard.get(timeout=10)

    def _admit(self, arrivals: Any) -> None:
        self.heard.put(("admitted", [arrival.job.inputs for arrival in arrivals]))

    def _fail(self, arrival: Arrival, error: RoostError) -> None:
        self.heard.put(("failed", error.code))

    def _give_back(self, keys: Any) -> None:
        self.heard.put(("returned", list(keys)))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "blobs")
    made.fetcher.start()
    yield made
    made.fetcher.close()


def test_inputs_are_read_and_the_job_goes_on(desk: Desk, make_submission: MakeSubmission) -> None:
    job = make_submission()
    key = desk.contents.put(job.id, job.inputs)
    assert desk.put(make_submission(inputs=b"", inputs_blob=key)) == ("admitted", [job.inputs])


def test_a_blob_that_is_gone_fails_its_job(desk: Desk, make_submission: MakeSubmission) -> None:
    job = make_submission()
    assert desk.put(make_submission(inputs=b"", inputs_blob=new_key(job.id))) == ("failed", "blob_missing")


def test_a_store_that_is_away_sends_the_job_back_to_its_queue(
    desk: Desk, make_submission: MakeSubmission, tmp_path: Path
) -> None:
    (tmp_path / "blobs").write_text("a file where the folder was")
    job = make_submission()
    assert desk.put(make_submission(inputs=b"", inputs_blob=new_key(job.id))) == ("returned", [str(job.id)])
