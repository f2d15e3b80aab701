"""Alembic migrations, safe to start from many replicas at once."""
