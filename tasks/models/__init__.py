"""The tables, as SQLAlchemy Core. Migrations create them; `alembic check` holds both together."""

from tasks.models.backfills import backfill_documents, backfills
from tasks.models.base import metadata
from tasks.models.batches import batch_parts, batches, files
from tasks.models.callers import api_keys, secrets, tenants, usage
from tasks.models.jobs import costs, jobs, marks, spent_blobs
from tasks.models.webhooks import deliveries, delivery_attempts, endpoints, job_webhooks

__all__ = [
    "api_keys",
    "backfill_documents",
    "backfills",
    "batch_parts",
    "batches",
    "costs",
    "deliveries",
    "delivery_attempts",
    "endpoints",
    "files",
    "job_webhooks",
    "jobs",
    "marks",
    "metadata",
    "secrets",
    "spent_blobs",
    "tenants",
    "usage",
]
