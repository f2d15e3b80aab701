"""What a caller hands in as items, as the server takes it: paths, bytes, pictures and arrays become files.

An item is a text; a path, whose name says what it holds; a picture of PIL; or a map with the fields of docs/verbs.md,
in which files may be given as paths, bytes, pictures or arrays as well, or as URLs that the server fetches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roost.errors import RequestRefused
from roost.pictures import is_picture, png, png_of_array

_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
_SOUNDS = frozenset({".wav", ".flac", ".ogg", ".mp3", ".opus", ".m4a"})
_FILES = ("audio", "document")


def items_of(given: Any) -> list[Any]:
    """The items of a job; a single text, path, picture or map is one item. Raises RequestRefused."""
    if isinstance(given, str | bytes | Path | Mapping) or is_picture(given):
        given = [given]
    if not isinstance(given, Iterable):
        raise _wrong(f"Items are texts, paths, pictures or maps, not {type(given).__name__}.", "items")
    return [item_of(one, f"items[{n}]") for n, one in enumerate(given)]


def item_of(given: Any, where: str) -> Any:
    """One item; `where` is its name in errors. Raises RequestRefused, or OSError for a file that cannot be read."""
    if isinstance(given, str):
        return given
    if isinstance(given, Path):
        return _from_path(given)
    if is_picture(given):
        return {"images": [{"data": png(given)}]}
    if isinstance(given, Mapping):
        return {name: _field(name, value, where) for name, value in given.items()}
    if isinstance(given, bytes | bytearray | np.ndarray):
        raise _wrong('Say what it is: {"document": …}, {"images": […]}, {"audio": …} or {"multivector": …}.', where)
    raise _wrong(f"An item is a text, a path, a picture or a map, not {type(given).__name__}.", where)


def _from_path(path: Path) -> dict[str, Any]:
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        return {"images": [_file(path, "")]}
    if suffix in _SOUNDS:
        return {"audio": _file(path, "")}
    return {"document": _file(path, "") | {"name": path.name}}


def _field(name: str, value: Any, where: str) -> Any:
    at = f"{where}.{name}"
    if name == "images" and isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return [_file(one, f"{at}[{n}]") for n, one in enumerate(value)]
    if name in _FILES:
        document = isinstance(value, Path) and name == "document"
        return _file(value, at) | ({"name": value.name} if document else {})
    if name == "multivector" and isinstance(value, np.ndarray):
        return _vectors(value, at)
    if name == "messages" and isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return [_message(one, f"{at}[{n}]") for n, one in enumerate(value)]
    return value


def _message(message: Any, where: str) -> Any:
    """A message, the images of its parts as files."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list):
        return message
    parts = [
        {**part, "image": _file(part["image"], f"{where}.content[{n}].image")}
        if isinstance(part, Mapping) and "image" in part
        else part
        for n, part in enumerate(content)
    ]
    return {**message, "content": parts}


def _file(value: Any, where: str) -> Any:
    if isinstance(value, Path):
        return {"data": value.read_bytes()}
    if isinstance(value, bytes | bytearray):
        return {"data": bytes(value)}
    if is_picture(value):
        return {"data": png(value)}
    if isinstance(value, np.ndarray):
        return {"data": png_of_array(value, where)}
    if isinstance(value, Mapping):
        data = value.get("data")
        return {**value, **_file(data, where)} if data is not None and not isinstance(data, str) else dict(value)
    if isinstance(value, str):
        if value.startswith(("https://", "http://")):
            return {"url": value}
        raise _wrong(f"{where} is a text: give a file as Path({value[:80]!r}) or as bytes.", where)
    raise _wrong(f"{where} is a file: a path, bytes or a picture, not {type(value).__name__}.", where)


def _vectors(value: NDArray[Any], where: str) -> dict[str, Any]:
    if value.ndim != 2 or value.dtype.kind != "f":
        raise _wrong(f"{where} is rows of floats, of shape (tokens, dims).", where)
    half = value.dtype.itemsize <= 2
    rows = np.ascontiguousarray(value, "<f2" if half else "<f4")
    tokens, dims = rows.shape
    dtype = "float16" if half else "float32"
    return {"num_tokens": tokens, "token_dims": dims, "dtype": dtype, "values": rows.tobytes()}


def _wrong(message: str, where: str) -> RequestRefused:
    return RequestRefused(message, code="invalid_item", param=where)
