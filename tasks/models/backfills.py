"""Backfills of documents: the files of a folder or a manifest, through one verb or a chain."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
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

backfills = Table(
    "backfills",
    metadata,
    Column("id", UUID(as_uuid=True), primary_key=True, comment="UUIDv7: sorts by time of creation"),
    Column("caller", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("plan", JSONB, nullable=False, comment="source, steps and output, as they were asked for"),
    Column("recipe", LargeBinary, nullable=False, comment="hash of its steps: what alike ones give is alike"),
    Column("idempotency_key", Text),
    Column("body_hash", LargeBinary),
    Column("folder", Text, nullable=False, comment="where its parts are in the blob store"),
    Column("created_at", moment, nullable=False),
    Column("in_progress_at", moment),
    Column("paused_at", moment),
    Column("finalizing_at", moment),
    Column("cancelling_at", moment),
    Column("ended_at", moment),
    Column("progress_at", moment, comment="when a document last ended"),
    Column("round", Integer, nullable=False, server_default=text("0"), comment="how often it was taken up again"),
    Column("counted_from", Integer, nullable=False, server_default=text("0"), comment="documents done before that"),
    Column("total", Integer, nullable=False, server_default=text("0")),
    Column("completed", Integer, nullable=False, server_default=text("0")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("skipped", Integer, nullable=False, server_default=text("0")),
    Column("rows", BigInteger, nullable=False, server_default=text("0"), comment="of the output"),
    Column("error", JSONB, comment="why all of it failed"),
    Column("output_file", UUID(as_uuid=True)),
    Column("report_file", UUID(as_uuid=True)),
    Column("feeder", Text, comment="which process works on it"),
    Column("lease_until", moment, comment="when another process may take it"),
    CheckConstraint(
        "status IN ('validating','in_progress','paused','finalizing','completed','failed','cancelling','cancelled')",
        name="status_known",
    ),
    Index("ix_backfills_caller_id", "caller", "id"),
    Index("ix_backfills_caller_name", "caller", "name", "id"),
    Index(
        "uq_backfills_idempotency",
        "caller",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    Index(
        "ix_backfills_open",
        "id",
        postgresql_where=text("status IN ('validating','in_progress','finalizing','cancelling')"),
    ),
)

backfill_documents = Table(
    "backfill_documents",
    metadata,
    Column(
        "backfill",
        UUID(as_uuid=True),
        ForeignKey("backfills.id", ondelete="CASCADE", name="fk_backfill_documents_backfill_backfills"),
        primary_key=True,
    ),
    Column("number", Integer, primary_key=True),
    Column("name", Text, nullable=False, comment="how its caller knows it"),
    Column("source", Text, nullable=False, comment="path or file id"),
    Column("fingerprint", Text, nullable=False, comment="what tells that it has not changed"),
    Column("size", BigInteger, nullable=False, server_default=text("0")),
    Column("labels", JSONB, comment="metadata of the caller's, told in its rows"),
    Column("state", Text, nullable=False, server_default=text("'waiting'")),
    Column("rows", Integer, nullable=False, server_default=text("0")),
    Column("columns", ARRAY(Text), nullable=False, server_default=text("'{}'"), comment="what its rows hold"),
    Column("output", Text, comment="blob of its rows"),
    Column("error", JSONB),
    CheckConstraint("state IN ('waiting','done','failed','skipped')", name="state_known"),
    Index("ix_backfill_documents_waiting", "backfill", "number", postgresql_where=text("state = 'waiting'")),
    Index("ix_backfill_documents_name", "backfill", "name"),
    Index("ix_backfill_documents_output", "output", postgresql_where=text("output IS NOT NULL")),
)
