"""`roost keys` on a real database: what it shows, keeps and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deploy.commands.keys import keys
from tasks.api_keys import hash_of, is_key
from tasks.db import Database
from tasks.store import api_keys

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("ROOST_DATABASE_URL", database_url)
    return lambda *words: CliRunner().invoke(keys, words)


@pytest.fixture
def listed(run: Run) -> Callable[[], list[dict[str, Any]]]:
    return lambda: json.loads(run("list", "--json").stdout)


def test_a_key_is_shown_once_and_kept_as_a_hash(run: Run, listed: Any, database_url: str) -> None:
    made = run("create", "--tenant", "acme", "--label", "ci", "--expires", "30d", "--scope", "read")
    key = made.stdout.strip()
    assert is_key(key)
    assert "cannot be shown again" in made.stderr
    (found,) = listed()
    assert (found["tenant"], found["label"], found["scopes"]) == ("acme", "ci", ["read"])
    assert key not in json.dumps(found)
    assert key.startswith(found["hint"])
    database = Database(database_url, 1)
    try:
        kept = database.run(api_keys.find, hash_of(key))
    finally:
        database.close()
    assert kept is not None
    assert kept.expires_at is not None
    assert (kept.expires_at - kept.created_at).days == 30


def test_a_key_is_revoked_by_its_beginning_by_its_id_and_not_twice_as_late(run: Run, listed: Any) -> None:
    one, two = (json.loads(run("create", "--json").stdout) for _ in range(2))
    assert run("revoke", one["key"]).exit_code == 0
    assert run("revoke", two["id"]).exit_code == 0
    at = [key["revoked_at"] for key in listed()]
    assert all(at)
    assert run("revoke", one["hint"]).exit_code == 0
    assert [key["revoked_at"] for key in listed()] == at
    assert "revoked" in run("list").stdout
    gone = run("revoke", "roost_nothing")
    assert (gone.exit_code, "roost keys list" in gone.stderr) == (1, True)


def test_what_a_tenant_may_is_set_by_name(run: Run) -> None:
    run("create", "--tenant", "acme")
    assert run("limit", "acme", "requests_per_s=2.5", "open_jobs=10").exit_code == 0
    assert run("limit", "acme", "open_jobs=", "retention_s=3600").exit_code == 0
    (tenant,) = json.loads(run("tenants", "--json").stdout)
    assert (tenant["limits"], tenant["retention_s"]) == ({"requests_per_s": 2.5}, 3600)
    assert run("disable", "acme").exit_code == 0
    assert json.loads(run("tenants", "--json").stdout)[0]["disabled_at"]
    assert run("enable", "acme").exit_code == 0
    assert not json.loads(run("tenants", "--json").stdout)[0]["disabled_at"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "--tenant", "Not A Name"), "small letters"),
        (("create", "--expires", "soon"), "30d"),
        (("create", "--scope", "root"), "read"),
        (("limit", "nobody", "open_jobs=1"), "No such tenant"),
        (("limit", "acme", "open_job=1"), "did you mean 'open_jobs'"),
        (("limit", "acme", "open_jobs=many"), "must be a number"),
        (("limit", "acme", "open_jobs=-1"), "0 or more"),
        (("limit", "acme", "retention_s=5"), "at least 60"),
        (("limit", "acme", "retention_s=nan"), "must be a number"),
        (("limit", "acme", "retention_s=1e10"), "at most 2147483647"),
        (("limit", "acme", "requests_per_s=1e-320"), "at least 0.000001"),
        (("limit", "acme", "open_jobs=inf"), "must be a number"),
        (("disable", "nobody"), "No such tenant"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(run: Run, words: tuple[str, ...], said: str) -> None:
    run("create", "--tenant", "acme")
    found = run(*words)
    assert found.exit_code in {1, 2}
    assert said in found.stderr
    assert "Traceback" not in found.output


def test_without_a_database_it_says_where_one_could_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("ROOST_DATA_DIR", str(tmp_path))
    found = CliRunner().invoke(keys, ["list"])
    assert found.exit_code == 1
    assert "roost up" in found.stderr
