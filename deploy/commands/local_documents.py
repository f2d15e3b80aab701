"""Documents on the caller's side: which files there are, and how they get to the server, each content once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from roost import Client

PURPOSE = "backfill"
"""What these files are for, as the server calls it."""

AT_ONCE = 8
"""Files that are read and sent side by side."""

_FRESH_S = timedelta(days=1).total_seconds()
"""What the server keeps for less long is sent again."""

_PAGE = 10_000
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Local:
    """A file here, and what its rows are to call it."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Sent:
    """A file that the server has."""

    local: Local
    file_id: str
    digest: str

    @property
    def line(self) -> bytes:
        """Its line of a manifest."""
        told = {"file": self.file_id, "id": self.local.name, "fingerprint": f"sha256:{self.digest}"}
        return json.dumps(told, ensure_ascii=False).encode() + b"\n"


def found(sources: Sequence[Path]) -> list[Local]:
    """The files of folders, by their path within; other files by the path that was given. Hidden ones are left out."""
    files: list[Local] = []
    for source in sources:
        if source.is_dir():
            inside = (path for path in sorted(source.rglob("*")) if path.is_file())
            files += [
                Local(name, path)
                for path in inside
                if not any(part.startswith(".") for part in path.relative_to(source).parts)
                and (name := path.relative_to(source).as_posix())
            ]
        elif source.is_file():
            files.append(Local(source.as_posix(), source))
        else:
            raise click.ClickException(f"{source}: there is no such file or folder")
    names: dict[str, Path] = {}
    for one in files:
        if one.name in names:
            raise click.ClickException(f"{names[one.name]} and {one.path} would both be called {one.name!r}")
        names[one.name] = one.path
    return files


def kept(client: Client, now: datetime) -> dict[str, str]:
    """What the server has of earlier runs, by the digests that are its files' names."""
    files: dict[str, str] = {}
    after: str | None = None
    while True:
        page = client.get("/v1/files", {"purpose": PURPOSE, "limit": _PAGE, "after": after})
        for file in page["data"]:
            if (file["expires_at"] or float("inf")) - now.timestamp() > _FRESH_S:
                files[file["filename"]] = file["id"]
        after = page["last_id"]
        if not page["has_more"]:
            return files


def sent(client: Client, files: Sequence[Local], tell: Callable[[bool], object]) -> Iterator[Sent]:
    """The files once the server has them, in their order; `tell` hears of each whether it had to be sent."""
    have = kept(client, datetime.now(UTC))

    def send(local: Local) -> Sent:
        digest = _digest(local.path)
        there = digest in have
        if not there:
            have[digest] = str(client.files.upload(local.path, digest, purpose=PURPOSE)["id"])
        tell(not there)
        return Sent(local, have[digest], digest)

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="upload") as crew:
        yield from crew.map(send, files)


def manifest(client: Client, lines: Iterable[bytes]) -> dict[str, Any]:
    """A manifest as a source: the same one again is the same file."""
    content = b"".join(lines)
    digest = hashlib.sha256(content).hexdigest()
    known = kept(client, datetime.now(UTC)).get(digest)
    return {"manifest": known or client.files.upload(content, digest, purpose=PURPOSE)["id"]}


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
