"""Letting requests in: by their key, where keys are asked for. What it cannot find out lets nobody in.

Keys are asked for with ROOST_AUTH=on; with `auto` unless the server listens to its own machine alone, and then of
requests that came from elsewhere all the same: to another address or by another name of the machine, or by a proxy.
Where nobody is asked, pages of other sites may not have a browser change anything (`api.sites`).
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from binascii import Error as Base64Error
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, TypeVar
from uuid import UUID

from starlette.datastructures import Headers
from starlette.types import Scope as AsgiScope

from api.identity import ANYONE, Identity
from api.sites import check_site, is_own
from catalog.errors import RoostError
from tasks.api_keys import ApiKey, KeyMissing, KeyUnknown, Scope, ScopeMissing, Tenant, hash_of, is_key
from tasks.db import AsyncDatabase
from tasks.errors import Overloaded, StoreUnavailable, TaskError
from tasks.service_settings import Auth
from tasks.settings import Settings
from tasks.store import api_keys

V = TypeVar("V")

log = logging.getLogger(__name__)

FRESH_S = 5.0
"""So long a look-up holds: a key that is revoked works no longer than this."""

STALE_S = 60.0
"""So long a key that was good is taken for good while the database is away."""

AWAY_S = 1.0
"""So long the database is not asked again about keys that were good, once it was away."""

STRANGERS_AT_ONCE = 2
"""Look-ups at once of keys that were not seen before, so that made-up ones do not use up all connections."""

MOST_KNOWN = 10_000

_MOST_CHARS = 1024
_NOTED_EVERY = timedelta(hours=1)
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


@dataclass(frozen=True, slots=True)
class _Known:
    """What the database said of a key, and when (seconds of the loop's clock)."""

    key: ApiKey
    at: float


class Keys:
    """One for each process and event loop."""

    def __init__(self, settings: Settings, database: AsyncDatabase, clock: Callable[[], float]) -> None:
        self._auth = settings.auth
        self._local = settings.is_local
        self._public_url = settings.public_url
        self._database = database
        self._clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._strange: OrderedDict[bytes, float] = OrderedDict()
        self._strangers = asyncio.Semaphore(STRANGERS_AT_ONCE)
        self._away_until = float("-inf")
        self._tenants: dict[str, Tenant] = {}
        self._noted: dict[UUID, datetime] = {}
        self._notes: set[asyncio.Task[None]] = set()

    def asked_for(self, scope: AsgiScope) -> bool:
        """Whether this request needs a key."""
        if self._auth is not Auth.AUTO:
            return self._auth is Auth.ON
        return not self._local or _from_elsewhere(scope)

    def limits_of(self, tenant: str) -> Mapping[str, Any]:
        """What the row of a tenant says of its limits, as it was when one of its keys was last looked up."""
        known = self._tenants.get(tenant)
        return {} if known is None else known.limits

    def retention_of(self, tenant: str) -> int | None:
        """How many seconds a tenant's finished jobs are kept, if its row says so."""
        known = self._tenants.get(tenant)
        return None if known is None else known.retention_s

    async def let_in(self, scope: AsgiScope, needed: Scope) -> Identity:
        """Who asks, if that may do what needs this scope.

        Raises KeyMissing, KeyUnknown, KeyExpired, KeyRevoked, TenantDisabled, ScopeMissing, or StoreUnavailable when
        the key cannot be looked up; where none is asked for CrossSite.
        """
        if not self.asked_for(scope):
            # A socket says more than a page may read of any other reply.
            check_site(scope.get("method", "CONNECT"), Headers(scope=scope), self._public_url)
            return ANYONE
        text = _key_in(Headers(scope=scope))
        if not is_key(text):
            raise KeyUnknown
        key = await self._look_up(hash_of(text))
        if key is None:
            raise KeyUnknown
        key.check(self._now())
        if needed not in key.scopes and Scope.ADMIN not in key.scopes:
            raise ScopeMissing.of(needed, key.tenant.name, key.scopes)
        self._note(key)
        return Identity(key.tenant.name, key.scopes, key.id)

    async def still_in(self, scope: AsgiScope, needed: Scope) -> bool:
        """Whether who was let in would be let in now: for what goes on for longer than a key may be good."""
        try:
            await self.let_in(scope, needed)
        except RoostError:
            return False
        return True

    async def _look_up(self, hash_: bytes) -> ApiKey | None:
        known, now = self._known.get(hash_), asyncio.get_running_loop().time()
        if known is None:
            return await self._look_up_stranger(hash_, now)
        if now - known.at <= FRESH_S:
            return known.key
        stale = now - known.at <= STALE_S
        if stale and now < self._away_until:
            return known.key
        try:
            return self._heard(hash_, await self._database.run(api_keys.find, hash_), now)
        except (StoreUnavailable, Overloaded):
            if not stale:
                raise
            self._away_until = now + AWAY_S
            return known.key

    async def _look_up_stranger(self, hash_: bytes, now: float) -> ApiKey | None:
        """A key that was not seen lately. Keys that are none take no room and no time from those that are."""
        if now - self._strange.get(hash_, float("-inf")) <= FRESH_S:
            return None
        async with self._strangers:
            found = await self._database.run(api_keys.find, hash_)
        return self._heard(hash_, found, now)

    def _heard(self, hash_: bytes, key: ApiKey | None, now: float) -> ApiKey | None:
        """Keep what the database said. It was asked at `now` or later."""
        if key is None:
            self._known.pop(hash_, None)
            _keep(self._strange, hash_, now)
            return None
        self._tenants[key.tenant.name] = key.tenant
        _keep(self._known, hash_, _Known(key, now))
        return key

    def _note(self, key: ApiKey) -> None:
        """Have it known that the key is used, to the hour."""
        now = self._now()
        last = max((at for at in (key.used_at, self._noted.get(key.id)) if at is not None), default=None)
        if last is not None and now - last < _NOTED_EVERY:
            return
        if len(self._noted) >= MOST_KNOWN:
            self._noted.clear()
        self._noted[key.id] = now
        task = asyncio.create_task(self._write_note(key, now), name=f"use of key {key.hint}")
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _write_note(self, key: ApiKey, now: datetime) -> None:
        try:
            await self._database.run(api_keys.used, key.id, now, now - _NOTED_EVERY)
        except TaskError as error:
            log.debug("the use of key %s was not noted: %s", key.hint, error.code)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)


