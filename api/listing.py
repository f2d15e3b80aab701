"""Pages of lists whose next one begins after an id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from tasks.errors import InvalidRequest
from tasks.files import parsed_id

T = TypeVar("T")


def after(prefix: str, text: str | None) -> UUID | None:
    """The id after which a page begins; None for the first page. Raises InvalidRequest."""
    found = None if text is None else parsed_id(prefix, text)
    if text is not None and found is None:
        raise InvalidRequest(f"'after' must be an id that begins with {prefix!r}.", param="after")
    return found


def page(found: Sequence[T], limit: int, shown: Callable[[T], Mapping[str, Any]]) -> dict[str, Any]:
    """The page of what was found, which is one more than fits if there is a next page."""
    data = [shown(one) for one in found[:limit]]
    last = data[-1]["id"] if data else None
    return {"object": "list", "data": data, "last_id": last, "has_more": len(found) > limit}
