"""What models have proved to cost, kept and read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from catalog.schema import CostCoefficients
from tasks.db import Database
from tasks.store.costs import Cost, prices, put, read

NOW = datetime.now(UTC)
CHEAP = CostCoefficients(base=1, per_token=0.5, per_square=0.001, per_new=2)
DEAR = CostCoefficients(base=100, per_token=50)


def test_what_is_put_is_read_for_its_hardware_alone(database: Database) -> None:
    kept = Cost("cpu", "org/m:small", CHEAP, {"fits": [1.5, None, "x"]})
    database.run(put, [kept, Cost("cuda", "org/m:small", DEAR, {})], NOW)

    assert database.run(read, "cpu") == [kept]
    assert database.run(read, "tpu") == []


def test_what_is_put_again_takes_the_place_of_the_old(database: Database) -> None:
    database.run(put, [Cost("cpu", "a", CHEAP, {"n": 1}), Cost("cpu", "b", CHEAP, {"n": 1})], NOW)
    database.run(put, [Cost("cpu", "b", DEAR, {"n": 2})], NOW)

    assert {cost.model: (cost.price, cost.state["n"]) for cost in database.run(read, "cpu")} == {
        "a": (CHEAP, 1),
        "b": (DEAR, 2),
    }


def test_prices_come_for_the_kinds_of_hardware_asked_for(database: Database) -> None:
    database.run(put, [Cost(kind, "m", CHEAP, {}) for kind in ("cpu", "cuda", "other")], NOW)

    assert database.run(prices, {"cpu", "cuda"}) == {("cpu", "m"): CHEAP, ("cuda", "m"): CHEAP}
    assert database.run(prices, set()) == {}
    assert len(database.run(prices)) == 3


@pytest.mark.parametrize("change", ["base = 'NaN'", "base = -5", "per_token = 1e308", "base = 'Infinity'"])
def test_a_row_that_is_no_price_keeps_the_others_from_nothing(
    database: Database, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    database.run(put, [Cost("cpu", "bad", CHEAP, {}), Cost("cpu", "good", DEAR, {})], NOW)
    update = f"UPDATE costs SET {change} WHERE model = 'bad'"  # noqa: S608 - a constant of this page
    database.run(lambda conn: conn.exec_driver_sql(update).close())

    assert database.run(prices) == {("cpu", "good"): DEAR}
    assert [cost.model for cost in database.run(read, "cpu")] == ["good"]
    assert "bad" in caplog.text


def test_a_state_that_is_none_keeps_the_others_from_nothing(database: Database) -> None:
    database.run(put, [Cost("cpu", "bad", CHEAP, {}), Cost("cpu", "good", DEAR, {})], NOW)
    database.run(lambda conn: conn.exec_driver_sql("UPDATE costs SET state = '5' WHERE model = 'bad'").close())

    assert [cost.model for cost in database.run(read, "cpu")] == ["good"]
