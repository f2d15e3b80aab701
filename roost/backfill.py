"""A backfill: any number of inputs worked through in parts, each a job of the bulk lane. Pure; drivers carry it out.

Each part has an idempotency key of the run's name and the part's number, so a run that was stopped goes on when it is
started again: what was done is answered from what the server keeps. Memory is bounded: inputs are taken as there is
room for them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

from roost import asking, inputs
from roost.asking import POLL_S, Asked
from roost.errors import Conflict, JobFailed, RequestRefused, RoostError, TooLarge
from roost.flows import begin, change, finish
from roost.results import Item
from roost.steps import Patience, Steps

_ITEM = re.compile(r"items\[(\d+)\]")
_RUN = re.compile(r"[!-~]{1,100}")


@dataclass(frozen=True, slots=True)
class Part:
    """Some neighbours of the input: `first` is the place of the first of them."""

    number: int
    first: int
    items: list[Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a backfill has come. `total` is None where the input does not tell its length."""

    done: int
    failed: int
    total: int | None
    seconds: float

    @property
    def per_second(self) -> float:
        """Items a second since the start."""
        return self.done / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Backfill:
    """What to do with all inputs, and how many at a time."""

    verb: str
    model: str
    fields: Mapping[str, Any]
    run: str
    batch: int
    in_flight: int
    ordered: bool
    start: int
    patience: Patience

    def parts(self, items: Iterable[Any]) -> Iterator[Part]:
        """The parts of an input that is read as it is needed; those before `start` are passed over."""
        cutter = self.cutter()
        for item in items:
            if (part := cutter.add(item)) is not None:
                yield part
        if (part := cutter.rest()) is not None:
            yield part

    def cutter(self) -> Cutter:
        """What cuts the input, item by item."""
        return Cutter(self.batch, self.start)

    def steps(self, part: Part, now: float) -> Steps[list[Item]]:
        """What came of each input of a part that was not before `start`, failures among them.

        Raises RoostError for what would meet every part alike: a wrong option, another run of this name, no server.
        """
        numbered = list(enumerate(part.items, part.first))
        try:
            items = yield from self._work(numbered, f"{self.run}/{part.number}", now)
        except Conflict as error:
            raise error if error.code != "idempotency_conflict" else self._another(error) from None
        return [item for item in items if item.index >= self.start]

    def _another(self, error: Conflict) -> Conflict:
        said = f"Run {self.run!r} was begun with other inputs, batch or options; choose another run name."
        return Conflict(said, code=error.code, param="run", status=error.status, job_id=error.job_id)

    def _work(self, numbered: list[tuple[int, Any]], key: str, now: float) -> Steps[list[Item]]:
        """Halves what is too large; an input that the server does not take fails alone."""
        read, failed = _read(numbered)
        if not read:
            return failed
        job = Asked(self.verb, self.model, [item for _, item in read], self.fields, _without(key, numbered, read))
        try:
            return _merged(failed, (yield from self._job(job, [place for place, _ in read], now)))
        except RequestRefused as error:
            bad, why = _place(error), error
        if bad is None and not isinstance(why, TooLarge):
            raise why
        if bad is None and len(read) > 1:
            half = len(read) // 2
            first = yield from self._work(read[:half], f"{key}a", now)
            return _merged(failed, first, (yield from self._work(read[half:], f"{key}b", now)))
        bad = bad or 0
        left = [pair for n, pair in enumerate(read) if n != bad]
        more = (yield from self._work(left, f"{key}-{read[bad][0]}", now)) if left else []
        return _merged(failed, [_failure(read[bad][0], why)], more)

    def _job(self, job: Asked, places: list[int], now: float) -> Steps[list[Item]]:
        """One job to its end. One of an earlier run that may do better now is tried again, once."""
        begun = yield from begin(job, self.patience, POLL_S)
        failure = begun.failure
        try:
            if failure is not None and begun.replayed and (failure.retryable or failure.state == "cancelled"):
                yield from change(begun.job.id, "retry", self.patience)
                found = (yield from finish(begun.job.id, self.patience, now, None)).items
            elif failure is not None:
                raise failure
            elif begun.result is not None:
                found = begun.result.items
            else:
                found = (yield from finish(begun.job.id, self.patience, now, None, begun.job)).items
        except JobFailed as error:
            told = error.items if len(error.items) == len(places) else []
            if not told:
                return [_failure(place, error) for place in places]
            found = told
        return [_placed(item, place) for item, place in zip(found, places, strict=True)]


