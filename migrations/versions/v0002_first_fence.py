"""Count a job's deliveries from its last retry on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add jobs.first_fence. A constant default rewrites no row."""
    op.add_column(
        "jobs",
        sa.Column(
            "first_fence",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="the fence that this series of attempts began with: deliveries are counted from here",
        ),
    )


def downgrade() -> None:
    """Drop it again."""
    op.drop_column("jobs", "first_fence")
