"""What waits in the queues and which worker has which models: what a pull is chosen by. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from tasks.plan import Plan


@dataclass(frozen=True, slots=True)
class Waiting:
    """The messages of one model in one queue. `unserved_s` is how long none of them was pulled; '' names no model."""

    queue: str
    model: str
    count: int
    unserved_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Place:
    """What a live worker says of itself.

    `models` are those that it has, loads, or holds jobs of, with what a load takes in seconds where that is known;
    `busy_ms` is what it has to do before it can begin with anything that still waits. `declined` are models that it saw
    waiting and cannot have now.
    """

    worker: str
    models: Mapping[str, float | None]
    busy_ms: float = 0.0
    declined: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Survey:
    """What waits, by queue and model, and the places of the other live workers, at one moment."""

    waiting: tuple[Waiting, ...]
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What to pull, and whose bells to ring since something of theirs is left to them."""

    plan: Plan
    ring: tuple[str, ...] = ()


def pack_place(models: Mapping[str, float | None], busy_ms: float, declined: Iterable[str] = ()) -> bytes:
    """A worker's place as it lies in Valkey."""
    refused = sorted(declined)
    packed: bytes = msgpack.packb([dict(models), busy_ms, *([refused] if refused else [])])
    return packed


def read_survey(queues: Sequence[str], waiting: Sequence[Any], places: Sequence[bytes]) -> Survey:
    """What the script SURVEY answered. A place that cannot be read, as of another version, is one without models."""
    rows = zip(waiting[::4], waiting[1::4], waiting[2::4], waiting[3::4], strict=True)
    return Survey(
        tuple(Waiting(queues[number - 1], model.decode(), count, float(age)) for number, model, count, age in rows),
        tuple(_place(name.decode(), data) for name, data in zip(places[::2], places[1::2], strict=True)),
    )


def _place(worker: str, data: bytes) -> Place:
    try:
        models, busy_ms, *more = msgpack.unpackb(data)
        declined = frozenset(map(str, more[0])) if more else frozenset[str]()
        return Place(worker, {str(model): load_s for model, load_s in models.items()}, float(busy_ms), declined)
    except (ValueError, TypeError, AttributeError, msgpack.exceptions.UnpackException):
        return Place(worker, {})
