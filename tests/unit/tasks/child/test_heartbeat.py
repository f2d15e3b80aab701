"""What a beat says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgpack

from tasks.child.heartbeat import describe


class Phase(StrEnum):
    RESIDENT = "resident"


@dataclass(frozen=True)
class Model:
    key: str
    state: Phase
    bytes: int


@dataclass(frozen=True)
class Snapshot:
    models: tuple[Model, ...]
    waiting: int


def test_a_beat_is_plain_and_survives_the_wire() -> None:
    body = describe(Snapshot((Model("m", Phase.RESIDENT, 9),), 3), name="cpu@here", held=4, now=1_000.0)
    back = msgpack.unpackb(msgpack.packb(body))
    assert back["name"] == "cpu@here"
    assert back["at"] == 1_000.0
    assert back["models"] == [{"key": "m", "state": "resident", "bytes": 9}]
    assert (back["waiting"], back["held"]) == (3, 4)
