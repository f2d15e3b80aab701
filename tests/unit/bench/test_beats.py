from __future__ import annotations

from tests.bench.beats import Totals, total


def beat(real: int, padded: int) -> dict[str, object]:
    stats = {"batches": 1, "items": 4, "real_tokens": real, "padded_tokens": padded, "device_s": 0.5}
    return {"name": "w", "at": 1.0, "stats": stats}


def test_totals_add_up_over_the_workers() -> None:
    assert total([beat(90, 100), beat(10, 20)]) == Totals(2, 8, 100, 120, 1.0)


def test_what_came_between_two_beats_is_their_difference() -> None:
    assert total([beat(90, 100)]).since(total([beat(10, 20)])) == Totals(0, 0, 80, 80, 0.0)
