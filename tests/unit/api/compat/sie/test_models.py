from __future__ import annotations

from typing import Any

import pytest

from api.compat.sie.model_schemas import SieModelInfo
from api.compat.sie.models import STATES, model_info
from api.presence import Worker
from api.residency import PRESENT_FIRST
from catalog.loader import Catalog

CATALOG = Catalog.load()


def holding(model: str, state: str, **more: Any) -> Worker:
    return Worker(name="w", age_s=0.0, device="cpu", models=[{"key": model, "state": state, **more}])


@pytest.mark.parametrize("spec", CATALOG.specs, ids=lambda spec: spec.id)
def test_every_model_of_the_catalog_has_the_peers_shape(spec: Any) -> None:
    info = SieModelInfo.model_validate(model_info(spec, []))
    assert info.outputs
    assert (info.state, info.loaded, info.last_error) == ("available", False, None)
    assert (info.capabilities is not None) == (spec.tasks.generate is not None)
    assert set(info.profiles) == {"default", *spec.profiles}


def test_each_state_of_ours_has_a_word_of_the_peers() -> None:
    assert set(STATES) == set(PRESENT_FIRST)
    spec = CATALOG.specs[0]
    for state in PRESENT_FIRST:
        info = SieModelInfo.model_validate(model_info(spec, [holding(spec.id, state)]))
        assert info.loaded == (state == "resident")


@pytest.mark.parametrize(("retry_at", "permanent"), [(None, True), (1.0, False)])
def test_a_failure_says_why_and_whether_it_is_for_good(retry_at: float | None, permanent: bool) -> None:
    spec = CATALOG.specs[0]
    error = {"code": "model_too_large", "message": "It needs more.", "retryable": False}
    info = model_info(spec, [holding(spec.id, "failed", last_error=error, retry_at=retry_at)])
    assert info["last_error"] == {"code": "OOM", "message": "It needs more.", "attempts": 1, "permanent": permanent}
