"""Bringing a database to this version's tables.

Everything happens in one transaction under an advisory lock: of many replicas that start at once one migrates and the
others wait, and one that dies leaves nothing behind, so that the next can begin anew.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from migrations.errors import NewerSchema, OlderSchema
from tasks.db import Database

PATIENCE_S = 120.0
"""How long a replica waits for a server that starts, or for another replica that migrates."""

_LOCK = 0x726F6F7374  # "roost"
_LOCK_TIMEOUT = "5s"
"""A migration that waits for a busy table would hold up everybody behind it: it gives way and tries again."""
_STATEMENT_TIMEOUT = "60s"


def migrate(url: str, *, patience_s: float = PATIENCE_S) -> None:
    """Create or upgrade the tables; nothing to do is the usual case. Raises NewerSchema or StoreUnavailable."""
    database = Database(url, 1, patience_s=patience_s, name="roost migrate")
    try:
        database.run(_upgrade)
    finally:
        database.close()


def check_schema(conn: Connection) -> None:
    """Raise NewerSchema or OlderSchema unless the tables are those of this build."""
    scripts = ScriptDirectory.from_config(config())
    revision = MigrationContext.configure(conn).get_current_revision()
    if revision == scripts.get_current_head():
        return
    if revision is not None and revision not in _known(scripts):
        raise NewerSchema(
            f"The database's schema is newer than this build: it is at revision {revision!r}, and this build knows "
            f"none after {scripts.get_current_head()!r}. Start a build at least as new as the one that migrated it."
        )
    raise OlderSchema


def config() -> Config:
    """Alembic's configuration, wherever this package is installed."""
    made = Config()
    made.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return made


def _upgrade(conn: Connection) -> None:
    conn.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
    conn.exec_driver_sql(f"SET LOCAL statement_timeout = '{_STATEMENT_TIMEOUT}'")
    conn.exec_driver_sql("SELECT pg_advisory_xact_lock(%(key)s)", {"key": _LOCK})
    try:
        check_schema(conn)
    except OlderSchema:
        upgrading = config()
        upgrading.attributes["connection"] = conn
        command.upgrade(upgrading, "head")


def _known(scripts: ScriptDirectory) -> set[str]:
    return {script.revision for script in scripts.walk_revisions()}
