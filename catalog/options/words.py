"""Kinds of values that options share."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

MAX_DEPTH = 120
"""How deep a value of free form may be nested: what every reader and writer on the way can take."""

MAX_SIZE = 2**20
"""How large such a value may be, in bytes of JSON or a little less."""


def _word(value: object) -> object:
    """An enum prints what it does not know, however long or deep that is; so what is no string ends here."""
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    return value


def _number(value: object) -> object:
    """JSON has one kind of number, so 1 is as good as 1.0 where a fraction is expected; true is neither."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


Word = BeforeValidator(_word)
"""Put it on a field of an enum that callers send."""

Share = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1, allow_inf_nan=False)]
"""A probability or a threshold."""

Fraction = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
"""Any finite number; bounds come with the field."""


def _said(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


Phrase = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_said)]
"""A label or another short text; never blank."""

Instruction = Annotated[str, Field(max_length=10_000)]
"""Free text that a model reads before its input."""


def at_most(most: int) -> BeforeValidator:
    """For a map: it is counted before any of it is looked at, where a million wrong values would be as many errors."""

    def counted(value: object) -> object:
        if isinstance(value, dict) and len(value) > most:
            raise ValueError(f"must have at most {most} entries")
        return value

    return BeforeValidator(counted)


def _tree(value: object) -> object:
    """Level by level, and no further than the bounds: what is beyond them may be large enough to hold others up."""
    level, left = [value], MAX_SIZE
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for one in level:
            left -= _size(one)
            if left < 0:
                raise ValueError(f"must take at most {MAX_SIZE} bytes")
            if isinstance(one, dict):
                left -= sum(_size(name, key=True) for name in one)
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
        if not below:
            return value
        level = below
    raise ValueError(f"must be nested at most {MAX_DEPTH} levels deep")


def _size(value: object, *, key: bool = False) -> int:
    """Bytes of JSON, of what is in it not counted. Raises ValueError for what JSON has no form for."""
    if isinstance(value, str):
        return len(value) + 3
    if key:
        raise ValueError("must have names that are texts")
    if isinstance(value, dict | list):
        return 2 + len(value)
    if value is None or isinstance(value, bool | int):
        return 2
    if isinstance(value, float) and math.isfinite(value):
        return 4
    raise ValueError("must hold nothing but texts, finite numbers, true, false, null, lists and objects")


Tree = Annotated[dict[str, Any], AfterValidator(_tree)]
"""An object of free form, bounded in depth and size; what msgpack can hold and JSON cannot is refused."""


class Options(BaseModel):
    """Base of every verb's options: unknown names are errors, and so are values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
