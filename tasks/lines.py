"""The lines of a batch's input file: taken apart without holding the file, checked, and put into parts. Pure.

A file is read once, and once more only to find the lines of equal `custom_id`s, of which numbers alone are kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from catalog.errors import suggestion
from tasks.batches import Part
from tasks.errors import LimitExceeded, TaskError
from tasks.items import plain

PART_LINES = 128
PART_BYTES = 4 * 2**20
"""A part has at most so many lines, and bytes unless it is one line."""

MOST_FAULTS = 100
"""So many faults of a file are told; what comes after them is not looked for."""

LONGEST_ID = 512
_FIELDS = ("custom_id", "method", "url", "body")
_NEWLINE = b"\n"
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line as it is in the file, from the byte `start` to before `end`. No data: it is longer than a line may be."""

    number: int
    start: int
    end: int
    data: bytes | None

    @property
    def size(self) -> int:
        """Its bytes, with the line break."""
        return self.end - self.start

    @property
    def blank(self) -> bool:
        """Whether there is nothing in it, but perhaps the mark of byte order that a file may begin with."""
        return self.data is not None and not self.text.strip()

    @property
    def text(self) -> bytes:
        """What is in it, without the mark of byte order that a file may begin with."""
        data = self.data or b""
        return data.removeprefix(_MARK) if self.number == 1 else data


@dataclass(frozen=True, slots=True)
class Line:
    """A request of a batch."""

    number: int
    custom_id: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a line, or with the file when there is no number."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None

    def as_data(self) -> dict[str, Any]:
        """The entry of a batch's `errors`."""
        return {"code": self.code, "line": self.line, "message": self.message, "param": self.param}