def _keep(kept: OrderedDict[bytes, V], name: bytes, value: V) -> None:
    """Put it last, and drop the first beyond MOST_KNOWN."""
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > MOST_KNOWN:
        kept.popitem(last=False)


def _from_elsewhere(scope: AsgiScope) -> bool:
    """Whether it came to an address of the machine that others reach, by a name that others can give, or by a proxy."""
    for name, value in scope["headers"]:
        if name.decode("latin-1") in _FORWARDED or (name == b"host" and value and not is_own(value.decode("latin-1"))):
            return True
    server = scope.get("server")
    if not server or server[1] is None:
        # A socket without an address has a proxy at its other end, as likely as not.
        return True
    try:
        return not ip_address(str(server[0]).partition("%")[0]).is_loopback
    except ValueError:
        return bool(server[0] != "localhost")


def _key_in(headers: Headers) -> str:
    """The key that was sent. Raises KeyMissing when there is none or more than one."""
    given = [*headers.getlist("authorization"), *(f"Bearer {key}" for key in headers.getlist("x-api-key"))]
    if not given:
        raise KeyMissing
    if len(given) > 1:
        raise KeyMissing("Send the key once: as `Authorization: Bearer roost_…`, or as `X-API-Key`.")
    scheme, _, value = given[0][:_MOST_CHARS].partition(" ")
    match scheme.lower():
        case "bearer":
            return value.strip()
        case "basic":  # what a browser asks for; the name does not matter
            try:
                return b64decode(value, validate=True).decode("latin-1").partition(":")[2]
            except (Base64Error, ValueError):
                raise KeyUnknown from None
        case _:
            raise KeyMissing("The key must come as `Authorization: Bearer roost_…`.")
