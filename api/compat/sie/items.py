"""The peer's items as ours: arrays of its client unpacked, what no model reads left out or refused. Pure.

Items are looked at once here, and only those that hold more than a text; what they hold is checked where all are.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from api.compat.sie.arrays import is_array, vectors
from tasks.errors import InvalidRequest
from tasks.items import ItemRequest

_PLAIN = frozenset({"id", "text"})


class SieItem(ItemRequest):
    """One input. `entities` and `messages` are extras of this service."""

    metadata: Annotated[dict[str, Any] | None, Field(description="Taken, and kept nowhere")] = None


SieInput = SieItem | str
"""An item, or as an extra of this service its text alone."""


def native_items(items: Any) -> Any:
    """The items of a body; what is no list is left for the check of the whole."""
    if not isinstance(items, list):
        return items
    found = items
    for index, item in enumerate(items):
        if type(item) is dict and not item.keys() <= _PLAIN:
            if found is items:
                found = list(items)
            found[index] = native_item(item, f"items[{index}]")
    return found


def native_item(item: Any, where: str) -> Any:
    """One item. Raises InvalidRequest, which names the field."""
    if type(item) is not dict or item.keys() <= _PLAIN:
        return item
    found = {name: value for name, value in item.items() if value is not None}
    if "video" in found:
        raise InvalidRequest(f"'{where}.video' is not taken: no model here reads video.", param=f"{where}.video")
    if not isinstance(found.pop("metadata", {}), dict):
        raise InvalidRequest(f"'{where}.metadata' must be an object.", param=f"{where}.metadata")
    if is_array(multivector := found.get("multivector", ())):
        found["multivector"] = vectors(multivector, f"{where}.multivector")
    return found
