"""The tables, as SQLAlchemy Core. Migrations create them; `alembic check` holds both together."""

from tasks.models.base import metadata
from tasks.models.batches import batch_parts, batches, files
from tasks.models.callers import api_keys, secrets, tenants, usage
from tasks.models.jobs import costs, jobs, marks

__all__ = [
    "api_keys",
    "batch_parts",
    "batches",
    "costs",
    "files",
    "jobs",
    "marks",
    "metadata",
    "secrets",
    "tenants",
    "usage",
]
