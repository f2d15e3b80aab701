"""Times as callers write them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field

_WRITTEN = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?([Zz]|[+-]\d{2}:?\d{2})")


def _as_written(value: object) -> object:
    """Only what RFC 3339 has, and no number of seconds or milliseconds, which one cannot tell apart."""
    if isinstance(value, datetime) or (isinstance(value, str) and _WRITTEN.fullmatch(value)):
        return value
    raise ValueError("must be a time with its zone, such as 2026-12-01T12:00:00Z")


Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_as_written)]
"""A time with a zone, in the form of RFC 3339."""
