"""Keep files, and batches of requests in them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)
_UUID = postgresql.UUID(as_uuid=True)
_ZERO = sa.text("0")


def upgrade() -> None:
    """Create files, batches and their parts. New tables hold nobody up."""
    op.create_table(
        "files",
        sa.Column("id", _UUID, nullable=False, comment="UUIDv7: sorts by time of upload"),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False, comment="shown, never a path"),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False, comment="the key of its content in the blob store"),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("expires_at", _MOMENT),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    op.create_index("ix_files_caller_id", "files", ["caller", "id"])
    op.create_index("ix_files_expires_at", "files", ["expires_at"], postgresql_where=sa.text("expires_at IS NOT NULL"))
    op.create_table(
        "batches",
        sa.Column("id", _UUID, nullable=False, comment="UUIDv7: sorts by time of creation"),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("completion_window", sa.Text(), nullable=False, comment="as it was asked for"),
        sa.Column("input_file", _UUID, nullable=False),
        sa.Column("labels", postgresql.JSONB(), comment="the caller's metadata"),
        sa.Column("model", sa.Text(), comment="when all lines name the same"),
        sa.Column("output_expires_s", sa.Integer(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False, comment="where its parts are in the blob store"),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=False, comment="end of the completion window"),
        sa.Column("in_progress_at", _MOMENT),
        sa.Column("finalizing_at", _MOMENT),
        sa.Column("cancelling_at", _MOMENT),
        sa.Column("ended_at", _MOMENT),
        sa.Column("progress_at", _MOMENT, comment="when a line last ended"),
        sa.Column("total", sa.Integer(), server_default=_ZERO, nullable=False),
        sa.Column("completed", sa.Integer(), server_default=_ZERO, nullable=False),
        sa.Column("failed", sa.Integer(), server_default=_ZERO, nullable=False),
        sa.Column("fed", sa.Integer(), server_default=_ZERO, nullable=False, comment="parts whose lines may have jobs"),
        sa.Column("input_tokens", sa.BigInteger(), server_default=_ZERO, nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default=_ZERO, nullable=False),
        sa.Column("errors", postgresql.JSONB(), comment="what is wrong with the input file, or why all of it failed"),
        sa.Column("output_file", _UUID),
        sa.Column("error_file", _UUID),
        sa.Column("feeder", sa.Text(), comment="which process works on it"),
        sa.Column("lease_until", _MOMENT, comment="when another process may take it"),
        sa.CheckConstraint(
            "status IN ('validating','in_progress','finalizing','completed','failed','expired','cancelling',"
            "'cancelled')",
            name=op.f("ck_batches_status_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_index("ix_batches_caller_id", "batches", ["caller", "id"])
    op.create_index(
        "ix_batches_open",
        "batches",
        ["id"],
        postgresql_where=sa.text("status IN ('validating','in_progress','finalizing','cancelling')"),
    )
    op.create_table(
        "batch_parts",
        sa.Column("batch", _UUID, nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("first_line", sa.Integer(), nullable=False, comment="its number in the file, from 1"),
        sa.Column("lines", sa.Integer(), nullable=False, comment="without blank ones"),
        sa.Column("start", sa.BigInteger(), nullable=False, comment="offset of its first byte in the input"),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("done", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("completed", sa.Integer(), server_default=_ZERO, nullable=False),
        sa.Column("failed", sa.Integer(), server_default=_ZERO, nullable=False),
        sa.Column("output", sa.Text(), comment="blob of its lines of the output file"),
        sa.Column("errors", sa.Text(), comment="blob of its lines of the error file"),
        sa.ForeignKeyConstraint(["batch"], ["batches.id"], name="fk_batch_parts_batch_batches", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("batch", "part", name=op.f("pk_batch_parts")),
        comment="pieces of open batches' input files: what is done once, whole, or again",
    )


def downgrade() -> None:
    """Drop them again."""
    op.drop_table("batch_parts")
    op.drop_table("batches")
    op.drop_table("files")
