"""The cases in the order in which they run: cold models first, while they are cold, the heaviest last."""

from __future__ import annotations

from tests.bench.case import Case
from tests.bench.cases import accepted, cold, embeddings, items, jobs, overhead, sync, wake

CASES: tuple[Case, ...] = (
    cold.CASE,
    overhead.CASE,
    sync.CASE,
    wake.CASE,
    accepted.CASE,
    jobs.CASE,
    items.CASE,
    embeddings.CASE,
)
