"""What the server says of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from roost.errors import UnexpectedReply

ENDED = frozenset({"succeeded", "failed", "cancelled", "expired"})


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as it was when the server told of it. `fields` is the whole of what was told: see docs/api.md."""

    id: str
    status: str
    verb: str
    model: str
    items: int
    items_failed: int
    fields: Mapping[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> JobInfo:
        """Raises UnexpectedReply for what is no job."""
        try:
            known = {name: body[name] for name in ("id", "status", "verb", "model", "items", "items_failed")}
        except KeyError as missing:
            raise UnexpectedReply(f"The server told of a job without {missing}; is it of another version?") from None
        return cls(**known, fields=body)

    @property
    def ended(self) -> bool:
        """Whether it has come to its end, well or badly."""
        return self.status in ENDED

    @property
    def error(self) -> Mapping[str, Any] | None:
        """Why it did not succeed: `code`, `message`, `retryable`, `param`."""
        return self.fields.get("error")

    @property
    def tags(self) -> list[str]:
        """The words it was given."""
        return list(self.fields.get("tags") or ())

    @property
    def timings(self) -> Mapping[str, float] | None:
        """Where its milliseconds went."""
        return self.fields.get("timings")

    @property
    def usage(self) -> Mapping[str, int] | None:
        """What it read and made."""
        return self.fields.get("usage")

    def moment(self, name: str) -> datetime | None:
        """One of its times: created_at, started_at, finished_at, deadline_at, expires_at. UTC."""
        value = self.fields.get(name)
        return None if value is None else datetime.fromisoformat(value)
