"""The order of the items of a score. Pure; the rows are those of a stored result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def rank(rows: Sequence[dict[str, Any]], top_n: int | None = None) -> list[dict[str, Any]]:
    """Give each row that has a score its `rank`, and list them best first: `{index, item_id?, score, rank}`.

    The best has rank 0; ties keep the order of the request; a failed item has no rank. `index` is the place in the
    request, and `item_id` the caller's own. `top_n` bounds the list and leaves the ranks of the rows alone.
    """
    scored = [index for index, row in enumerate(rows) if "score" in row]
    # Sorting is stable, so equal scores stay in the order of the request.
    scored.sort(key=lambda index: -rows[index]["score"])
    for place, index in enumerate(scored):
        rows[index]["rank"] = place
    return [_entry(index, rows[index]) for index in scored[:top_n]]


def _entry(index: int, row: Mapping[str, Any]) -> dict[str, Any]:
    own = {"item_id": row["id"]} if "id" in row else {}
    return {"index": index, **own, "score": row["score"], "rank": row["rank"]}
