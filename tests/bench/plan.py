"""What is measured, in this order: in this process, then on the stack, with cold models first, heavy ones late, and at
last what leaves a million rows behind."""

from __future__ import annotations

from tests.bench.case import Case, Study
from tests.bench.cases import (
    accepted,
    backfill,
    cold,
    dialects,
    documents,
    embeddings,
    fairness,
    families,
    generation,
    hooks,
    items,
    jobs,
    keys,
    learning,
    overhead,
    runtimes,
    simulated,
    stored,
    switching,
    sync,
    wake,
)

CASES: tuple[Case, ...] = (
    cold.CASE,
    overhead.CASE,
    dialects.CASE,
    sync.CASE,
    wake.CASE,
    accepted.CASE,
    keys.CASE,
    hooks.CASE,
    jobs.CASE,
    items.CASE,
    embeddings.CASE,
    backfill.CASE,
    stored.CASE,
)

STUDIES: tuple[Study, ...] = (
    fairness.STUDY,
    switching.STUDY,
    runtimes.STUDY,
    learning.STUDY,
    documents.STUDY,
    generation.STUDY,
    families.STUDY,
    simulated.STUDY,
)
