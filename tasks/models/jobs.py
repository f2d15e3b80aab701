"""Jobs, the blobs they leave, what the sweeper remembers, what models cost."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from tasks.models.base import metadata, moment

jobs = Table(
    "jobs",
    metadata,
    Column("id", UUID(as_uuid=True), primary_key=True, comment="UUIDv7: sorts by time of acceptance"),
    Column("caller", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("model", Text, nullable=False, comment="catalog id, with :profile if one was asked for"),
    Column("revision", Text),
    Column("lane", Text, nullable=False),
    Column("bucket", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("items", Integer, nullable=False),
    Column("items_failed", Integer, nullable=False, server_default=text("0")),
    Column("cost_ms", Double, nullable=False),
    Column("device_ms", Double),
    Column("attempt", SmallInteger, nullable=False, server_default=text("1")),
    Column("fence", Integer, nullable=False, server_default=text("1")),
    Column(
        "first_fence",
        Integer,
        nullable=False,
        server_default=text("1"),
        comment="the fence that this series of attempts began with: deliveries are counted from here",
    ),
    Column(
        "version",
        Integer,
        nullable=False,
        server_default=text("1"),
        comment="counts changes of state; the SSE event id",
    ),
    Column("created_at", moment, nullable=False),
    Column("queued_at", moment, nullable=False, comment="start of this series of attempts: acceptance, or a retry"),
    Column("run_at", moment, comment="when the sweeper looks next whether the job has a message; null: never looked"),
    Column("started_at", moment),
    Column("finished_at", moment),
    Column("deadline_at", moment),
    Column("expires_at", moment, comment="end of retention, once finished"),
    Column(
        "lease_until",
        moment,
        comment="end of a running job's lease; kept on a queued job that was lost while it ran",
    ),
    Column("worker", Text),
    Column("retention_s", Integer, nullable=False),
    Column("tags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("options", JSONB, nullable=False),
    Column("error", JSONB),
    Column("timings", JSONB),
    Column("usage", JSONB),
    Column("idempotency_key", Text),
    Column("body_hash", LargeBinary),
    Column("door", LargeBinary, nullable=False, comment="msgpack of lengths, costs and faults found at the door"),
    Column("inputs", LargeBinary),
    Column("result", LargeBinary),
    Column(
        "keep",
        Boolean,
        nullable=False,
        server_default=text("true"),
        comment="false: inputs go when the job ends, and the result once it was answered",
    ),
    Column("inputs_blob", Text, comment="the key of inputs too large for a row"),
    Column("result_blob", Text, comment="the key of a result too large for a row"),
    CheckConstraint("state IN ('queued','running','succeeded','failed','cancelled','expired')", name="state_known"),
    # No index holds lease_until: running jobs are few, and a renewal that touches no index is cheap.
    # The next one's predicate says all that the sweeper asks, so that no plan prefers the primary key and reads a
    # million ended jobs on its way to the queued ones.
    Index("ix_jobs_unseen", "id", postgresql_where=text("state = 'queued' AND run_at IS NULL")),
    Index("ix_jobs_open", "state", "lane", postgresql_where=text("state IN ('queued','running')")),
    Index("ix_jobs_run_at", "run_at", postgresql_where=text("state = 'queued' AND run_at IS NOT NULL")),
    Index(
        "ix_jobs_deadline_at",
        "deadline_at",
        postgresql_where=text("state IN ('queued','running') AND deadline_at IS NOT NULL"),
    ),
    Index("ix_jobs_not_succeeded", "caller", "state", "id", postgresql_where=text("state <> 'succeeded'")),
    # No job touches these before it fails.
    Index("ix_jobs_dead", "caller", text("(error ->> 'code')"), "id", postgresql_where=text("state = 'failed'")),
    Index("ix_jobs_dead_model", "caller", "model", "id", postgresql_where=text("state = 'failed'")),
    Index("ix_jobs_caller_id", "caller", "id"),
    Index("ix_jobs_caller_model_id", "caller", "model", "id"),
    Index("ix_jobs_tags", "tags", postgresql_using="gin", postgresql_where=text("tags <> '{}'")),
    Index("ix_jobs_expires_at", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
    Index(
        "ix_jobs_unkept",
        "finished_at",
        postgresql_where=text(
            "NOT keep AND finished_at IS NOT NULL"
            " AND (result IS NOT NULL OR result_blob IS NOT NULL OR options <> '{}')"
        ),
    ),
    Index(
        "uq_jobs_caller_idempotency_key",
        "caller",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    # Deleted in sets for ever, and large: vacuumed by what has gone, not by what is there. See docs/decisions/0027.
    postgresql_with={
        "fillfactor": "80",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_vacuum_threshold": "2000",
        "autovacuum_vacuum_cost_limit": "2000",
        "toast.autovacuum_vacuum_scale_factor": "0.02",
        "toast.autovacuum_vacuum_threshold": "2000",
        "toast.autovacuum_vacuum_cost_limit": "2000",
    },
)

spent_blobs = Table(
    "spent_blobs",
    metadata,
    Column("key", Text, primary_key=True),
    Column("since", moment, nullable=False, server_default=text("now()")),
    Index("ix_spent_blobs_since", "since"),
    comment="blobs that no row names any more, to be removed from the store",
)

marks = Table(
    "marks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    comment="what the sweeper remembers from one run to the next",
)

costs = Table(
    "costs",
    metadata,
    Column("hardware", Text, primary_key=True, comment="what a device is; alike devices share their costs"),
    Column("model", Text, primary_key=True, comment="catalog id, with :profile if it is one"),
    Column("base", Double, nullable=False, comment="the price: device-milliseconds of a pass, as the"),
    Column("per_token", Double, nullable=False, comment="catalog's cost coefficients name them"),
    Column("per_square", Double, nullable=False),
    Column("per_new", Double, nullable=False),
    Column("state", JSONB, nullable=False, comment="what the engine goes on learning from"),
    Column("updated_at", moment, nullable=False),
    comment="what models have proved to cost on each kind of hardware",
)
