"""Files of any size outside the database: a local folder or an object store, by the URL that fsspec knows it by.

A blob is written once, appears whole or not at all, and never changes. Keys are random: who has none finds nothing.
All calls block; call them from threads.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

CHUNK = 2**20
"""Bytes in one read."""

_UNFINISHED = ".unfinished"


def new_key(folder: str) -> str:
    """A key for a blob that nobody can guess."""
    return f"{folder}/{secrets.token_hex(20)}"


def _sync_folder(path: str) -> None:
    """Have the names in a folder on disk: a row may name one of them next, and outlive a power failure."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Blobs:
    """One store. Raises FileNotFoundError for keys that are not there, and OSError when it cannot be reached."""

    def __init__(self, url: str) -> None:
        self._fs: Any
        self._fs, root = fsspec.core.url_to_fs(url)
        self._root = str(root).rstrip("/")
        self._local = isinstance(self._fs, LocalFileSystem)

    @contextmanager
    def writing(self, key: str) -> Iterator[IO[bytes]]:
        """A file to write into; the blob is there, and on disk, once the block has ended without an error."""
        path = self._path(key)
        if not self._local:
            try:
                with self._fs.open(path, "wb") as file:
                    yield file
            except BaseException:
                # Closed, it may be there in part; nobody knows its key yet.
                self.delete(key)
                raise
            return
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        unfinished = path + _UNFINISHED
        try:
            with open(unfinished, "xb") as file:  # noqa: PTH123 - a path of fsspec
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)  # noqa: PTH105 - a path of fsspec
            _sync_folder(path.rpartition("/")[0])
        except BaseException:
            with suppress(FileNotFoundError):
                os.remove(unfinished)  # noqa: PTH107 - a path of fsspec
            raise

    def reading(self, key: str) -> IO[bytes]:
        """The blob as a file that can seek. Close it."""
        file: IO[bytes] = self._fs.open(self._path(key), "rb")
        return file

    def chunks(self, key: str, start: int = 0, size: int | None = None) -> Iterator[bytes]:
        """The bytes of a blob from `start` on, piece by piece."""
        left = size
        with self.reading(key) as file:
            file.seek(start)
            while chunk := file.read(CHUNK if left is None else min(CHUNK, left)):
                yield chunk
                left = None if left is None else left - len(chunk)

    def delete(self, key: str) -> None:
        """Remove a blob; one that is gone already is no error."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(key))

    def delete_folder(self, folder: str) -> None:
        """Remove all blobs whose keys begin with this folder."""
        with suppress(FileNotFoundError):
            self._fs.rm(self._path(folder), recursive=True)

    def keys(self, folder: str) -> list[str]:
        """The keys of all blobs of a folder, and of what is left of those that were never finished."""
        path = self._path(folder)
        self._fs.invalidate_cache(path)
        # Written with a leading slash or without, as each store likes it: what comes after the folder is the same.
        return [f"{folder}/{found.rpartition(f'{folder}/')[2]}" for found in self._fs.find(path)]

    def written_at(self, key: str) -> datetime | None:
        """When a blob was last written to; None for one that is not there."""
        try:
            found: datetime = self._fs.modified(self._path(key))
        except FileNotFoundError:
            return None
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"
