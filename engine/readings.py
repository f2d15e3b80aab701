"""Reading an item's payload: what every family that takes texts asks first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.options import EncodeOptions
from engine.errors import ItemRejected


def text_of(payload: Mapping[str, Any]) -> str | ItemRejected:
    """The item's text, or why it has none that a model can read."""
    text = payload.get("text")
    if not isinstance(text, str):
        return ItemRejected("The item has no text.", param="text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return ItemRejected(f"The text has half a surrogate pair at character {error.start}.", param="text")
    return text


def beside_image(options: EncodeOptions) -> ItemRejected | None:
    """Why an image cannot come with these options: what goes before a text, or says which side of a search it is on."""
    for name in ("instruction", "prompt", "is_query"):
        if getattr(options, name):
            message = f"The option {name!r} is for texts and does nothing with an image; leave it out."
            return ItemRejected(message, param=f"options.{name}")
    return None
