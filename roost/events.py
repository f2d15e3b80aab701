"""Server-sent events: from the pieces of a stream to events, and what an event of a job says. Pure."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roost.errors import UnexpectedReply
from roost.job_info import ENDED, JobInfo


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a job: a state (`queued`, `running`, …), `progress`, or `delta`, more of a text."""

    name: str
    data: Mapping[str, Any]
    id: str = ""

    @property
    def job(self) -> JobInfo | None:
        """The job as it is now; None of a delta."""
        return None if self.name == "delta" else JobInfo.of(self.data)

    @property
    def ended(self) -> bool:
        """Whether it is the last one."""
        return self.name in ENDED

    @property
    def items_done(self) -> int | None:
        """How many items are done, where that is told."""
        return self.data.get("items_done")

    @property
    def item(self) -> int:
        """Of a delta: which item of the job, from 0."""
        return int(self.data["item"])

    @property
    def start(self) -> int:
        """Of a delta: the character at which `text` belongs."""
        return int(self.data["start"])

    @property
    def text(self) -> str:
        """Of a delta: the new characters."""
        return str(self.data["text"])


class EventReader:
    """Puts the pieces of one stream together. Lines may end in any of the three ways and be cut anywhere."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._name, self._id = "", ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that this piece completes. Raises UnexpectedReply for data that is no JSON object."""
        text = self._rest + self._decoder.decode(piece)
        # The second half of a CRLF may be in the next piece.
        held = "\r" if text.endswith("\r") else ""
        *lines, last = text[: len(text) - len(held)].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = last + held
        for line in lines:
            if line:
                self._line(line)
            elif (event := self._take()) is not None:
                yield event

    def _line(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value

    def _take(self) -> Event | None:
        name, id_, data = self._name, self._id, self._data
        self._name, self._id, self._data = "", "", []
        if not data:
            return None
        try:
            told = json.loads("\n".join(data))
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise UnexpectedReply("An event of the stream is no JSON object; is this a Roost server?")
        return Event(name, told, id_)


class Heard:
    """What of a job's events was told already, over reconnects: texts come once, whatever the server repeats."""

    def __init__(self) -> None:
        self.last_id = ""
        self._lengths: dict[int, int] = {}

    def new(self, event: Event) -> Event | None:
        """The event, cut to what is new of it; None if nothing is."""
        if event.name != "delta":
            self.last_id = event.id or self.last_id
            return event
        told = self._lengths.get(event.item, 0)
        more = event.text[max(0, told - event.start) :]
        if not more:
            return None
        start = max(told, event.start)
        self._lengths[event.item] = start + len(more)
        return Event("delta", {**event.data, "start": start, "text": more})
