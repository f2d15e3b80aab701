"""How the lines of an input file are read: what they must be, and their JSON, within bounds."""

from __future__ import annotations

from typing import Any

import orjson

from api import body
from api.errors import InvalidJson
from tasks.batches import Batch
from tasks.lines import Rules
from tasks.settings import Settings


def rules_of(batch: Batch, settings: Settings) -> Rules:
    """What the lines of this batch must be."""
    return Rules(batch.endpoint, settings.max_batch_lines, settings.max_body_bytes, loads)


def loads(data: bytes) -> Any:
    """The JSON of a line. Raises LimitExceeded, or InvalidJson that names the field if one is at fault."""
    try:
        return body.loads(data)
    except orjson.JSONDecodeError as error:
        found = body.diagnose(data, error)
        # The whole of a request is called the body; that of a line is a field of it.
        if found.param != "body":
            raise found from None
        raise InvalidJson(f"it is not valid JSON: {error.msg} at byte {error.pos}.") from None
