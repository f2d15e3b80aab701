"""What is measured, in this order: in this process, then on the stack, with cold models first and the heaviest last."""

from __future__ import annotations

from tests.bench.case import Case, Study
from tests.bench.cases import (
    accepted,
    cold,
    dialects,
    documents,
    embeddings,
    fairness,
    families,
    generation,
    items,
    jobs,
    learning,
    overhead,
    runtimes,
    simulated,
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
    jobs.CASE,
    items.CASE,
    embeddings.CASE,
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
