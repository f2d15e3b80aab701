from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import WeightsReason, WeightsUnavailable
from catalog.schema import Profile, Spec, Stay
from engine.adapters.fake import FakeAdapter
from engine.engine import Engine
from engine.errors import ModelTooLarge
from engine.residency import Residency
from engine.snapshot import Phase
from engine.types import Footprint
from tests.unit.engine.recorder import PATIENCE_S, Recorder
from tests.unit.engine.watching import MakeResidency, Watching, held, state

MakeSpec = Callable[..., Spec]


def surveyed(residency: Residency) -> dict[str, str]:
    assert residency.surveyed.wait(PATIENCE_S)
    return dict(residency.too_large)


def absent(spec: Spec) -> Path | None:
    raise WeightsUnavailable("Not here.", reason=WeightsReason.NOT_FOUND)


def test_models_that_can_never_fit_are_known_before_anybody_asks(make_residency: MakeResidency) -> None:
    residency = make_residency({"huge": {"bytes": 1001}, "fits": {"bytes": 1000}})
    found = surveyed(residency)
    assert list(found) == ["huge"]
    assert "1001 bytes" in found["huge"]
    assert "ROOST_BUDGET" in found["huge"]


def test_one_that_can_never_fit_is_refused_without_a_load(make_residency: MakeResidency, watching: Watching) -> None:
    residency = make_residency({"huge": {"bytes": 1001}})
    surveyed(residency)
    assert isinstance(residency.refusal("huge"), ModelTooLarge)
    with pytest.raises(ModelTooLarge, match="1001 bytes"):
        residency.acquire("huge", PATIENCE_S)


def test_room_for_a_batch_counts(make_residency: MakeResidency) -> None:
    residency = make_residency({"a": {"bytes": 950, "activation_bytes": 6}})
    assert list(surveyed(residency)) == ["a"]


def test_what_pinned_models_hold_is_no_room(make_residency: MakeResidency, make_spec: MakeSpec) -> None:
    pinned = make_spec("kept", bytes=700).model_copy(update={"stay": Stay(pinned=True)})
    residency = make_residency([pinned, make_spec("a", bytes=301), make_spec("b", bytes=300)])
    assert list(surveyed(residency)) == ["a"]


def test_of_pins_that_are_too_much_together_only_those_without_room_are_refused(
    make_residency: MakeResidency, watching: Watching
) -> None:
    models = {"x": {"bytes": 600}, "y": {"bytes": 600}, "small": {"bytes": 400}, "none": {}, "a": {"bytes": 401}}
    residency = make_residency(models, pinned=["x", "y"])
    assert sorted(surveyed(residency)) == ["a", "y"]
    watching.until("ready", "x")
    watching.until("refused", "y")
    held(residency, "x", "none", "small")


def test_a_model_that_turned_out_to_fit_is_not_refused_for_a_guess(
    make_residency: MakeResidency, make_spec: MakeSpec
) -> None:
    asked, seen = threading.Event(), threading.Event()

    def look(spec: Spec) -> Path | None:
        asked.set()
        assert seen.wait(PATIENCE_S)
        return absent(spec)

    guessed = make_spec("a", bytes=100).model_copy(update={"parameters": 4000})
    residency = make_residency([guessed], find_here=look)
    assert asked.wait(PATIENCE_S)
    held(residency, "a")
    seen.set()
    assert surveyed(residency) == {}
    assert residency.refusal("a") is None


def test_profiles_are_looked_at_each_by_its_own_load(make_residency: MakeResidency, make_spec: MakeSpec) -> None:
    spec = make_spec("a", bytes=500).model_copy(update={"profiles": {"big": Profile(load={"bytes": 2000})}})
    assert list(surveyed(make_residency([spec]))) == ["a:big"]


@pytest.mark.parametrize(
    ("parameters", "load", "refused"),
    [(400, {}, True), (270, {}, False), (400, {"dtype": "float16"}, False), (600, {"dtype": "float16"}, True)],
)
def test_without_files_the_parameters_tell_roughly(
    make_residency: MakeResidency, make_spec: MakeSpec, parameters: int, load: dict[str, Any], refused: bool
) -> None:
    spec = make_spec("a", **load).model_copy(update={"parameters": parameters, "family": "sentence_transformer"})
    assert bool(surveyed(make_residency([spec], find_here=absent))) == refused


def test_one_that_fails_in_another_way_hides_no_other(
    make_residency: MakeResidency, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    footprint = FakeAdapter.footprint

    def odd(adapter: FakeAdapter) -> Footprint:
        if adapter.spec.id == "a":
            raise PermissionError("not for you")
        return footprint(adapter)

    monkeypatch.setattr(FakeAdapter, "footprint", odd)
    residency = make_residency([make_spec("a"), make_spec("huge", bytes=2000)])
    assert list(surveyed(residency)) == ["huge"]


def test_looking_downloads_nothing(make_residency: MakeResidency, make_spec: MakeSpec) -> None:
    fetched: list[str] = []

    def find(spec: Spec) -> Path | None:
        fetched.append(spec.id)
        return None

    surveyed(make_residency([make_spec("a"), make_spec("b")], find=find, find_here=absent))
    assert not fetched


def test_files_that_are_here_tell_exactly(make_residency: MakeResidency, make_spec: MakeSpec, tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [10, 30], "data_offsets": [0, 1200]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 1200)
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 0}))
    spec = make_spec("a").model_copy(update={"family": "sentence_transformer"})
    assert "takes 1200 bytes" in surveyed(make_residency([spec], find_here=lambda _: tmp_path))["a"]


def test_a_model_that_cannot_be_looked_at_is_the_loads_to_judge(
    make_residency: MakeResidency, make_spec: MakeSpec
) -> None:
    specs = [make_spec("bad", no_such_option=1), make_spec("huge", bytes=2000)]
    assert list(surveyed(make_residency(specs))) == ["huge"]


def test_looking_gives_way_to_loads(make_residency: MakeResidency, make_spec: MakeSpec, watching: Watching) -> None:
    slow = make_spec("slow", load_seconds=0.05).model_copy(update={"stay": Stay(preload=True)})
    seen: list[Phase] = []

    def look(spec: Spec) -> Path | None:
        if spec.id == "z":
            seen.append(state(residency, "slow").phase)
        return None

    residency = make_residency([slow, make_spec("z")], find_here=look)
    watching.until("ready", "slow")
    residency.unwant("slow")
    surveyed(residency)
    assert seen == [Phase.RESIDENT]
    held(residency, "z")


def test_a_work_for_one_that_can_never_fit_is_refused_at_once(
    make_engine: Callable[..., Engine], recorder: Recorder, now_work: Callable[..., Any]
) -> None:
    engine = make_engine({"m": {"bytes": 2000}, "fits": {}})
    assert engine._residency.surveyed.wait(PATIENCE_S)
    assert list(engine.snapshot().too_large) == ["m"]
    work = now_work("text")
    engine.submit([work])
    assert isinstance(recorder.done[work.id].outcomes[0], ModelTooLarge)
    assert not recorder.loading
