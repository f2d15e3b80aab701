"""Detectors by label: whose label a box has, in whose pixels it is, and what a batch of many wishes computes."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from catalog.terms import Verb
from engine.adapters import owlv2
from engine.adapters.base import Adapter
from engine.errors import EngineError, ItemRejected, LoadFailed, NotFinite
from engine.families import adapter_class
from engine.torch_adapter import TorchAdapter
from engine.types import Outcome, Output
from tests.adapters.case import Payload, agree
from tests.adapters.conftest import cases_of
from tests.adapters.pictures import item, opened, picture
from tests.adapters.vision.conftest import Ask, Load, Passes, case_of

DETECTORS = [("grounding_dino", "few-labels"), ("owlv2", "owlv2"), ("owlv2", "owlvit")]
ALL = {"box_threshold": 0.0}


@pytest.fixture(params=DETECTORS, ids=[name for _, name in DETECTORS])
def detector(request: pytest.FixtureRequest, load: Load) -> Adapter:
    return load(*request.param)


def objects(outcome: Outcome) -> list[dict[str, Any]]:
    assert isinstance(outcome, Output), outcome
    found: list[dict[str, Any]] = outcome.fields["objects"]
    return found


def refused(outcome: Outcome) -> ItemRejected:
    assert isinstance(outcome, ItemRejected), outcome
    return outcome


def png(image: Image.Image, **more: Any) -> Payload:
    written = io.BytesIO()
    image.save(written, "PNG", **more)
    return {"images": [{"data": written.getvalue()}]}


@pytest.mark.parametrize(
    "labels", [["cat", "face"], ["a red hat", "st. bernard", "Cat"], ["what is this?", "cat", "cat", " face "]]
)
def test_labels_come_back_as_they_were_sent_whatever_their_order(
    detector: Adapter, ask: Ask, labels: list[str]
) -> None:
    forth = objects(ask(detector, Verb.EXTRACT, [item(1)], {"labels": labels, **ALL})[0])
    back = objects(ask(detector, Verb.EXTRACT, [item(1)], {"labels": labels[::-1], **ALL})[0])
    assert forth == back
    assert len({one["label"] for one in forth}) > 1
    assert {one["label"] for one in forth} <= set(labels)
    assert [one["score"] for one in forth] == sorted([one["score"] for one in forth], reverse=True)


def test_jobs_of_different_labels_share_a_pass_and_keep_their_own(detector: Adapter, ask: Ask, passes: Passes) -> None:
    wishes = [["person", "company"], ["currency"], ["judge"], ["a", "b", "c", "d", "e", "f"], ["cat"], ["judge", "cat"]]
    payloads = [item(number, (80, 60)) for number in range(6)]
    options: list[dict[str, Any]] = [{"labels": labels, **ALL} for labels in wishes]
    with passes(detector) as seen:
        together = ask(detector, Verb.EXTRACT, payloads, options)
    assert [one for one in seen if "text" not in one] in (["vision_model 6"], ["backbone 6"])
    for payload, own, outcome in zip(payloads, options, together, strict=True):
        assert {one["label"] for one in objects(outcome)} <= set(own["labels"])
        alone = objects(ask(detector, Verb.EXTRACT, [payload], own)[0])
        assert agree(objects(outcome), alone, 1e-5) is None


def test_thresholds_have_three_names_and_drop_what_scores_no_higher(detector: Adapter, ask: Ask) -> None:
    def found(**options: Any) -> list[dict[str, Any]]:
        return objects(ask(detector, Verb.EXTRACT, [item(2)], {"labels": ["cat", "face"], **options})[0])

    everything = found(threshold=0.0)
    middle = everything[len(everything) // 2]["score"]
    fewer = [one for one in everything if one["score"] > middle + 1e-6]
    assert 0 < len(fewer) < len(everything)
    for name in ("threshold", "score_threshold", "box_threshold"):
        assert found(**{name: middle + 1e-6}) == fewer
    assert found(threshold=1.0, box_threshold=0.0) == everything
    assert found(threshold=0.0, text_threshold=middle + 1e-6) == fewer
    assert found(threshold=0.0, top_k=2) == everything[:2]


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({}, "options.labels"),
        ({"labels": []}, "options.labels"),
        ({"labels": ["cat", "very " * 30]}, "options.labels"),
    ],
)
def test_what_a_detector_cannot_do_is_refused_for_that_item_alone(
    detector: Adapter, ask: Ask, options: dict[str, Any], param: str
) -> None:
    bad, good = ask(detector, Verb.EXTRACT, [item(1), item(1)], [options, {"labels": ["cat"], **ALL}])
    assert refused(bad).param == param
    assert objects(good)


def test_boxes_are_in_pixels_of_the_image_as_it_is_displayed(detector: Adapter, ask: Ask) -> None:
    upright = opened(item(3, (90, 40)))
    exif = Image.Exif()
    exif[274] = 6
    turned = png(upright.transpose(Image.Transpose.ROTATE_90), exif=exif)
    options = {"labels": ["cat", "face"], **ALL}
    one, other = ask(detector, Verb.EXTRACT, [png(upright), turned], options)
    assert objects(one) == objects(other)
    assert all(
        left + width <= 90 and top + height <= 40 for left, top, width, height in (o["bbox"] for o in objects(one))
    )


def test_the_thinnest_images_are_searched(detector: Adapter, ask: Ask) -> None:
    found = ask(detector, Verb.EXTRACT, [item(1, (400, 2)), item(1, (2, 400))], {"labels": ["cat"], **ALL})
    assert all(isinstance(outcome, Output) for outcome in found)


def test_grounding_dino_sees_a_thin_image_on_white(load: Load, ask: Ask) -> None:
    """Alone it would have fewer places than the model chooses from, and the library's call would fail."""
    detector = load("grounding_dino", "few-labels")
    strip = opened(item(2, (640, 32)))
    field = Image.new("RGB", (640, 40), "white")
    field.paste(strip)
    thin, whole = (
        objects(one) for one in ask(detector, Verb.EXTRACT, [png(strip), png(field)], {"labels": ["cat"], **ALL})
    )
    visible = [one for one in whole if one["bbox"][1] < 32]
    assert [(one["score"], one["bbox"][0]) for one in thin] == [(one["score"], one["bbox"][0]) for one in visible]
    assert thin
    assert all(one["bbox"][1] + one["bbox"][3] <= 32 for one in thin)


