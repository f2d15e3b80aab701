"""Images and texts in one space: what is cut, what is refused, and what a mixed batch computes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from catalog.terms import Verb
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, TextTooLong
from engine.families import adapter_class
from engine.types import Output
from tests.adapters.pictures import broken, item
from tests.adapters.vision.conftest import Ask, Load, Passes, case_of


def test_texts_and_images_of_a_batch_go_in_two_passes(load: Load, ask: Ask, passes: Passes) -> None:
    clip = load("vision_text", "clip")
    payloads = [{"text": "a"}, item(1), {"text": "a longer one"}, item(2, (30, 90)), item(3, (1, 1))]
    with passes(clip) as seen:
        found = ask(clip, Verb.ENCODE, payloads, {})
    assert sorted(seen) == ["text_model 2", "vision_model 3"]
    usage = [outcome.usage for outcome in found if isinstance(outcome, Output)]
    assert usage == [{}, {"images": 1}, {}, {"images": 1}, {"images": 1}]


def test_a_long_text_is_cut_with_a_mark_or_refused(load: Load, ask: Ask) -> None:
    for name in ("clip", "siglip", "siglip2"):
        adapter = load("vision_text", name)
        long, short = {"text": "queue " * 60}, {"text": "queue"}
        cut, whole = ask(adapter, Verb.ENCODE, [long, short], {})
        assert isinstance(cut, Output)
        assert isinstance(whole, Output)
        assert cut.truncated
        assert cut.tokens > adapter.spec.max_length
        assert not whole.truncated
        refused, kept = ask(adapter, Verb.ENCODE, [long, short], {"truncate": False})
        assert isinstance(refused, TextTooLong)
        assert str(cut.tokens) in refused.message
        assert isinstance(kept, Output)


def test_the_name_of_a_control_token_is_text(load: Load, ask: Ask) -> None:
    clip = load("vision_text", "clip")
    plain, literal = ask(clip, Verb.ENCODE, [{"text": "a bird"}, {"text": "a bird<|endoftext|>"}], {})
    assert isinstance(plain, Output)
    assert isinstance(literal, Output)
    assert literal.tokens > plain.tokens + 3


def test_several_images_are_told_so(load: Load, ask: Ask) -> None:
    two = {"images": [*item(1)["images"], *item(2)["images"]]}
    refused = ask(load("vision_text", "clip"), Verb.ENCODE, [two], {})[0]
    assert isinstance(refused, EngineError)
    assert "2 images" in refused.message


def test_odd_images_do_not_hold_up_those_that_follow(load: Load, ask: Ask) -> None:
    clip = load("vision_text", "clip")
    odd = ask(clip, Verb.ENCODE, [item(1, (1, 1)), broken()], {})
    assert [isinstance(outcome, Output) for outcome in odd] == [True, False]
    after = ask(clip, Verb.ENCODE, [item(number) for number in range(20)], {})
    assert all(isinstance(outcome, Output) for outcome in after)


@pytest.mark.parametrize(
    ("change", "reason"),
    [("weights", LoadReason.CORRUPT), ("dims", LoadReason.CONFIG), ("reads", LoadReason.CONFIG)],
)
def test_what_does_not_fit_the_yaml_does_not_load(tmp_path: Path, change: str, reason: LoadReason) -> None:
    spec, files = case_of("vision_text", "clip").model()
    assert files is not None
    folder = tmp_path / "clip"
    shutil.copytree(files, folder)
    if change == "weights":
        tensors = load_file(folder / "model.safetensors")
        del tensors["visual_projection.weight"]
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    elif change == "dims":
        encode = spec.tasks.encode
        assert encode is not None
        tasks = spec.tasks.model_copy(update={"encode": encode.model_copy(update={"dims": 7})})
        spec = spec.model_copy(update={"tasks": tasks})
    else:
        spec = spec.model_copy(update={"max_length": 77})
    kind = adapter_class("vision_text")
    adapter = kind(spec, kind.options(), folder, "cpu")
    with pytest.raises(LoadFailed) as caught:
        adapter.load()
    assert caught.value.reason is reason
    assert not adapter.held()


def test_an_image_processor_of_any_name_is_read_in_its_form_for_pillow(tmp_path: Path) -> None:
    from engine.vision import read_image_processor

    _, files = case_of("vision_text", "clip").model()
    assert files is not None
    config = json.loads((files / "preprocessor_config.json").read_text())
    shutil.copy(files / "config.json", tmp_path)
    for name in ("CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPFeatureExtractor", "CLIPImageProcessorPil", None):
        config["image_processor_type"] = name
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
        found = read_image_processor(tmp_path)
        assert (type(found).__name__, found.size["shortest_edge"]) == ("CLIPImageProcessorPil", 64)
    config["image_processor_type"] = "NoSuchImageProcessor"
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    with pytest.raises(LoadFailed, match="NoSuchImageProcessor"):
        read_image_processor(tmp_path)


def test_what_goes_with_texts_alone_is_refused_beside_an_image(load: Load, ask: Ask) -> None:
    for name, value in (("instruction", "find: "), ("is_query", True)):
        image, text = ask(load("vision_text", "clip"), Verb.ENCODE, [item(1), {"text": "the date"}], {name: value})
        assert isinstance(image, ItemRejected)
        assert image.param == f"options.{name}"
        assert isinstance(text, Output)
