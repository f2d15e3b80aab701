"""Names in Valkey besides Celery's own queues. Nothing here is the truth: Postgres is."""

from __future__ import annotations

HELD = "roost:held"
"""Set of job ids whose message is in a queue or in a worker's hands. Written with the publish, cleared with the ack."""

CANCELLED = "roost:cancelled"
"""Sorted set of cancelled job ids by the Unix time after which they are forgotten; a pull drops their messages."""

CHANGES = "roost:changes"
"""Channel of the changes of all jobs, one message per batch (see `tasks.notices`)."""

WORKERS = "roost:workers"
"""Hash of worker name → msgpack heartbeat (see `tasks.child.heartbeat`), each with its own time inside."""


def bell(queue: str) -> str:
    """The doorbell list of a queue: consumers block on it, and publishers push a token."""
    return f"roost:bell:{queue}"


def reply(instance: str) -> str:
    """Channel of one API process: results of the jobs that its callers wait for, one message per batch."""
    return f"roost:reply:{instance}"
