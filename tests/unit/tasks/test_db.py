"""How a database is addressed."""

from __future__ import annotations

import pytest

from tasks.db import normalise


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+asyncpg"])
def test_any_postgres_url_gets_our_driver(scheme: str) -> None:
    url = normalise(f"{scheme}://me:p%40ss@host:5433/roost?sslmode=require")

    assert url.render_as_string(hide_password=False) == (
        "postgresql+psycopg://me:p%40ss@host:5433/roost?sslmode=require"
    )


def test_another_database_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="sqlite"):
        normalise("sqlite:///roost.db")
