"""Keep the secrets that all processes of the service share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create secrets. A new table holds nobody up."""
    op.create_table(
        "secrets",
        sa.Column("name", sa.Text(), nullable=False, comment="what it is for"),
        sa.Column("value", sa.LargeBinary(), nullable=False, comment="random bytes, made by who needs them first"),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secrets")),
        comment="what links are signed with",
    )


def downgrade() -> None:
    """Drop it again: links that were handed out lead nowhere."""
    op.drop_table("secrets")
