"""The form of keys, and when they may be used."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.api_keys import (
    HINT_CHARS,
    ApiKey,
    KeyExpired,
    KeyRevoked,
    Scope,
    Tenant,
    TenantDisabled,
    hash_of,
    is_key,
    new_key,
    tenant_name,
)
from tasks.errors import InvalidRequest

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
GOOD = ApiKey(UUID(int=1), Tenant("acme", NOW), "ci", "roost_abcdef", frozenset({Scope.READ}), NOW)


def test_a_new_key_is_one_and_no_other_key_is_alike() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(is_key(key) for key in made)
    assert len({hash_of(key) for key in made}) == 100
    assert all(len(key[:HINT_CHARS]) == HINT_CHARS < len(key) / 2 for key in made)


@given(st.text(max_size=80))
def test_chance_is_no_key(text: str) -> None:
    assert not is_key(text)


@given(st.integers(6, 54), st.characters(codec="ascii", categories=["Lu", "Ll", "Nd"]))
def test_a_key_with_another_character_is_none(place: int, other: str) -> None:
    key = "roost_" + "A" * 43 + "252f10"
    made = new_key()
    for text in (key, made):
        changed = text[:place] + other + text[place + 1 :]
        assert changed == text or not is_key(changed)


def test_what_ends_a_key() -> None:
    GOOD.check(NOW)
    replace(GOOD, created_at=NOW + timedelta(hours=3)).check(NOW)
    replace(GOOD, expires_at=NOW + timedelta(seconds=1)).check(NOW)
    with pytest.raises(KeyExpired):
        replace(GOOD, expires_at=NOW).check(NOW)
    with pytest.raises(KeyRevoked):
        replace(GOOD, revoked_at=NOW).check(NOW)
    with pytest.raises(TenantDisabled):
        replace(GOOD, tenant=Tenant("acme", NOW, disabled_at=NOW)).check(NOW)


@pytest.mark.parametrize("name", ["acme", "a", "team-1.b_c", "0", "a" * 63])
def test_names_of_tenants(name: str) -> None:
    assert tenant_name(name) == name


@pytest.mark.parametrize("name", ["", "Acme", "a b", "-a", ".", "a" * 64, "a/b", "ä", "a\n", "a:b"])
def test_what_is_no_name_of_a_tenant(name: str) -> None:
    with pytest.raises(InvalidRequest):
        tenant_name(name)
