"""What Alembic runs: on the connection that `migrations.upgrade` gives, else on ROOST_DATABASE_URL."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from tasks.db import normalise
from tasks.models import metadata
from tasks.settings import Settings


def run(connection: Connection) -> None:
    """Run what was asked for, in the connection's transaction."""
    context.configure(connection=connection, target_metadata=metadata, compare_server_default=True)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if context.is_offline_mode():
    context.configure(dialect_name="postgresql", target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif given is not None:
    run(given)
else:
    engine = create_engine(normalise(Settings.from_environment().database_url), poolclass=NullPool)
    with engine.begin() as own:
        run(own)
