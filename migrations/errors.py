"""Why a database cannot be brought to this version's tables."""

from __future__ import annotations

from catalog.errors import RoostError


class NewerSchema(RoostError):
    """The database's schema is newer than this build; start a build at least as new as the one that migrated it."""

    code = "newer_schema"


class OlderSchema(RoostError):
    """The database's schema is older than this build; run `roost migrate` first."""

    code = "older_schema"
