"""Passwords of the servers that we run: made once, kept beside their data."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def keep_password(folder: Path) -> str:
    """The password in a folder, made at the first call; only the owner of the file may read it."""
    kept = folder / "password"
    if not kept.exists():
        # Complete under its name or not there at all.
        fresh = folder / "password.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
        fresh.replace(kept)
    return kept.read_text().strip()