def test_an_item_that_gives_nan_fails_alone(detector: Adapter, ask: Ask) -> None:
    assert isinstance(detector, TorchAdapter)
    payloads, options = [item(1), item(2), item(3)], {"labels": ["cat"], **ALL}
    expected = ask(detector, Verb.EXTRACT, payloads, options)
    module: Any = detector.ready()
    part = module.box_head if hasattr(module, "box_head") else module.bbox_embed[-1]

    def spoil(_: Any, __: Any, made: Any) -> Any:
        if len(made) == 3:
            made[1] = float("nan")
        return made

    hook = part.register_forward_hook(spoil)
    try:
        found = ask(detector, Verb.EXTRACT, payloads, options)
    finally:
        hook.remove()
    assert isinstance(found[1], NotFinite)
    assert objects(found[0]) == objects(expected[0])
    assert objects(found[2]) == objects(expected[2])


def test_one_broken_image_of_eight_fails_alone_and_nothing_runs_twice(
    detector: Adapter, ask: Ask, passes: Passes
) -> None:
    payloads = [item(number) for number in range(8)]
    payloads[2] = {"images": [{"data": picture(2)[:200]}]}
    with passes(detector) as seen:
        found = ask(detector, Verb.EXTRACT, payloads, {"labels": ["cat"], **ALL})
    assert [isinstance(outcome, EngineError) for outcome in found] == [False, False, True, *([False] * 5)]
    assert isinstance(found[2], EngineError)
    assert found[2].code == "image_damaged"
    assert [one for one in seen if "text" not in one] in (["vision_model 7"], ["backbone 7"])


def test_a_large_image_keeps_its_pixels(load: Load, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """OWLv2 sees a large image scaled down, and its boxes are those of the large one."""
    detector = load("owlv2", "owlv2")
    monkeypatch.setattr(owlv2, "LONGEST_SIDE", 120)
    large = opened(item(4, (480, 240)))
    small = large.resize((120, 60), Image.Resampling.BICUBIC, reducing_gap=3.0)
    found = ask(detector, Verb.EXTRACT, [png(large), png(small)], {"labels": ["cat"], **ALL})
    boxes = [np.array([one["bbox"] for one in objects(outcome)]) for outcome in found]
    assert len(boxes[0]) > 4
    assert np.abs(boxes[0] - 4 * boxes[1]).max() <= 4


def test_the_memory_of_an_image_is_near_what_was_measured(tmp_path: Path) -> None:
    """A Grounding DINO of the published sizes took 1.72 GB for an image of 800x1333, in float32."""
    spec, files = case_of("grounding_dino", "few-labels").model()
    assert files is not None
    shutil.copy(files / "model.safetensors", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"d_model": 256, "encoder_ffn_dim": 2048}))
    sizes = {"size": {"shortest_edge": 800, "longest_edge": 1333}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(sizes))
    kind = adapter_class("grounding_dino")
    assert 1.72e9 < kind(spec, kind.options(), tmp_path, "cpu").footprint().per_token < 2e9


@pytest.mark.parametrize("family", ["grounding_dino", "owlv2"])
def test_another_kind_of_model_is_refused_by_name(family: str) -> None:
    spec, _ = cases_of(family)[0].model()
    _, clip = case_of("vision_text", "clip").model()
    kind = adapter_class(family)
    with pytest.raises(LoadFailed, match="'clip'"):
        kind(spec, kind.options(), clip, "cpu").load()
