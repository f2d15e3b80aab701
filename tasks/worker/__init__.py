"""The Celery parent: message loop, acks and events. Never imports torch."""

CHILD_LOST = "engine child lost"
"""Begins the log line of each engine child that ended without being asked; `roost up` looks for it."""

REFUSED = 78
"""The status of a worker that cannot start with its settings on this machine (EX_CONFIG in sysexits.h)."""
