"""Alembic migrations, safe to start from many replicas at once."""

from __future__ import annotations

from migrations.errors import NewerSchema
from migrations.upgrade import check_schema, migrate

__all__ = ["NewerSchema", "check_schema", "migrate"]
