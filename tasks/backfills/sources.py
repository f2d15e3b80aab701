"""What backfills may read on the server: folders and URLs that the operator named, and nothing beside them.

A path is looked at twice: as it is written, when a backfill is asked for, and by what it is on the disk, when it is
read. Links are never followed out of what is allowed.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

import fsspec

from tasks.backfills.globs import BadGlob, Glob, is_glob
from tasks.errors import LimitExceeded, TaskError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HIDDEN = re.compile(r"%(?:2e|2f|5c|00)", re.IGNORECASE)
_CHUNK = 2**20


class SourceRefused(TaskError):
    """The server may not read this path for a backfill; the operator names what it may in ROOST_BACKFILL_SOURCES."""

    code = "source_refused"


class SourceUnreadable(TaskError):
    """The path cannot be read: there is no such file, or not for the server."""

    code = "source_unreadable"


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a source: its name within it, and what tells that it has not changed."""

    path: str
    name: str
    size: int
    fingerprint: str


def roots_of(setting: str) -> tuple[str, ...]:
    """The folders and URLs of ROOST_BACKFILL_SOURCES."""
    return tuple(_normal(one.strip()) for one in setting.split(",") if one.strip())


def allowed(path: str, roots: Sequence[str]) -> tuple[str, str]:
    """The path in its one spelling, and which of the roots it is in. Raises SourceRefused."""
    if not roots:
        raise SourceRefused("No path of the server may be read: ROOST_BACKFILL_SOURCES names none.")
    if _CONTROL.search(path) or "\\" in path or "::" in path or _HIDDEN.search(path):
        raise SourceRefused(f"The path {_shown(path)} holds what no path here may: {_NEVER}.")
    if ".." in re.split(r"/+", path):
        raise SourceRefused(f"The path {_shown(path)} goes upwards; write it without '..'.")
    if not path.startswith("/") and not _URL.match(path):
        raise SourceRefused(f"The path {_shown(path)} must be absolute, or a URL.")
    normal = _normal(path)
    if "@" in _split(normal)[1].partition("/")[0] and _split(normal)[0]:
        raise SourceRefused("The path holds credentials; these belong into the server's own configuration.")
    for root in roots:
        if normal == root or normal.startswith(f"{root.rstrip('/')}/"):
            return normal, root
    raise SourceRefused(f"The path {_shown(path)} is in nothing that ROOST_BACKFILL_SOURCES names.")


_NEVER = "control characters, backslashes, '::', or dots and slashes in disguise"


class Sources:
    """Lists and reads what is allowed. All calls block; call them from threads."""

    def __init__(self, setting: str) -> None:
        self._roots = roots_of(setting)

    def check(self, path: str) -> None:
        """Raises SourceRefused for a path that is not allowed as it is written."""
        allowed(path, self._roots)

    def check_glob(self, path: str) -> None:
        """The same for one that may be a glob."""
        _parted(*allowed(path, self._roots))

    def find(self, path: str) -> Iterator[Found]:
        """The files of a folder, prefix or glob, in order; of a file, itself. Hidden ones are passed over.

        Raises SourceRefused or SourceUnreadable.
        """
        normal, root = allowed(path, self._roots)
        base, pattern = _parted(normal, root)
        if _split(normal)[0]:
            yield from _remote(base, pattern)
        else:
            yield from self._local(base, pattern, root)

    def look(self, path: str) -> Found:
        """What is known of one file. Raises SourceRefused or SourceUnreadable."""
        normal, _ = allowed(path, self._roots)
        try:
            if _split(normal)[0]:
                filesystem, inside = fsspec.core.url_to_fs(normal)
                return _told(normal, posixpath.basename(normal), filesystem.info(inside))
            return _found(normal, posixpath.basename(normal))
        except (OSError, ValueError, ImportError) as error:
            raise _unreadable(normal, error) from error

    def read(self, path: str, limit: int) -> bytes:
        """The content of a file. Raises SourceRefused, SourceUnreadable, or LimitExceeded for more bytes than this."""
        normal, root = allowed(path, self._roots)
        try:
            if _split(normal)[0]:
                filesystem, inside = fsspec.core.url_to_fs(normal)
                file: Any = filesystem.open(inside, "rb")
            else:
                file = _opened(normal, root)
            with file:
                return _bounded(file, limit)
        except (OSError, ValueError, ImportError) as error:
            raise _unreadable(normal, error) from error

    def _local(self, base: str, pattern: Glob | None, root: str) -> Iterator[Found]:
        if not _inside(base, root):
            raise SourceRefused("The path leads out of what ROOST_BACKFILL_SOURCES names, by a link.")
        try:
            if pattern is None and not os.path.isdir(base):  # noqa: PTH112 - links are looked at apart
                yield _found(base, posixpath.basename(base))
                return
            for folder, folders, files in os.walk(base, onerror=lambda error: _raise(error, base)):
                folders[:] = sorted(one for one in folders if not one.startswith("."))
                for name in sorted(files):
                    path = posixpath.join(folder, name)
                    within = posixpath.relpath(path, base)
                    wanted = not name.startswith(".") and (pattern is None or pattern.matches(within))
                    if wanted and (found := _still(path, within)) is not None:
                        yield found
        except OSError as error:
            raise _unreadable(base, error) from error


