"""Keep backfills of documents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)
_UUID = postgresql.UUID(as_uuid=True)


def upgrade() -> None:
    """Create the tables. New tables hold nobody up."""
    op.create_table(
        "backfills",
        sa.Column("id", _UUID, nullable=False, comment="UUIDv7: sorts by time of creation"),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "plan",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="source, steps and output, as they were asked for",
        ),
        sa.Column(
            "recipe", sa.LargeBinary(), nullable=False, comment="hash of its steps: what alike ones give is alike"
        ),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("body_hash", sa.LargeBinary(), nullable=True),
        sa.Column("folder", sa.Text(), nullable=False, comment="where its parts are in the blob store"),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("in_progress_at", _MOMENT, nullable=True),
        sa.Column("paused_at", _MOMENT, nullable=True),
        sa.Column("finalizing_at", _MOMENT, nullable=True),
        sa.Column("cancelling_at", _MOMENT, nullable=True),
        sa.Column("ended_at", _MOMENT, nullable=True),
        sa.Column("progress_at", _MOMENT, nullable=True, comment="when a document last ended"),
        sa.Column(
            "round",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="how often it was taken up again",
        ),
        sa.Column(
            "counted_from",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="documents done before that",
        ),
        sa.Column("total", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("completed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("rows", sa.BigInteger(), server_default=sa.text("0"), nullable=False, comment="of the output"),
        sa.Column("error", postgresql.JSONB(astext_type=sa.Text()), nullable=True, comment="why all of it failed"),
        sa.Column("output_file", _UUID, nullable=True),
        sa.Column("report_file", _UUID, nullable=True),
        sa.Column("feeder", sa.Text(), nullable=True, comment="which process works on it"),
        sa.Column("lease_until", _MOMENT, nullable=True, comment="when another process may take it"),
        sa.CheckConstraint(
            "status IN "
            "('validating','in_progress','paused','finalizing','completed','failed','cancelling','cancelled')",
            name=op.f("ck_backfills_status_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_backfills")),
    )
    op.create_index("ix_backfills_caller_id", "backfills", ["caller", "id"], unique=False)
    op.create_index("ix_backfills_caller_name", "backfills", ["caller", "name", "id"], unique=False)
    op.create_index(
        "uq_backfills_idempotency",
        "backfills",
        ["caller", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index(
        "ix_backfills_open",
        "backfills",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status IN ('validating','in_progress','finalizing','cancelling')"),
    )
    op.create_table(
        "backfill_documents",
        sa.Column("backfill", _UUID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False, comment="how its caller knows it"),
        sa.Column("source", sa.Text(), nullable=False, comment="path or file id"),
        sa.Column("fingerprint", sa.Text(), nullable=False, comment="what tells that it has not changed"),
        sa.Column("size", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "labels",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=True,
            comment="metadata of the caller's, told in its rows",
        ),
        sa.Column("state", sa.Text(), server_default=sa.text("'waiting'"), nullable=False),
        sa.Column("rows", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "columns",
            sa.ARRAY(sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="what its rows hold",
        ),
        sa.Column("output", sa.Text(), nullable=True, comment="blob of its rows"),
        sa.Column("error", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.CheckConstraint(
            "state IN ('waiting','done','failed','skipped')", name=op.f("ck_backfill_documents_state_known")
        ),
        sa.ForeignKeyConstraint(
            ["backfill"], ["backfills.id"], name="fk_backfill_documents_backfill_backfills", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("backfill", "number", name=op.f("pk_backfill_documents")),
    )
    op.create_index(
        "ix_backfill_documents_waiting",
        "backfill_documents",
        ["backfill", "number"],
        unique=False,
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_index("ix_backfill_documents_name", "backfill_documents", ["backfill", "name"], unique=False)
    op.create_index(
        "ix_backfill_documents_output",
        "backfill_documents",
        ["output"],
        unique=False,
        postgresql_where=sa.text("output IS NOT NULL"),
    )


def downgrade() -> None:
    """Drop them again."""
    op.drop_table("backfill_documents")
    op.drop_table("backfills")
