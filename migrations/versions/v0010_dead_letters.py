"""Find failed jobs by their reason and by their model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_FAILED = sa.text("state = 'failed'")


def upgrade() -> None:
    """Create two indexes that hold failed jobs alone: no job touches them before it fails."""
    op.create_index(
        "ix_jobs_dead", "jobs", ["caller", sa.text("(error ->> 'code')"), "id"], unique=False, postgresql_where=_FAILED
    )
    op.create_index("ix_jobs_dead_model", "jobs", ["caller", "model", "id"], unique=False, postgresql_where=_FAILED)


def downgrade() -> None:
    """Drop them again."""
    op.drop_index("ix_jobs_dead_model", table_name="jobs")
    op.drop_index("ix_jobs_dead", table_name="jobs")