def _remote(base: str, pattern: Glob | None) -> Iterator[Found]:
    try:
        filesystem, inside = fsspec.core.url_to_fs(base)
        if pattern is None and filesystem.isfile(inside):
            yield _told(base, posixpath.basename(base), filesystem.info(inside))
            return
        for path, info in sorted(filesystem.find(inside, detail=True).items()):
            name = str(path).removeprefix(str(inside)).lstrip("/")
            whole = f"{base.rstrip('/')}/{name}"
            if not any(part.startswith(".") for part in name.split("/")) and (pattern is None or pattern.matches(name)):
                yield _told(whole, name, info)
    except (OSError, ValueError, ImportError) as error:
        raise _unreadable(base, error) from error


def _parted(path: str, root: str) -> tuple[str, Glob | None]:
    """The folder that a glob begins in, never above the root, and what it matches; None where it is none.

    Raises SourceRefused.
    """
    parts = path.removeprefix(root).split("/")
    plain = next((place for place, part in enumerate(parts) if is_glob(part)), None)
    if plain is None:
        return path, None
    base = root + "/".join(parts[:plain])
    try:
        return base, Glob("/".join(parts[plain:]))
    except BadGlob as error:
        raise SourceRefused(f"The path {_shown(path)} is no glob: {error}.") from None


def _opened(path: str, root: str) -> Any:
    """The file if it is one and lies inside, opened so that what was looked at is what is read."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_handle(handle, path, root)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_handle(handle: int, path: str, root: str) -> None:
    real = os.path.realpath(path)
    if not _inside(real, root) or not os.path.samestat(os.fstat(handle), os.stat(real)):  # noqa: PTH116
        raise SourceRefused("The file is a link that leads out of what ROOST_BACKFILL_SOURCES names.")
    if not S_ISREG(os.fstat(handle).st_mode):
        raise SourceRefused("This is no plain file.")


def _inside(path: str, root: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _bounded(file: Any, limit: int) -> bytes:
    data = bytearray()
    while chunk := file.read(min(_CHUNK, limit + 1 - len(data))):
        data += chunk
        if len(data) > limit:
            raise LimitExceeded(f"The document is larger than {limit} bytes, the limit ROOST_MAX_BODY_BYTES.")
    return bytes(data)


def _found(path: str, name: str) -> Found:
    # A link is told by what it points at, and refused when it is read if that is outside.
    told = os.stat(path) if os.path.exists(path) else os.lstat(path)  # noqa: PTH110, PTH116
    # A name that is not UTF-8 cannot be kept as it is: told so it is still another than its neighbours'.
    shown = os.fsencode(name).decode(errors="backslashreplace")
    return Found(path, shown, told.st_size, f"{told.st_size}-{told.st_mtime_ns}")


def _still(path: str, name: str) -> Found | None:
    """The same of a file that was listed; None if it has gone since, as what is written beside us comes and goes."""
    try:
        return _found(path, name)
    except FileNotFoundError:
        return None


def _told(path: str, name: str, info: Any) -> Found:
    size = int(info.get("size") or 0)
    mark = next((info[key] for key in ("ETag", "etag", "md5", "checksum") if info.get(key)), None)
    since = next((info[key] for key in ("LastModified", "mtime", "modified", "created") if info.get(key)), "")
    return Found(path, name, size, str(mark or f"{size}-{since}"))


def _split(path: str) -> tuple[str, str]:
    scheme = _URL.match(path)
    return (scheme[0], path[scheme.end() :]) if scheme else ("", path)


def _normal(path: str) -> str:
    scheme, rest = _split(path)
    if scheme.lower() == "file://":
        scheme, rest = "", rest if rest.startswith("/") else f"/{rest}"
    return scheme.lower() + posixpath.normpath(rest) if scheme else re.sub("^/+", "/", posixpath.normpath(rest))


def _unreadable(path: str, error: Exception) -> SourceUnreadable:
    said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return SourceUnreadable(f"{_shown(path)} cannot be read: {said}.")


def _raise(error: OSError, base: str) -> None:
    """What cannot be listed is an error; a folder within that has gone since is none."""
    if not isinstance(error, FileNotFoundError) or error.filename == base:
        raise error


def _shown(path: str) -> str:
    return repr(path[-200:])
