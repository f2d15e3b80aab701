"""Who is told when jobs end, and what was tried to tell them."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from tasks.models.base import metadata, moment

endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", UUID(as_uuid=True), primary_key=True, comment="UUIDv7: sorts by time of creation"),
    Column("caller", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=text("''")),
    Column("events", ARRAY(Text), nullable=False, comment="types such as job.failed, or job.*"),
    Column("inline", Boolean, nullable=False, server_default=text("false"), comment="small results go along"),
    Column("secret", LargeBinary, nullable=False),
    Column("old_secret", LargeBinary, comment="signs too, until old_secret_until"),
    Column("old_secret_until", moment),
    Column("created_at", moment, nullable=False),
    Column("failing_since", moment, comment="the first failure of those without a success since"),
    Column("disabled_at", moment),
    Column("disabled_why", Text),
    Column("deleted_at", moment, comment="gone for its owner; its deliveries go in sets"),
    Index("ix_webhook_endpoints_caller_id", "caller", "id"),
)

job_webhooks = Table(
    "job_webhooks",
    metadata,
    Column(
        "job",
        UUID(as_uuid=True),
        ForeignKey("jobs.id", ondelete="CASCADE", name="fk_job_webhooks_job_jobs"),
        primary_key=True,
    ),
    Column("url", Text, nullable=False),
    Column("secret", LargeBinary, comment="null: the caller's own signs"),
    Column("inline", Boolean, nullable=False, server_default=text("false")),
    comment="jobs that name who is to be told of their end",
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", UUID(as_uuid=True), primary_key=True, comment="UUIDv7; webhook-id, the same in all attempts"),
    Column("caller", Text, nullable=False),
    Column(
        "endpoint",
        UUID(as_uuid=True),
        ForeignKey("webhook_endpoints.id", ondelete="CASCADE", name="fk_deliveries_endpoint_webhook_endpoints"),
        comment="null: a job named its own",
    ),
    Column(
        "target",
        Text,
        nullable=False,
        comment="what is slow or dead together: the endpoint, or the host of a job's url",
    ),
    Column("url", Text, comment="null: the endpoint's"),
    Column("secret", LargeBinary, comment="null: the endpoint's, or the caller's own"),
    Column("inline", Boolean, nullable=False, server_default=text("false")),
    Column("type", Text, nullable=False, comment="job.succeeded and so on"),
    Column("object", UUID(as_uuid=True), nullable=False, comment="of the job, batch or backfill"),
    Column("data", JSONB, nullable=False, comment="of the payload"),
    Column("created_at", moment, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'pending'")),
    Column("attempts", Integer, nullable=False, server_default=text("0"), comment="of all series"),
    Column("tries", Integer, nullable=False, server_default=text("0"), comment="attempts of this series"),
    Column("next_at", moment, comment="of the next attempt; while one is made, when it is taken for lost"),
    Column("ended_at", moment),
    CheckConstraint("state IN ('pending','delivered','failed','dropped')", name="state_known"),
    Index("ix_deliveries_due", "target", "next_at", postgresql_where=text("state = 'pending'")),
    Index("ix_deliveries_caller_id", "caller", "id"),
    Index("ix_deliveries_endpoint_id", "endpoint", "id"),
    Index("ix_deliveries_ended_at", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
    Index("ix_deliveries_object", "object"),
    Index("ix_deliveries_unsent", "caller", "id", postgresql_where=text("state IN ('failed','dropped')")),
    comment="one event to one receiver",
    postgresql_with={"autovacuum_vacuum_scale_factor": "0.02", "autovacuum_vacuum_threshold": "2000"},
)

delivery_attempts = Table(
    "delivery_attempts",
    metadata,
    Column(
        "delivery",
        UUID(as_uuid=True),
        ForeignKey("deliveries.id", ondelete="CASCADE", name="fk_delivery_attempts_delivery_deliveries"),
        primary_key=True,
    ),
    Column("number", Integer, primary_key=True),
    Column("at", moment, nullable=False),
    Column("duration_ms", Integer, nullable=False),
    Column("status", Integer, comment="of the reply, if there was one"),
    Column("error", Text, comment="why it counts as a failure; never the receiver's own words"),
)
