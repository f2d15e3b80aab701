from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from tasks.blobs import Blobs, new_key


@pytest.fixture(params=["folder", "file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Blobs, str]]:
    """A store of each kind, and its URL."""
    url = {"folder": str(tmp_path / "b"), "file": f"file://{tmp_path}/f", "memory": f"memory://{uuid4().hex}"}[
        request.param
    ]
    yield Blobs(url), url
    if request.param == "memory":
        fsspec.filesystem("memory").rm(url, recursive=True)


def write(blobs: Blobs, key: str, data: bytes) -> str:
    with blobs.writing(key) as file:
        file.write(data)
    return key


def all_keys(url: str) -> set[str]:
    fs, root = fsspec.core.url_to_fs(url)
    return {path.rpartition("/")[2] for path in fs.find(root)}


def test_a_blob_comes_back_whole_and_in_part(store: tuple[Blobs, str]) -> None:
    blobs, _ = store
    key = write(blobs, new_key("a"), b"0123456789" * 300_000)

    assert b"".join(blobs.chunks(key)) == b"0123456789" * 300_000
    assert b"".join(blobs.chunks(key, 5, 7)) == b"5678901"
    assert b"".join(blobs.chunks(key, 2_999_998)) == b"89"


def test_a_blob_that_is_not_finished_is_not_there(store: tuple[Blobs, str]) -> None:
    blobs, url = store
    kept = write(blobs, new_key("a"), b"kept")
    key = new_key("a")

    def broken() -> None:
        with blobs.writing(key) as file:
            file.write(b"half")
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - any would do
        broken()

    with pytest.raises(FileNotFoundError):
        list(blobs.chunks(key))
    assert all_keys(url) == {kept.rpartition("/")[2]}


def test_what_is_deleted_is_gone_and_may_be_deleted_again(store: tuple[Blobs, str]) -> None:
    blobs, url = store
    one, two, other = (write(blobs, new_key(folder), b"x") for folder in ("a", "a", "b"))

    blobs.delete(one)
    blobs.delete(one)
    with pytest.raises(FileNotFoundError):
        list(blobs.chunks(one))
    blobs.delete_folder("a")
    blobs.delete_folder("a")

    assert two.startswith("a/")
    assert all_keys(url) == {other.rpartition("/")[2]}


def test_keys_cannot_be_guessed() -> None:
    assert len({new_key("a") for _ in range(100)}) == 100
    assert len(new_key("a")) >= 40


def test_a_folder_is_listed_with_what_was_never_finished(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))
    write(blobs, "b/other", b"x")
    key = write(blobs, "a/one", b"x")
    (tmp_path / "a" / "two.unfinished").write_bytes(b"half")

    assert sorted(blobs.keys("a")) == [key, "a/two.unfinished"]


def test_blobs_are_listed_with_the_time_of_their_writing(store: tuple[Blobs, str]) -> None:
    blobs, _ = store
    keys = {write(blobs, new_key("a/of"), b"x") for _ in range(3)}

    assert set(blobs.keys("a")) == keys
    for key in keys:
        written = blobs.written_at(key)
        assert written is not None
        assert abs(datetime.now(UTC) - written) < timedelta(minutes=1)
    assert blobs.keys("none") == []
    assert blobs.written_at("a/none") is None
