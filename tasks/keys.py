"""Names in Valkey besides Celery's own queues. Nothing here is the truth: Postgres is."""

from __future__ import annotations

HELD = "roost:held"
"""Set of job ids whose message is in a queue or in a worker's hands. Written with the publish, cleared with the ack."""

CANCELLED = "roost:cancelled"
"""Sorted set of cancelled job ids by the Unix time after which they are forgotten; a pull drops their messages."""

CHANGES = "roost:changes"
"""Channel of the changes of all jobs, one message per batch (see `tasks.notices`)."""

PIECES = "roost:pieces"
"""Channel of texts that are being generated, of jobs that ask for it (see `tasks.notices`)."""

WORKERS = "roost:workers"
"""Hash of worker name → msgpack heartbeat (see `tasks.child.heartbeat`), each with its own time inside."""

PLACES = "roost:places"
"""Hash of worker name → until when this holds, a space, and which models it has (`tasks.survey.pack_place`)."""


def bell(queue: str) -> str:
    """The doorbell list of a queue: consumers block on it, and publishers push a token."""
    return f"roost:bell:{queue}"


def own_bell(worker: str) -> str:
    """The bell of one worker: another rings it that leaves it a message of a model which it has."""
    return bell(f"@{worker}")


DEFAULT_TENANT = "default"
"""The tenant whose messages name none. They lie as all did in versions that knew of no tenants."""


def tenant_of(caller: str) -> str:
    """The tenant under which a caller's messages lie: '' for the default one."""
    return "" if caller == DEFAULT_TENANT else caller


def messages(queue: str, model: str, tenant: str = "") -> str:
    """The list of a model's messages of one tenant in a queue. Under no model and no tenant, the queue's plain list."""
    place = _place(queue, tenant)
    return f"{place}:{model}" if model else place


def models(queue: str, tenant: str = "") -> str:
    """Sorted set of the models of which a tenant has messages in a queue, by when each last had a turn."""
    return f"roost:models:{_place(queue, tenant)}"


def tenants(queue: str) -> str:
    """Sorted set of the tenants with messages in a queue, by when each last had a turn or began to wait.

    The default one is under '' here, and only while there are others.
    """
    return f"roost:tenants:{queue}"


def _place(queue: str, tenant: str) -> str:
    return f"{queue}@{tenant}" if tenant else queue


def tally(queue: str) -> str:
    """A list with one token for each message that lies in a list of this queue besides the plain one.

    Its name is that of kombu's list for priority 3, so whoever adds up a queue's lengths as kombu does, Flower above
    all, counts our messages without knowing of tenants and models.
    """
    return f"{queue}\x06\x163"


def reply(instance: str) -> str:
    """Channel of one API process: results of the jobs that its callers wait for, one message per batch."""
    return f"roost:reply:{instance}"


def feeder(name: str) -> str:
    """The Unix time at which the feeder of this host was last well; gone soon after it dies."""
    return f"roost:feeder:{name}"


DELIVERIES = "roost:deliveries"
"""Channel that tells senders of webhooks that something is due."""

ATTEMPTS = "roost:attempts"
"""Hash of what came of attempts to deliver webhooks → how many, over all senders."""


def sender(name: str) -> str:
    """The Unix time at which the sender of webhooks of this host was last well; gone soon after it dies."""
    return f"roost:sender:{name}"


def rate(caller: str) -> str:
    """How many jobs a tenant may submit now (see `tasks.admission`)."""
    return f"roost:rate:{caller}"


OPEN_JOBS = "roost:open:"
"""Begins the names of `open_jobs`."""


def open_jobs(caller: str) -> str:
    """Sorted set of the ids of a tenant's open jobs by when each was taken in, while it may have so many."""
    return f"{OPEN_JOBS}{caller}"


POOLS = "roost:pools"
"""Sorted set of the names of pools by the Unix second that their lease ends (see `api.compat.sie.pool_store`)."""


def pool(name: str) -> str:
    """What a pool was asked for and when it was renewed; gone by itself when its lease ends."""
    return f"roost:pool:{name}"
