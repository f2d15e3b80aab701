"""Keep tenants, their keys and what they used; let jobs keep large content elsewhere, or none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)
_UUID = postgresql.UUID(as_uuid=True)


def upgrade() -> None:
    """Create the tables of tenants and add columns to jobs; constant defaults rewrite no row."""
    op.create_table(
        "tenants",
        sa.Column("name", sa.Text(), nullable=False, comment="what `caller` is in all other tables"),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column(
            "limits",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="those that differ from the settings",
        ),
        sa.Column(
            "retention_s",
            sa.Integer(),
            nullable=True,
            comment="how long its finished jobs are kept, if not as the settings say",
        ),
        sa.Column("disabled_at", _MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tenants")),
        comment="who may have keys",
    )
    op.create_table(
        "api_keys",
        sa.Column("id", _UUID, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False, comment="what its owner calls it"),
        sa.Column("hash", sa.LargeBinary(), nullable=False, comment="SHA-256 of the whole key, which is random"),
        sa.Column("hint", sa.Text(), nullable=False, comment="how the key begins: enough to tell keys apart"),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=True),
        sa.Column("revoked_at", _MOMENT, nullable=True),
        sa.Column("used_at", _MOMENT, nullable=True, comment="when it was last used, to the hour"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_api_keys_tenant_tenants", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        comment="keys are shown once, and kept as hashes",
    )
    op.create_index("ix_api_keys_tenant_id", "api_keys", ["tenant", "id"], unique=False)
    op.create_index("uq_api_keys_hash", "api_keys", ["hash"], unique=True)
    op.create_table(
        "usage",
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False, comment="of the end of the jobs, in UTC"),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column(
            "source",
            sa.Text(),
            nullable=False,
            comment="who counts here: a row for each, so that none waits for another",
        ),
        sa.Column("jobs", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("jobs_failed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("items", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("items_failed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("device_ms", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("caller", "day", "model", "source", name=op.f("pk_usage")),
        comment="what ended jobs used; it stays when their rows go",
        postgresql_with={"fillfactor": "70"},
    )
    op.add_column(
        "jobs",
        sa.Column(
            "keep",
            sa.Boolean(),
            server_default=sa.text("true"),
            nullable=False,
            comment="false: inputs go when the job ends, and the result once it was answered",
        ),
    )
    op.add_column("jobs", sa.Column("inputs_blob", sa.Text(), comment="the key of inputs too large for a row"))
    op.add_column("jobs", sa.Column("result_blob", sa.Text(), comment="the key of a result too large for a row"))


def downgrade() -> None:
    """Drop them again."""
    op.drop_column("jobs", "result_blob")
    op.drop_column("jobs", "inputs_blob")
    op.drop_column("jobs", "keep")
    op.drop_table("usage")
    op.drop_table("api_keys")
    op.drop_table("tenants")
