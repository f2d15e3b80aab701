"""Create the tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create jobs and marks."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.UUID(), nullable=False, comment="UUIDv7: sorts by time of acceptance"),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False, comment="catalog id, with :profile if one was asked for"),
        sa.Column("revision", sa.Text()),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("bucket", sa.Text(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("items", sa.Integer(), nullable=False),
        sa.Column("items_failed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cost_ms", sa.Double(), nullable=False),
        sa.Column("device_ms", sa.Double()),
        sa.Column("attempt", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("fence", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "version",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="counts changes of state; the SSE event id",
        ),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column(
            "queued_at", _MOMENT, nullable=False, comment="start of this series of attempts: acceptance, or a retry"
        ),
        sa.Column(
            "run_at", _MOMENT, comment="when the sweeper looks next whether the job has a message; null: never looked"
        ),
        sa.Column("started_at", _MOMENT),
        sa.Column("finished_at", _MOMENT),
        sa.Column("deadline_at", _MOMENT),
        sa.Column("expires_at", _MOMENT, comment="end of retention, once finished"),
        sa.Column(
            "lease_until",
            _MOMENT,
            comment="end of a running job's lease; kept on a queued job that was lost while it ran",
        ),
        sa.Column("worker", sa.Text()),
        sa.Column("retention_s", sa.Integer(), nullable=False),
        sa.Column("tags", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("options", postgresql.JSONB(), nullable=False),
        sa.Column("error", postgresql.JSONB()),
        sa.Column("timings", postgresql.JSONB()),
        sa.Column("usage", postgresql.JSONB()),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("body_hash", sa.LargeBinary()),
        sa.Column(
            "door", sa.LargeBinary(), nullable=False, comment="msgpack of lengths, costs and faults found at the door"
        ),
        sa.Column("inputs", sa.LargeBinary()),
        sa.Column("result", sa.LargeBinary()),
        sa.CheckConstraint(
            "state IN ('queued','running','succeeded','failed','cancelled','expired')", name=op.f("ck_jobs_state_known")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        postgresql_with={"fillfactor": "80"},
    )
    op.create_index("ix_jobs_caller_id", "jobs", ["caller", "id"], unique=False)
    op.create_index("ix_jobs_caller_model_id", "jobs", ["caller", "model", "id"], unique=False)
    op.create_index(
        "ix_jobs_deadline_at",
        "jobs",
        ["deadline_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('queued','running') AND deadline_at IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_expires_at", "jobs", ["expires_at"], unique=False, postgresql_where=sa.text("expires_at IS NOT NULL")
    )
    op.create_index(
        "ix_jobs_not_succeeded",
        "jobs",
        ["caller", "state", "id"],
        unique=False,
        postgresql_where=sa.text("state <> 'succeeded'"),
    )
    op.create_index(
        "ix_jobs_open",
        "jobs",
        ["state", "lane"],
        unique=False,
        postgresql_where=sa.text("state IN ('queued','running')"),
    )
    op.create_index(
        "ix_jobs_run_at",
        "jobs",
        ["run_at"],
        unique=False,
        postgresql_where=sa.text("state = 'queued' AND run_at IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_tags", "jobs", ["tags"], unique=False, postgresql_using="gin", postgresql_where=sa.text("tags <> '{}'")
    )
    op.create_index(
        "ix_jobs_unseen", "jobs", ["id"], unique=False, postgresql_where=sa.text("state = 'queued' AND run_at IS NULL")
    )
    op.create_index(
        "uq_jobs_caller_idempotency_key",
        "jobs",
        ["caller", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_table(
        "marks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_marks")),
        comment="what the sweeper remembers from one run to the next",
    )

    # Vectors do not compress, and what is compressed cannot be measured without being read.
    op.execute("ALTER TABLE jobs ALTER COLUMN inputs SET STORAGE EXTERNAL, ALTER COLUMN result SET STORAGE EXTERNAL")
    # A busy table: a tenth of it must not be dead, or counted wrong, before the next vacuum.
    op.execute("ALTER TABLE jobs SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02)")


def downgrade() -> None:
    """Drop everything."""
    op.drop_table("marks")
    op.drop_table("jobs")
