"""What the parent is told of the models that this worker can have."""

from __future__ import annotations

from typing import Any

from catalog.live import LiveCatalog
from catalog.loader import Catalog
from catalog.schema import EncodeFacts, Spec, Tasks
from engine.snapshot import EngineSnapshot, LedgerState, ModelState, Phase
from engine.types import BatchStats
from tasks.child.repertoire import Repertoire


def _snapshot(*models: ModelState, too_large: dict[str, str] | None = None) -> EngineSnapshot:
    return EngineSnapshot(
        device="cpu",
        models=models,
        ledger=LedgerState(budget=100, weights=9, lent=1),
        batches=BatchStats(batches=0, items=0, real_tokens=0, padded_tokens=0),
        waiting_works=0,
        waiting_items=0,
        running=0,
        lost=False,
        too_large=too_large or {},
    )


def _failed(model: str, retry_at: float) -> ModelState:
    return ModelState(
        model=model,
        phase=Phase.FAILED,
        bytes=0,
        leases=0,
        pinned=False,
        loads=0,
        evictions=0,
        load_s=0.0,
        last_used=None,
        last_error=None,
        retry_at=retry_at,
    )


def _catalog(*names: str) -> LiveCatalog:
    tasks = Tasks(encode=EncodeFacts(dims=1))
    specs = [Spec(id=name, family="fake", tasks=tasks, parameters=0, max_length=1) for name in names]
    return LiveCatalog.fixed(Catalog(specs))


def test_the_catalog_is_told_once_and_what_cannot_be_had_as_it_changes() -> None:
    frames: list[tuple[Any, ...]] = []
    times = iter((1.0, 2.0, 11.0))
    repertoire = Repertoire(_catalog("b", "a"), lambda *frame: frames.append(frame), clock=lambda: next(times))
    repertoire.look(_snapshot())
    for _ in range(3):
        repertoire.look(_snapshot(_failed("b", 10.0), too_large={"a": "too large"}))
    assert frames == [("knows", ["a", "b"], False), ("unable", ["a", "b"]), ("unable", ["a"])]


def test_what_cannot_be_had_is_said_again_after_a_catalog_that_has_changed() -> None:
    frames: list[tuple[Any, ...]] = []
    repertoire = Repertoire(_catalog("a"), lambda *frame: frames.append(frame), clock=lambda: 1.0)
    repertoire.look(_snapshot(too_large={"a": "too large"}))
    repertoire.tell()
    assert frames[-2:] == [("knows", ["a"], False), ("unable", ["a"])]
