"""The tables, as SQLAlchemy Core. Migrations create them; `alembic check` holds both together."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_moment = DateTime(timezone=True)

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
    Column("created_at", _moment, nullable=False),
    Column("queued_at", _moment, nullable=False, comment="start of this series of attempts: acceptance, or a retry"),
    Column("run_at", _moment, comment="when the sweeper looks next whether the job has a message; null: never looked"),
    Column("started_at", _moment),
    Column("finished_at", _moment),
    Column("deadline_at", _moment),
    Column("expires_at", _moment, comment="end of retention, once finished"),
    Column(
        "lease_until",
        _moment,
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
    Index("ix_jobs_caller_id", "caller", "id"),
    Index("ix_jobs_caller_model_id", "caller", "model", "id"),
    Index("ix_jobs_tags", "tags", postgresql_using="gin", postgresql_where=text("tags <> '{}'")),
    Index("ix_jobs_expires_at", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
    Index(
        "uq_jobs_caller_idempotency_key",
        "caller",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    postgresql_with={"fillfactor": "80"},
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
    Column("updated_at", _moment, nullable=False),
    comment="what models have proved to cost on each kind of hardware",
)

files = Table(
    "files",
    metadata,
    Column("id", UUID(as_uuid=True), primary_key=True, comment="UUIDv7: sorts by time of upload"),
    Column("caller", Text, nullable=False),
    Column("filename", Text, nullable=False, comment="shown, never a path"),
    Column("purpose", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("blob", Text, nullable=False, comment="the key of its content in the blob store"),
    Column("created_at", _moment, nullable=False),
    Column("expires_at", _moment),
    Index("ix_files_caller_id", "caller", "id"),
    Index("ix_files_expires_at", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
)

batches = Table(
    "batches",
    metadata,
    Column("id", UUID(as_uuid=True), primary_key=True, comment="UUIDv7: sorts by time of creation"),
    Column("caller", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("completion_window", Text, nullable=False, comment="as it was asked for"),
    Column("input_file", UUID(as_uuid=True), nullable=False),
    Column("labels", JSONB, comment="the caller's metadata"),
    Column("model", Text, comment="when all lines name the same"),
    Column("output_expires_s", Integer, nullable=False),
    Column("folder", Text, nullable=False, comment="where its parts are in the blob store"),
    Column("created_at", _moment, nullable=False),
    Column("expires_at", _moment, nullable=False, comment="end of the completion window"),
    Column("in_progress_at", _moment),
    Column("finalizing_at", _moment),
    Column("cancelling_at", _moment),
    Column("ended_at", _moment),
    Column("progress_at", _moment, comment="when a line last ended"),
    Column("total", Integer, nullable=False, server_default=text("0")),
    Column("completed", Integer, nullable=False, server_default=text("0")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("fed", Integer, nullable=False, server_default=text("0"), comment="parts whose lines may have jobs"),
    Column("input_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("output_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("errors", JSONB, comment="what is wrong with the input file, or why all of it failed"),
    Column("output_file", UUID(as_uuid=True)),
    Column("error_file", UUID(as_uuid=True)),
    Column("feeder", Text, comment="which process works on it"),
    Column("lease_until", _moment, comment="when another process may take it"),
    CheckConstraint(
        "status IN ('validating','in_progress','finalizing','completed','failed','expired','cancelling','cancelled')",
        name="status_known",
    ),
    Index("ix_batches_caller_id", "caller", "id"),
    Index(
        "ix_batches_open",
        "id",
        postgresql_where=text("status IN ('validating','in_progress','finalizing','cancelling')"),
    ),
)

batch_parts = Table(
    "batch_parts",
    metadata,
    Column(
        "batch",
        UUID(as_uuid=True),
        ForeignKey("batches.id", ondelete="CASCADE", name="fk_batch_parts_batch_batches"),
        primary_key=True,
    ),
    Column("part", Integer, primary_key=True),
    Column("first_line", Integer, nullable=False, comment="its number in the file, from 1"),
    Column("lines", Integer, nullable=False, comment="without blank ones"),
    Column("start", BigInteger, nullable=False, comment="offset of its first byte in the input"),
    Column("size", BigInteger, nullable=False),
    Column("done", Boolean, nullable=False, server_default=text("false")),
    Column("completed", Integer, nullable=False, server_default=text("0")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("output", Text, comment="blob of its lines of the output file"),
    Column("errors", Text, comment="blob of its lines of the error file"),
    comment="pieces of open batches' input files: what is done once, whole, or again",
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True, comment="what it is for"),
    Column("value", LargeBinary, nullable=False, comment="random bytes, made by who needs them first"),
    comment="what links are signed with",
)
