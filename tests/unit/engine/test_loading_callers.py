"""Many callers at once, one or two models: each is served, and nothing is loaded more often than it must be."""

from __future__ import annotations

import threading

from engine.snapshot import Phase
from tests.unit.engine.recorder import PATIENCE_S
from tests.unit.engine.watching import MakeResidency, state


def test_clients_of_two_models_in_the_place_of_one_both_get_on(make_residency: MakeResidency) -> None:
    residency = make_residency({"x": {"bytes": 600}, "y": {"bytes": 600}})
    served: list[str] = []
    seen: set[Phase] = set()

    def use(model: str) -> None:
        for _ in range(20):
            residency.acquire(model, PATIENCE_S)
            seen.add(state(residency, model).phase)
            served.append(model)
            residency.release(model)

    threads = [threading.Thread(target=use, args=(model,)) for model in ("x", "y", "x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (served.count("x"), served.count("y")) == (40, 40)
    # A lease that is held lasts until it is given back, also by one that has been told to leave.
    assert seen <= {Phase.RESIDENT, Phase.LEAVING}


def test_two_hundred_requests_after_the_first_sixteen_load_nothing_anew(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"load_seconds": 0.02}})

    def use(times: int) -> None:
        for _ in range(times):
            residency.acquire("a", PATIENCE_S)
            residency.release("a")

    for count, times in ((16, 1), (8, 25)):
        threads = [threading.Thread(target=use, args=(times,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (state(residency, "a").loads, state(residency, "a").evictions) == (1, 0)
