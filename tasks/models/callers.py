"""Tenants, their keys, and what they used; the secrets of the service."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    Date,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from tasks.models.base import metadata, moment

tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True, comment="what `caller` is in all other tables"),
    Column("created_at", moment, nullable=False),
    Column("limits", JSONB, nullable=False, server_default=text("'{}'"), comment="those that differ from the settings"),
    Column("retention_s", Integer, comment="how long its finished jobs are kept, if not as the settings say"),
    Column("disabled_at", moment),
    comment="who may have keys",
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", UUID(as_uuid=True), primary_key=True),
    Column(
        "tenant",
        Text,
        ForeignKey("tenants.name", name="fk_api_keys_tenant_tenants", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("label", Text, nullable=False, comment="what its owner calls it"),
    Column("hash", LargeBinary, nullable=False, comment="SHA-256 of the whole key, which is random"),
    Column("hint", Text, nullable=False, comment="how the key begins: enough to tell keys apart"),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("created_at", moment, nullable=False),
    Column("expires_at", moment),
    Column("revoked_at", moment),
    Column("used_at", moment, comment="when it was last used, to the hour"),
    Index("uq_api_keys_hash", "hash", unique=True),
    Index("ix_api_keys_tenant_id", "tenant", "id"),
    comment="keys are shown once, and kept as hashes",
)

usage = Table(
    "usage",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("day", Date, primary_key=True, comment="of the end of the jobs, in UTC"),
    Column("model", Text, primary_key=True),
    Column("source", Text, primary_key=True, comment="who counts here: a row for each, so that none waits for another"),
    Column("jobs", BigInteger, nullable=False, server_default=text("0")),
    Column("jobs_failed", BigInteger, nullable=False, server_default=text("0")),
    Column("items", BigInteger, nullable=False, server_default=text("0")),
    Column("items_failed", BigInteger, nullable=False, server_default=text("0")),
    Column("tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("device_ms", Double, nullable=False, server_default=text("0")),
    comment="what ended jobs used; it stays when their rows go",
    postgresql_with={"fillfactor": "70"},
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True, comment="what it is for"),
    Column("value", LargeBinary, nullable=False, comment="random bytes, made by who needs them first"),
    comment="what links are signed with",
)
