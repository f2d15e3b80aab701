"""Keep which blobs no row names any more; find what jobs of store=false have left; vacuum the jobs sooner."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create a table and an index. No job has keep = false yet, so the index is empty and made in one look."""
    op.create_table(
        "spent_blobs",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("since", _MOMENT, server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_spent_blobs")),
        comment="blobs that no row names any more, to be removed from the store",
    )
    op.create_index("ix_spent_blobs_since", "spent_blobs", ["since"], unique=False)
    op.create_index(
        "ix_jobs_unkept",
        "jobs",
        ["finished_at"],
        unique=False,
        postgresql_where=sa.text(
            "NOT keep AND finished_at IS NOT NULL"
            " AND (result IS NOT NULL OR result_blob IS NOT NULL OR options <> '{}')"
        ),
    )
    op.execute(
        "ALTER TABLE jobs SET ("
        "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,"
        " autovacuum_vacuum_cost_limit = 2000,"
        " toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 2000,"
        " toast.autovacuum_vacuum_cost_limit = 2000)"
    )


def downgrade() -> None:
    """Drop them again."""
    op.execute(
        "ALTER TABLE jobs RESET ("
        "autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_limit,"
        " toast.autovacuum_vacuum_scale_factor, toast.autovacuum_vacuum_threshold, toast.autovacuum_vacuum_cost_limit)"
    )
    op.drop_index("ix_jobs_unkept", table_name="jobs")
    op.drop_table("spent_blobs")
