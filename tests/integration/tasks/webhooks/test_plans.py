"""Statements of webhooks read what they need from an index, however many deliveries have ended or wait for the dead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, event

from tasks.db import Database
from tasks.store import deliveries, endpoints, outbox
from tasks.store.deliveries import Filters
from tasks.webhooks.schedule import State

NOW = datetime.now(UTC)
ENDPOINT = UUID(int=7)
RANGE: dict[str, Any] = {"since": NOW, "until": NOW, "states": [State.FAILED], "now": NOW, "limit": 10}


def _fill(conn: Connection) -> None:
    """Forty endpoints of twenty callers, and a thousand jobs that ended, with a tenth of their deliveries left."""
    conn.exec_driver_sql(
        """
        INSERT INTO webhook_endpoints (id, caller, url, events, secret, created_at, disabled_at, deleted_at)
        SELECT lpad(to_hex(n), 32, '0')::uuid, 'caller ' || mod(n, 20), 'https://a.example', '{*}', '', now(),
          CASE WHEN mod(n, 20) = 0 THEN now() END, CASE WHEN n = 40 THEN now() END
        FROM generate_series(1, 40) AS n
        """
    ).close()
    conn.exec_driver_sql(
        """
        INSERT INTO deliveries (id, caller, endpoint, target, type, object, data, created_at, state, next_at, ended_at)
        SELECT lpad(to_hex(n), 32, '0')::uuid, 'caller ' || mod(n, 20), e, 'endpoint ' || e, 'job.failed',
          lpad(to_hex(n), 32, 'a')::uuid, '{}', now(), state, CASE WHEN state = 'pending' THEN now() END,
          CASE WHEN state = 'pending' THEN NULL ELSE now() END
        FROM generate_series(1, 10000) AS n, LATERAL (
          SELECT lpad(to_hex(1 + mod(n, 40)), 32, '0')::uuid,
            CASE WHEN mod(n, 10) = 3 THEN 'pending' WHEN mod(n, 97) = 0 THEN 'failed' ELSE 'delivered' END
        ) AS t(e, state)
        """
    ).close()
    conn.exec_driver_sql("INSERT INTO delivery_attempts SELECT id, 1, now(), 1, 500, NULL FROM deliveries").close()


USES: dict[str, Callable[[Connection], object]] = {
    "claim": lambda c: deliveries.claim(
        c, NOW, timedelta(), most=9, more=9, each=8, room={}, share=9, share_of_more=9, held={}
    ),
    "next": lambda c: deliveries.next_due(c, NOW),
    "get": lambda c: deliveries.get(c, UUID(int=5), "caller 5"),
    "attempts": lambda c: deliveries.attempts(c, UUID(int=5)),
    "page": lambda c: deliveries.page(c, "caller 1", Filters(), after=None, limit=9),
    "failed": lambda c: deliveries.page(c, "caller 1", Filters(state=State.FAILED), after=None, limit=9),
    "dropped": lambda c: deliveries.page(c, "caller 1", Filters(state=State.DROPPED), after=UUID(int=9), limit=9),
    "of": lambda c: deliveries.page(c, "caller 1", Filters(object=UUID(int=9)), after=None, limit=9),
    "endpoint": lambda c: deliveries.page(c, "caller 1", Filters(endpoint=ENDPOINT), after=None, limit=9),
    "redeliver": lambda c: deliveries.redeliver(c, UUID(int=5), "caller 5", NOW),
    "range": lambda c: deliveries.redeliver_range(c, ENDPOINT, "caller 7", **RANGE),
    "forget": lambda c: deliveries.forget(c, NOW, 9),
    "drop": lambda c: deliveries.drop(c, NOW, 9),
    "remove": lambda c: deliveries.remove(c, 9),
    "disable": lambda c: endpoints.disable(c, ENDPOINT, "caller 7", NOW),
    "tell": lambda c: outbox.tell(c, "caller 1", "batch.failed", UUID(int=1), {}),
}


@pytest.fixture
def plans(database: Database) -> dict[str, str]:
    """The plans of all statements of each use; nothing that they do stays."""
    database.run(_fill)
    database.run(lambda conn: conn.exec_driver_sql("ANALYZE").close())
    return {name: _plan(database, use) for name, use in USES.items()}


def _plan(database: Database, use: Callable[[Connection], object]) -> str:
    lines: list[str] = []

    def explain(conn: Connection) -> None:
        found: list[tuple[str, Any]] = []

        def note(_c: object, _u: object, statement: str, parameters: Any, *_: object) -> None:
            found.append((statement, parameters))

        with conn.begin_nested() as undone:
            event.listen(conn, "before_cursor_execute", note)
            use(conn)
            event.remove(conn, "before_cursor_execute", note)
            undone.rollback()
        lines.extend(row[0] for s, p in found for row in conn.exec_driver_sql("EXPLAIN " + s, p))

    database.run(explain)
    return "\n".join(lines)


def test_no_statement_reads_all_deliveries(plans: dict[str, str]) -> None:
    wrong = {name: plan for name, plan in plans.items() if "Seq Scan on deliver" in plan}
    assert not wrong, "\n\n".join(f"{name}:\n{plan}" for name, plan in wrong.items())
    assert all("deliveries" in plan for name, plan in plans.items() if name != "attempts")


def test_a_range_begins_where_its_time_does(plans: dict[str, str]) -> None:
    assert "id >= " in plans["range"], plans["range"]


def test_what_is_known_of_thousands_of_targets_is_looked_up_and_not_joined(plans: dict[str, str]) -> None:
    assert "jsonb_each" not in plans["claim"], plans["claim"]


def test_lists_go_by_the_index_that_is_for_them(plans: dict[str, str]) -> None:
    by = {
        "claim": "ix_deliveries_due",
        "next": "ix_deliveries_due",
        "drop": "ix_deliveries_due",
        "failed": "ix_deliveries_unsent",
        "dropped": "ix_deliveries_unsent",
        "of": "ix_deliveries_object",
        "page": "ix_deliveries_caller_id",
        "forget": "ix_deliveries_ended_at",
    }
    assert {name for name, index in by.items() if index not in plans[name]} == set()
