"""What models have proved to cost: read once by an engine child that starts, and every few seconds by the API."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from catalog.schema import CostCoefficients
from tasks.store.rows import clean, columns, json_text, unnest, value

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one model costs on one kind of hardware: the price, and the state that the engine goes on learning from."""

    hardware: str
    model: str
    price: CostCoefficients
    state: Mapping[str, Any]


_COLUMNS = columns(
    hardware="text", model="text", base="float8", per_token="float8", per_square="float8", per_new="float8",  # noqa: S106 - a type
    state="text>jsonb",
)  # fmt: skip

_PUT = f"""
INSERT INTO costs ({", ".join(c.name for c in _COLUMNS)}, updated_at)
SELECT {", ".join(map(value, _COLUMNS))}, %(now)s FROM {unnest(_COLUMNS)}
ON CONFLICT (hardware, model) DO UPDATE SET
  {", ".join(f"{c.name} = EXCLUDED.{c.name}" for c in _COLUMNS[2:])}, updated_at = EXCLUDED.updated_at
"""

_STATES = "SELECT model, base, per_token, per_square, per_new, state FROM costs WHERE hardware = %(hardware)s"

_PRICES = """
SELECT hardware, model, base, per_token, per_square, per_new FROM costs
WHERE %(all)s OR hardware = ANY(%(hardware)s::text[])
"""


def put(conn: Connection, costs: Sequence[Cost], now: datetime) -> None:
    """Write these, each in place of what is kept of its model and hardware. No two of them may be of the same."""
    # In one order everywhere: two workers that write at once must not wait for each other.
    rows = sorted(costs, key=lambda cost: (cost.hardware, cost.model))
    parameters = {
        "hardware": [clean(row.hardware) for row in rows],
        "model": [clean(row.model) for row in rows],
        "base": [row.price.base for row in rows],
        "per_token": [row.price.per_token for row in rows],
        "per_square": [row.price.per_square for row in rows],
        "per_new": [row.price.per_new for row in rows],
        "state": [json_text(row.state) for row in rows],
        "now": now,
    }
    conn.exec_driver_sql(_PUT, parameters).close()


def read(conn: Connection, hardware: str) -> list[Cost]:
    """All that is kept for a kind of hardware."""
    rows = conn.exec_driver_sql(_STATES, {"hardware": hardware}).all()
    found = []
    for model, *numbers, state in rows:
        price = _price(hardware, model, numbers)
        if price is not None and isinstance(state, Mapping):
            found.append(Cost(hardware, model, price, state))
        elif price is not None:
            log.warning("the state of %s on %s in the table of costs cannot be read and is left out", model, hardware)
    return found


def prices(conn: Connection, hardware: Collection[str] | None = None) -> dict[tuple[str, str], CostCoefficients]:
    """The prices for these kinds of hardware, or for all there ever were, by hardware and model."""
    rows = conn.exec_driver_sql(_PRICES, {"all": hardware is None, "hardware": sorted(hardware or ())}).all()
    read = {(kind, model): _price(kind, model, numbers) for kind, model, *numbers in rows}
    return {key: price for key, price in read.items() if price is not None}


def _price(hardware: str, model: str, numbers: Sequence[float]) -> CostCoefficients | None:
    """The price of a row; None, and a line in the log, if it is none: one bad row must not keep the others from use."""
    base, per_token, per_square, per_new = numbers
    try:
        return CostCoefficients(base=base, per_token=per_token, per_square=per_square, per_new=per_new)
    except ValidationError:
        log.warning("the price of %s on %s in the table of costs is none and is left out", model, hardware)
        return None