class BadLine(Exception):
    """A line that is no request; says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Rules:
    """What an input file must be. `loads` decodes a line, or raises a TaskError that goes on after its number."""

    endpoint: str
    most_lines: int
    longest_line: int
    loads: Callable[[bytes], Any]


@dataclass(slots=True)
class Checked:
    """What a file was found to be: its parts, and the model if all lines name one; or what is wrong with it."""

    parts: list[Part] = field(default_factory=list)
    model: str | None = None
    faults: list[Fault] = field(default_factory=list)


def split(chunks: Iterable[bytes], longest: int, *, number: int = 1, start: int = 0) -> Iterator[RawLine]:
    """The lines of a file that comes piece by piece; `number` and `start` are those of its first line."""
    rest, too_long = b"", False
    for chunk in chunks:
        whole, newline, tail = (rest + chunk).rpartition(_NEWLINE)
        if newline:
            for data in whole.split(_NEWLINE):
                yield (line := _raw(number, start, data, longest, cut=too_long))
                number, start, too_long = number + 1, line.end, False
        rest = tail
        if len(rest) > longest:
            # No more of it is kept than its length.
            start, rest, too_long = start + len(rest), b"", True
    if rest or too_long:
        yield _raw(number, start, rest, longest, cut=too_long, newline=0)


def _raw(number: int, start: int, data: bytes, longest: int, *, cut: bool, newline: int = 1) -> RawLine:
    kept = None if cut or len(data) > longest else data
    return RawLine(number, start, start + len(data) + newline, kept)


def read_line(raw: RawLine, rules: Rules) -> Line:
    """The request of a line. Raises BadLine."""
    number = raw.number

    def bad(code: str, message: str, param: str | None = None) -> BadLine:
        return BadLine(Fault(code, f"Line {number}: {message}", number, param))

    if raw.data is None:
        raise bad("line_too_long", f"it is longer than {rules.longest_line} bytes, the limit ROOST_MAX_BODY_BYTES.")
    try:
        found = rules.loads(raw.text)
    except LimitExceeded as error:
        raise bad(error.code, error.message, error.param) from None
    except TaskError as error:
        raise bad("invalid_json_line", error.message, error.param) from None
    if not isinstance(found, dict):
        raise bad("invalid_json_line", "it must be a JSON object.")
    for name in found:
        if name not in _FIELDS:
            raise bad("unknown_field", f"unknown field {name[:100]!r}{suggestion(name, _FIELDS)}", name[:100])
    for name in _FIELDS:
        if name not in found:
            raise bad("missing_required_parameter", f"{name!r} is missing.", name)
    custom_id = found["custom_id"]
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= LONGEST_ID:
        raise bad("invalid_custom_id", f"'custom_id' must be a text of 1 to {LONGEST_ID} characters.", "custom_id")
    try:
        plain(custom_id)
    except ValueError as error:
        raise bad("invalid_custom_id", f"'custom_id' {error}.", "custom_id") from None
    if found["method"] != "POST":
        raise bad("invalid_method", "'method' must be 'POST'.", "method")
    if found["url"] != rules.endpoint:
        raise bad("mismatched_url", f"'url' must be {rules.endpoint!r}, the endpoint of the batch.", "url")
    if not isinstance(found["body"], dict):
        raise bad("invalid_body", "'body' must be an object.", "body")
    return Line(number, custom_id, found["body"])


def check(read: Callable[[], Iterable[bytes]], rules: Rules) -> Checked:
    """Look at all lines of a file; `read` begins to read it anew."""
    checked, parts, digests = Checked(), _Parts(), array("Q")
    models: set[str | None] = set()
    for raw in split(read(), rules.longest_line):
        if raw.blank:
            parts.skip(raw)
            continue
        if len(digests) >= rules.most_lines:
            limit = f"ROOST_MAX_BATCH_LINES, the most that this server takes ({rules.most_lines})"
            checked.faults.append(Fault("too_many_lines", f"The file has more lines than {limit}; send several files."))
            return checked
        parts.add(raw)
        try:
            line = read_line(raw, rules)
        except BadLine as error:
            checked.faults.append(error.fault)
            if len(checked.faults) >= MOST_FAULTS:
                return checked
            continue
        digests.append(_digest(line.custom_id))
        if len(models) < 2:
            models.add(model if isinstance(model := line.body.get("model"), str) else None)
    if not digests and not checked.faults:
        checked.faults.append(Fault("empty_file", "The file has no lines."))
    checked.faults += _repeats(read, rules, digests, MOST_FAULTS - len(checked.faults))
    checked.parts = parts.closed()
    checked.model = models.pop() if len(models) == 1 else None
    return checked


def _digest(custom_id: str) -> int:
    return int.from_bytes(blake2b(custom_id.encode(), digest_size=8).digest())


def _repeats(read: Callable[[], Iterable[bytes]], rules: Rules, digests: array[int], most: int) -> list[Fault]:
    """Lines whose `custom_id` an earlier line has. Equal digests are looked up in the file, for they may deceive."""
    if len(digests) < 2 or most <= 0:
        return []
    found = np.sort(np.frombuffer(digests, np.uint64))
    suspects = set(found[1:][found[1:] == found[:-1]].tolist())
    if not suspects:
        return []
    # By a longer digest, not by the text: a million long ids would be gigabytes.
    first: dict[bytes, int] = {}
    faults: list[Fault] = []
    for raw in split(read(), rules.longest_line):
        if raw.blank:
            continue
        try:
            custom_id = read_line(raw, rules).custom_id
        except BadLine:
            continue
        if _digest(custom_id) not in suspects:
            continue
        name = blake2b(custom_id.encode(), digest_size=16).digest()
        if (earlier := first.setdefault(name, raw.number)) != raw.number:
            said = (
                f"Line {raw.number}: 'custom_id' {custom_id[:64]!r} is that of line {earlier}, too; each needs its own."
            )
            faults.append(Fault("duplicate_custom_id", said, raw.number, "custom_id"))
            if len(faults) >= most:
                break
    return faults


class _Parts:
    """Puts lines that follow one another into parts."""

    def __init__(self) -> None:
        self._done: list[Part] = []
        self._first: RawLine | None = None
        self._end = self._lines = 0

    def skip(self, raw: RawLine) -> None:
        """A blank line belongs to the part that it is in."""
        if self._first is not None:
            self._end = raw.end

    def add(self, raw: RawLine) -> None:
        """The next line."""
        full = self._first is not None and (self._lines >= PART_LINES or raw.end - self._first.start > PART_BYTES)
        if full:
            self._close()
        self._first = self._first or raw
        self._end, self._lines = raw.end, self._lines + 1

    def closed(self) -> list[Part]:
        """All parts."""
        self._close()
        return self._done

    def _close(self) -> None:
        if self._first is not None:
            first, size = self._first, self._end - self._first.start
            self._done.append(Part(len(self._done), first.number, self._lines, first.start, size))
        self._first, self._lines = None, 0