class Cutter:
    """Cuts an input into parts. Parts that end before `start` are dropped; numbers and places stay what they are."""

    def __init__(self, batch: int, start: int) -> None:
        self._batch = batch
        self._start = start
        self._number = 0
        self._items: list[Any] = []

    def add(self, item: Any) -> Part | None:
        """The part that this item completes."""
        self._items.append(item)
        return self._cut() if len(self._items) == self._batch else None

    def rest(self) -> Part | None:
        """The last part, which may be a short one."""
        return self._cut() if self._items else None

    def _cut(self) -> Part | None:
        part = Part(self._number, self._number * self._batch, self._items)
        self._number, self._items = self._number + 1, []
        return part if part.first + len(part.items) > self._start else None


@dataclass(slots=True)
class Order:
    """Gives the items of ended parts in the order of the input, or at once; at most `in_flight` parts wait here."""

    plan: Backfill
    total: int | None
    tell: Callable[[Progress], object] | None
    done: int = 0
    failed: int = 0
    _next: int = 0
    _held: dict[int, list[Item]] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, plan: Backfill, items: object, tell: Callable[[Progress], object] | None) -> Order:
        """For a backfill that begins now."""
        total = max(0, len(items) - plan.start) if isinstance(items, Sized) else None
        return cls(plan, total, tell, _next=plan.start // plan.batch)

    def may_start(self, running: int) -> bool:
        """Whether there is room for one more part."""
        return running < self.plan.in_flight and running + len(self._held) < 2 * self.plan.in_flight

    def took(self, number: int, items: list[Item]) -> list[Item]:
        """What can be given now that this part has ended."""
        self.done += len(items)
        self.failed += sum(not item.ok for item in items)
        if self.tell is not None:
            self.tell(Progress(self.done, self.failed, self.total, time.monotonic() - self._began))
        if not self.plan.ordered:
            return items
        self._held[number] = items
        ready: list[Item] = []
        while self._next in self._held:
            ready += self._held.pop(self._next)
            self._next += 1
        return ready


def plan_of(
    verb: str,
    model: str,
    given: Mapping[str, Any],
    run: str | None,
    batch: int,
    in_flight: int,
    ordered: bool,
    start: int,
    patience: Patience,
) -> Backfill:
    """A backfill from the arguments of a call. Raises RequestRefused."""
    if run is not None and not _RUN.fullmatch(run):
        raise _wrong("A run's name is 1 to 100 printable ASCII characters without spaces.", "run")
    for name, value, least in (("batch", batch, 1), ("in_flight", in_flight, 1), ("start", start, 0)):
        if value < least:
            raise _wrong(f"{name} is at least {least}.", name)
    tags = [*(given.get("tags") or ()), *([f"run:{run}"] if run else ())]
    fields = asking.job_fields({"lane": "bulk", **given, "tags": tags})
    return Backfill(verb, model, fields, run or asking.new_key(), batch, in_flight, ordered, start, patience)


def _read(numbered: list[tuple[int, Any]]) -> tuple[list[tuple[int, Any]], list[Item]]:
    """The inputs in the server's form, and those that cannot be read, as failures."""
    read: list[tuple[int, Any]] = []
    failed: list[Item] = []
    for place, item in numbered:
        try:
            read.append((place, inputs.item_of(item, f"items[{place}]")))
        except RequestRefused as error:
            failed.append(_failure(place, error))
        except OSError as error:
            why = RoostError(f"{error.filename}: {error.strerror}", code="unreadable_file")
            failed.append(_failure(place, why))
    return read, failed


def _without(key: str, numbered: list[tuple[int, Any]], read: list[tuple[int, Any]]) -> str:
    """The key of a part without those that could not be read: another body needs another key."""
    missing = sorted({place for place, _ in numbered} - {place for place, _ in read})
    return asking.short_key("-".join([key, *map(str, missing)]))


def _place(error: RoostError) -> int | None:
    """The item that an error names, by its place in the request."""
    found = _ITEM.match(error.param or "")
    return None if found is None else int(found[1])


def _failure(place: int, error: RoostError) -> Item:
    told = {"code": error.code, "message": error.message, "retryable": error.retryable, "param": error.param}
    return _placed(Item(place, {"error": told}), place)


def _placed(item: Item, place: int) -> Item:
    """An item of a part as one of the whole input; its error names it by that place, too."""
    fields = item.fields
    if (error := fields.get("error")) is not None and error.get("param"):
        here = {name: _ITEM.sub(f"items[{place}]", error[name], count=1) for name in ("param", "message")}
        fields = {**fields, "error": {**error, **here}}
    return Item(place, fields)


def _merged(*some: list[Item]) -> list[Item]:
    return sorted((item for items in some for item in items), key=lambda item: item.index)


def _wrong(message: str, param: str) -> RequestRefused:
    return RequestRefused(message, code="invalid_request", param=param)
