"""From a message to the engine's work. Pure but for the catalog it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from catalog.loader import Choice
from catalog.options import parse_options
from engine.types import Item, Work
from tasks.messages import Submission


class Models(Protocol):
    """Finds models by name; raises a CatalogError for one that it does not know."""

    def find(self, name: str, /) -> Choice:
        """The model and profile of a name."""


def to_work(
    job: Submission, items: Sequence[Mapping[str, Any]], catalog: Models, *, arrived: float, wall: float
) -> Work:
    """The work of a job, without the items that failed at the door.

    `arrived` is now on the engine's clock and `wall` is now in Unix seconds; together they carry the deadline over.
    Raises CatalogError if this worker's catalog does not know the model or its options.
    """
    choice = catalog.find(job.model)
    options = parse_options(choice.spec, job.verb, choice.run, job.options)
    return Work(
        id=str(job.id),
        model=choice.key,
        verb=job.verb,
        items=tuple(
            Item(index=index, payload=item, length=job.lengths[index], cost_ms=job.costs[index])
            for index, item in enumerate(items)
            if index not in job.faults
        ),
        options=options,
        lane=job.lane,
        priority=job.priority,
        arrived=arrived,
        deadline=None if job.deadline is None else arrived + (job.deadline - wall),
        caller=job.caller,
        alone=job.attempt > 1,
    )
