"""Files, and batches of requests in them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB, UUID

from tasks.models.base import metadata, moment

files = Table(
    "files",
    metadata,
    Column("id", UUID(as_uuid=True), primary_key=True, comment="UUIDv7: sorts by time of upload"),
    Column("caller", Text, nullable=False),
    Column("filename", Text, nullable=False, comment="shown, never a path"),
    Column("purpose", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("blob", Text, nullable=False, comment="the key of its content in the blob store"),
    Column("created_at", moment, nullable=False),
    Column("expires_at", moment),
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
    Column("created_at", moment, nullable=False),
    Column("expires_at", moment, nullable=False, comment="end of the completion window"),
    Column("in_progress_at", moment),
    Column("finalizing_at", moment),
    Column("cancelling_at", moment),
    Column("ended_at", moment),
    Column("progress_at", moment, comment="when a line last ended"),
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
    Column("lease_until", moment, comment="when another process may take it"),
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
