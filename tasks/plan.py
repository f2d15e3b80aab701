"""What one pull may take, from which queues: worked out by a worker, carried out by `tasks.pull_script`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

PULL_MOST = 256
"""Messages in one pull, so that no script holds the server for long."""


@dataclass(frozen=True, slots=True)
class Source:
    """A queue to pull from. `typical_ms` is what one of its messages counts; with 0 only the number of jobs does.

    `models` are those whose messages may be taken, in their order, with '' for the messages that name none; without
    it all may.
    """

    queue: str
    typical_ms: float = 0.0
    record: bool = True
    models: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Queues that share a room. What earlier sections of the same pull take is taken from this one's room too.

    While there is any room, each source may give at least one message. `least` messages are taken even without room.
    One with its `own` room neither loses to the others nor takes from them.
    """

    sources: tuple[Source, ...]
    room_ms: float
    jobs: int
    least: int = 0
    own: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pull may take, `most` messages in all. A single message counts at most `cap_ms` against the room."""

    sections: tuple[Section, ...]
    cap_ms: float
    most: int = PULL_MOST

    @property
    def sources(self) -> list[Source]:
        """All queues of the pull, in its order."""
        return [source for section in self.sections for source in section.sources]
