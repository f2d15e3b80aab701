"""Kinds of values that options share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


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

Phrase = Annotated[str, Field(min_length=1, max_length=500)]
"""A label or another short text."""

Instruction = Annotated[str, Field(max_length=10_000)]
"""Free text that a model reads before its input."""


class Options(BaseModel):
    """Base of every verb's options: unknown names are errors, and so are values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
