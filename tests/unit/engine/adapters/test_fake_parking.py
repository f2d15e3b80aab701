from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from catalog.schema import Spec
from engine.adapters.fake import FakeAdapter, FakeOptions
from engine.errors import LoadFailed, LoadReason

MakeSpec = Callable[..., Spec]


@pytest.fixture
def loaded(make_spec: MakeSpec) -> Callable[..., FakeAdapter]:
    """A loaded fake of these options."""

    def make(**options: Any) -> FakeAdapter:
        adapter = FakeAdapter(make_spec(), FakeOptions.model_validate(options), None, "cpu")
        adapter.load()
        return adapter

    return make


def test_one_that_was_not_told_to_park_cannot(loaded: Callable[..., FakeAdapter]) -> None:
    adapter = loaded(bytes=100)
    assert adapter.park() is None
    assert adapter.held() == 100


def test_a_parked_one_holds_nothing_until_it_comes_back(loaded: Callable[..., FakeAdapter]) -> None:
    adapter = loaded(bytes=100, actual_bytes=120, parks=True)
    assert adapter.park() == 120
    assert adapter.held() == 0
    adapter.restore()
    assert adapter.held() == 120


def test_parking_and_coming_back_take_their_time(loaded: Callable[..., FakeAdapter]) -> None:
    adapter = loaded(parks=True, park_seconds=0.01, restore_seconds=0.02)
    began = time.monotonic()
    adapter.park()
    assert time.monotonic() - began >= 0.01
    adapter.restore()
    assert time.monotonic() - began >= 0.03


def test_a_return_told_to_fail_fails_with_its_reason(loaded: Callable[..., FakeAdapter]) -> None:
    adapter = loaded(parks=True, faults=[{"kind": "fail_restore", "reason": "out_of_memory", "at_call": 2}])
    adapter.park()
    adapter.restore()
    adapter.park()
    with pytest.raises(LoadFailed) as caught:
        adapter.restore()
    assert caught.value.reason is LoadReason.OUT_OF_MEMORY
