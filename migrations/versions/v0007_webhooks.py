"""Keep who is told when jobs end, and what was tried to tell them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)
_UUID = postgresql.UUID(as_uuid=True)


def upgrade() -> None:
    """Create the tables. New tables hold nobody up."""
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", _UUID, nullable=False, comment="UUIDv7: sorts by time of creation"),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("events", sa.ARRAY(sa.Text()), nullable=False, comment="types such as job.failed, or job.*"),
        sa.Column(
            "inline", sa.Boolean(), server_default=sa.text("false"), nullable=False, comment="small results go along"
        ),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("old_secret", sa.LargeBinary(), nullable=True, comment="signs too, until old_secret_until"),
        sa.Column("old_secret_until", _MOMENT, nullable=True),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column(
            "failing_since", _MOMENT, nullable=True, comment="the first failure of those without a success since"
        ),
        sa.Column("disabled_at", _MOMENT, nullable=True),
        sa.Column("disabled_why", sa.Text(), nullable=True),
        sa.Column("deleted_at", _MOMENT, nullable=True, comment="gone for its owner; its deliveries go in sets"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_endpoints")),
    )
    op.create_index("ix_webhook_endpoints_caller_id", "webhook_endpoints", ["caller", "id"], unique=False)
    op.create_table(
        "job_webhooks",
        sa.Column("job", _UUID, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=True, comment="null: the caller's own signs"),
        sa.Column("inline", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_job_webhooks_job_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_job_webhooks")),
        comment="jobs that name who is to be told of their end",
    )
    op.create_table(
        "deliveries",
        sa.Column("id", _UUID, nullable=False, comment="UUIDv7; webhook-id, the same in all attempts"),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("endpoint", _UUID, nullable=True, comment="null: a job named its own"),
        sa.Column(
            "target",
            sa.Text(),
            nullable=False,
            comment="what is slow or dead together: the endpoint, or the host of a job's url",
        ),
        sa.Column("url", sa.Text(), nullable=True, comment="null: the endpoint's"),
        sa.Column("secret", sa.LargeBinary(), nullable=True, comment="null: the endpoint's, or the caller's own"),
        sa.Column("inline", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("type", sa.Text(), nullable=False, comment="job.succeeded and so on"),
        sa.Column("object", _UUID, nullable=False, comment="of the job, batch or backfill"),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False, comment="of the payload"),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="of all series"),
        sa.Column(
            "tries", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="attempts of this series"
        ),
        sa.Column(
            "next_at",
            _MOMENT,
            nullable=True,
            comment="of the next attempt; while one is made, when it is taken for lost",
        ),
        sa.Column("ended_at", _MOMENT, nullable=True),
        sa.CheckConstraint(
            "state IN ('pending','delivered','failed','dropped')", name=op.f("ck_deliveries_state_known")
        ),
        sa.ForeignKeyConstraint(
            ["endpoint"], ["webhook_endpoints.id"], name="fk_deliveries_endpoint_webhook_endpoints", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        comment="one event to one receiver",
    )
    op.create_index("ix_deliveries_caller_id", "deliveries", ["caller", "id"], unique=False)
    op.create_index(
        "ix_deliveries_due",
        "deliveries",
        ["target", "next_at"],
        unique=False,
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        "ix_deliveries_ended_at",
        "deliveries",
        ["ended_at"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index("ix_deliveries_endpoint_id", "deliveries", ["endpoint", "id"], unique=False)
    op.create_index("ix_deliveries_object", "deliveries", ["object"], unique=False)
    op.create_index(
        "ix_deliveries_unsent",
        "deliveries",
        ["caller", "id"],
        unique=False,
        postgresql_where=sa.text("state IN ('failed','dropped')"),
    )
    # Each row is written again with each attempt.
    op.execute("ALTER TABLE deliveries SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000)")
    op.create_table(
        "delivery_attempts",
        sa.Column("delivery", _UUID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True, comment="of the reply, if there was one"),
        sa.Column(
            "error", sa.Text(), nullable=True, comment="why it counts as a failure; never the receiver's own words"
        ),
        sa.ForeignKeyConstraint(
            ["delivery"], ["deliveries.id"], name="fk_delivery_attempts_delivery_deliveries", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("delivery", "number", name=op.f("pk_delivery_attempts")),
    )


def downgrade() -> None:
    """Drop them again."""
    op.drop_table("delivery_attempts")
    op.drop_table("deliveries")
    op.drop_table("job_webhooks")
    op.drop_table("webhook_endpoints")
