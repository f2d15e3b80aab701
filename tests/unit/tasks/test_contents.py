"""Large inputs and results in a store: a folder, and one of the kind that object stores are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tasks.blobs import Blobs
from tasks.contents import Contents, job_of, new_key
from tasks.errors import BlobMissing, StoreUnavailable

JOB = UUID("0199c0de-0000-7000-8000-0000000000ab")


@pytest.fixture(params=["folder", "memory"])
def make_contents(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Contents]:
    url = str(tmp_path) if request.param == "folder" else f"memory://{uuid4().hex}"
    return lambda: Contents(Blobs(url), 16)


def test_what_is_put_is_found_by_another_process_until_it_is_deleted(make_contents: Callable[[], Contents]) -> None:
    one, other = make_contents(), make_contents()
    key = one.put(JOB, b"large" * 100)
    assert other.get(key) == b"large" * 100
    assert other.delete([key, new_key(JOB)])[0] == key
    with pytest.raises(BlobMissing):
        one.get(key)


def test_a_key_names_its_job_and_cannot_be_guessed() -> None:
    one, other = new_key(JOB), new_key(JOB)
    assert one != other
    assert one.startswith(f"jobs/ab/{JOB.hex}_")
    assert len(one.rpartition("_")[2]) == 40
    assert job_of(one) == JOB
    assert job_of(one + ".unfinished") == JOB
    assert job_of("jobs/ab/other") is None


def test_a_store_that_is_away_is_no_missing_blob(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the folder was")
    contents = Contents(Blobs(str(tmp_path / "store")), 16)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        contents.put(JOB, b"x")
    with pytest.raises(StoreUnavailable):
        contents.get(new_key(JOB))
    assert contents.delete([new_key(JOB)]) == []
