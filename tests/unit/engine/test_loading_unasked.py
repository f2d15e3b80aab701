"""What comes and leaves by itself: models that are to be there from the start, and those that others drive out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.schema import Spec, Stay
from engine.device import FakeDevice
from engine.errors import LoadFailed, LoadReason
from engine.snapshot import Phase, Reason
from tests.unit.engine.recorder import PATIENCE_S
from tests.unit.engine.watching import MakeResidency, Watching, held, state

MakeSpec = Callable[..., Spec]


def test_one_that_is_to_be_there_from_the_start_is_tried_again_by_itself(
    make_residency: MakeResidency, make_spec: MakeSpec, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.loading.COOL_DOWN_S", dict.fromkeys(LoadReason, 0.02))
    faults = [{"kind": "fail_load", "times": 2}]
    pinned, preloaded = (
        make_spec(name, bytes=10, faults=faults).model_copy(update={"stay": stay})
        for name, stay in (("pinned", Stay(pinned=True)), ("preloaded", Stay(preload=True)))
    )
    residency = make_residency([pinned, preloaded])
    watching.until("ready", "pinned")
    watching.until("ready", "preloaded")
    assert watching.events.count(("refused", "pinned")) == 2
    assert residency.relieve()
    assert state(residency, "preloaded").phase is Phase.ABSENT
    watching.never("started", "nobody", 0.1)
    assert watching.events.count(("ready", "preloaded")) == 1


def test_one_that_can_never_be_there_is_not_tried_again(
    make_residency: MakeResidency, make_spec: MakeSpec, watching: Watching
) -> None:
    residency = make_residency([make_spec("a", bytes=2000).model_copy(update={"stay": Stay(pinned=True)})])
    watching.until("refused", "a")
    assert residency.surveyed.wait(PATIENCE_S)
    assert watching.events.count(("started", "a")) == 1


def test_one_whose_load_hung_elsewhere_is_not_loaded_before_somebody_asks(
    make_residency: MakeResidency, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.residency.COOL_DOWN_S", dict.fromkeys(LoadReason, 0.0))
    residency = make_residency({"busy": {"load_seconds": 0.1}, "a": {}})
    residency.preload("busy")
    watching.until("started", "busy")
    residency.preload("a")
    residency.fail("a", LoadFailed("It hung.", LoadReason.TIMEOUT))
    watching.until("ready", "busy")
    watching.never("started", "a")
    held(residency, "a")


def test_what_is_idle_leaves_where_somebody_else_grows_into_its_room(
    make_residency: MakeResidency, watching: Watching
) -> None:
    device = FakeDevice(1000)
    models = {"busy": {"bytes": 300}, "first": {"bytes": 300}, "second": {"bytes": 300}}
    residency = make_residency(models, device=device)
    residency.acquire("busy", PATIENCE_S)
    held(residency, "first", "second")
    device.foreign = 250
    watching.until("left", "first")
    assert state(residency, "first").evicted == {Reason.OVER: 1}
    # A look at the device later, what stays fits again.
    watching.never("left", "second", 1.2)
    device.foreign = 1000
    watching.until("left", "second")
    watching.never("left", "busy", 0.0)
