"""Whom the embedded PostgreSQL runs as: it refuses root, so root hands it to an account without rights."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.errors import EmbeddedError

# `roost` is there when an operator made it on purpose; `nobody` is there always. An account that
# owns other servers' files, such as `postgres`, is left alone.
_ACCOUNTS = ("roost", "nobody")
READ_SEARCH = 2
DAC_OVERRIDE = 1
_SETPCAP = 8


@dataclass(frozen=True)
class Account:
    """An unprivileged user, and the capability it needs to reach folders that only root may enter (-1: none)."""

    name: str
    uid: int
    gid: int
    capability: int = -1

    @property
    def words(self) -> tuple[int, int, int]:
        """What `launch` takes."""
        return (self.uid, self.gid, self.capability)


def unprivileged(data: Path, paths: Iterable[Path]) -> Account | None:
    """The account for a server that owns `data` and must reach `paths`; None when we are not root and keep our user.

    A path below a folder that only root may enter (a checkout in /root, say) is reached with one capability, the right
    to pass folders and read. Raises EmbeddedError when the machine does not grant it, and when the data is somebody
    else's.
    """
    if os.geteuid() != 0:
        if data.exists() and data.stat().st_uid != os.geteuid():
            raise EmbeddedError(f"{data} belongs to another user: start as that user or as root, or set ROOST_DATA_DIR")
        return None
    account = _owner(data) or next((found for name in _ACCOUNTS if (found := _named(name))), None)
    if account is None:
        raise EmbeddedError(
            "PostgreSQL refuses to run as root and there is no account `nobody`: create one with "
            "`useradd --system roost`, or start as an ordinary user"
        )
    closed = next((folder for path in paths if (folder := closed_folder(path, account))), None)
    if closed is None:
        return account
    if capabilities := lendable():
        return Account(account.name, account.uid, account.gid, capabilities[0])
    raise EmbeddedError(
        f"PostgreSQL runs as `{account.name}`, which may not enter {closed}: "
        f"`chmod o+x {closed}`, or move the checkout and ROOST_DATA_DIR to where every user may pass"
    )


def closed_folder(path: Path, account: Account) -> Path | None:
    """The first folder on the way to a path that the account may not enter."""
    absolute = Path(os.path.realpath(path))
    for folder in [*reversed(absolute.parents), absolute]:
        if not folder.is_dir():
            return None
        facts = folder.stat()
        bit = 0o100 if facts.st_uid == account.uid else 0o010 if facts.st_gid == account.gid else 0o001
        if not facts.st_mode & bit:
            return folder
    return None


def lendable() -> list[int]:
    """The capabilities that let a server pass closed folders and that we may lend it, the narrowest first."""
    held = held_capabilities()
    if not held >> _SETPCAP & 1:
        return []
    return [capability for capability in (READ_SEARCH, DAC_OVERRIDE) if held >> capability & 1]


def held_capabilities() -> int:
    """The capabilities this process may pass on, as the kernel's bit set; 0 where there are none to read."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    sets = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if line.startswith("Cap"))
    return int(sets.get("CapPrm", "0"), 16) & int(sets.get("CapBnd", "0"), 16)


def _owner(data: Path) -> Account | None:
    """Whoever owns data that is there already, such as a user who ran the stack before root did."""
    if not data.exists() or data.stat().st_uid == 0:
        return None
    facts = data.stat()
    return Account(f"uid {facts.st_uid}", facts.st_uid, facts.st_gid)


def _named(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(name, entry.pw_uid, entry.pw_gid)
