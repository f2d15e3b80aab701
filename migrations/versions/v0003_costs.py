"""Keep what models have proved to cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create costs. A new table holds nobody up."""
    op.create_table(
        "costs",
        sa.Column("hardware", sa.Text(), nullable=False, comment="what a device is; alike devices share their costs"),
        sa.Column("model", sa.Text(), nullable=False, comment="catalog id, with :profile if it is one"),
        sa.Column("base", sa.Double(), nullable=False, comment="the price: device-milliseconds of a pass, as the"),
        sa.Column("per_token", sa.Double(), nullable=False, comment="catalog's cost coefficients name them"),
        sa.Column("per_square", sa.Double(), nullable=False),
        sa.Column("per_new", sa.Double(), nullable=False),
        sa.Column("state", postgresql.JSONB(), nullable=False, comment="what the engine goes on learning from"),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("hardware", "model", name=op.f("pk_costs")),
        comment="what models have proved to cost on each kind of hardware",
    )


def downgrade() -> None:
    """Drop it again."""
    op.drop_table("costs")
