"""Entities of a tagger that knows some words by heart: see tests/small/known_tagger.py."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from engine.adapters.base import Adapter
from engine.errors import ItemRejected, LoadFailed, NotFinite
from engine.types import Outcome, Output
from tests.adapters.text_heads.conftest import Ask, Load, built
from tests.small import folder


@pytest.fixture(scope="module")
def tagger(load: Load) -> Adapter:
    return load("token_classifier", folder("known_tagger"), 32, overlap=8)


def entities(outcome: Outcome) -> list[dict[str, Any]]:
    assert isinstance(outcome, Output), outcome
    found: list[dict[str, Any]] = outcome.fields["entities"]
    return found


def places(text: str, outcome: Outcome) -> list[tuple[str, str]]:
    assert all(one["text"] == text[one["start"] : one["end"]] for one in entities(outcome))
    return [(one["label"], one["text"]) for one in entities(outcome)]


def test_blank_texts_have_empty_lists_and_harm_no_neighbour(tagger: Adapter, ask: Ask) -> None:
    texts = ["after Paris", "", "   ", "Paris"]
    found = ask(tagger, [{"text": text} for text in texts])
    assert [places(text, one) for text, one in zip(texts, found, strict=True)] == [
        [("LOC", "Paris")],
        [],
        [],
        [("LOC", "Paris")],
    ]


def test_repeated_mentions_are_all_told(tagger: Adapter, ask: Ask) -> None:
    text = "ACME filed. ACME paid. Beta filed."
    (found,) = ask(tagger, [{"text": text}])
    assert places(text, found) == [("ORG", "ACME"), ("ORG", "ACME"), ("ORG", "Beta")]
    assert [one["start"] for one in entities(found)] == [0, 12, 23]


@pytest.mark.parametrize(
    "before",
    [
        "İstanbul",
        "ΟΔΟΣ",
        "\U0001f468‍\U0001f469‍\U0001f467",
        "Cafe\u0301",
        "\U0001d401\U0001d41e",
        "a\u00a0\u3000b",
        "İİİİ",
    ],
)
def test_offsets_are_code_points_whatever_stands_before(tagger: Adapter, ask: Ask, before: str) -> None:
    text = f"{before} {before} Paris {before}, New York"
    (found,) = ask(tagger, [{"text": text}])
    assert places(text, found) == [("LOC", "Paris"), ("LOC", "New York")]


def test_names_in_a_long_text_are_found_wherever_they_stand(tagger: Adapter, ask: Ask) -> None:
    words = ["word"] * 3000
    words[0], words[1500], words[-1] = "Paris", "ACME", "Beta"
    text = " ".join(words)
    (found,) = ask(tagger, [{"text": text}])
    assert places(text, found) == [("LOC", "Paris"), ("ORG", "ACME"), ("ORG", "Beta")]
    assert isinstance(found, Output)
    assert found.fields["data"]["windows"] > 100
    assert not found.truncated


def test_a_name_at_any_edge_of_a_window_is_found_once_and_whole(tagger: Adapter, ask: Ask) -> None:
    texts = []
    for shift in range(30):
        words = ["word"] * shift + ["New", "York", *["word"] * 5] * 17
        texts.append(" ".join(words))
    found = ask(tagger, [{"text": text} for text in texts])
    for text, one in zip(texts, found, strict=True):
        assert places(text, one) == [("LOC", "New York")] * text.count("New York")


def test_a_caller_chooses_among_the_models_own_labels_and_gets_no_others(tagger: Adapter, ask: Ask) -> None:
    text = {"text": "ACME after Paris"}
    found = ask(tagger, [text] * 4, {"labels": ["LOC"]}, {"labels": ["ORG"]}, {"labels": ["judge"]}, {})
    assert [places(text["text"], found[i]) for i in (0, 1, 3)] == [
        [("LOC", "Paris")],
        [("ORG", "ACME")],
        [("ORG", "ACME"), ("LOC", "Paris")],
    ]
    assert isinstance(found[2], ItemRejected)
    assert "'judge'" in found[2].message
    assert "LOC" in found[2].message


def test_what_scores_below_the_threshold_is_left_out(tagger: Adapter, ask: Ask) -> None:
    (found,) = ask(tagger, [{"text": "after Paris"}])
    least = entities(found)[0]["score"]
    text = {"text": "after Paris"}
    below, above = ask(tagger, [text] * 2, {"threshold": least - 1e-4}, {"threshold": min(1.0, least + 1e-4)})
    assert (len(entities(below)), len(entities(above))) == (1, 0)


def test_neighbours_of_one_label_become_one_if_asked(tagger: Adapter, ask: Ask) -> None:
    text = "Paris  Paris, Paris"
    apart, merged = ask(tagger, [{"text": text}] * 2, {}, {"merge_adjacent_entities": True})
    assert [one for _, one in places(text, apart)] == ["Paris", "Paris", "Paris"]
    assert [one for _, one in places(text, merged)] == ["Paris  Paris", "Paris"]


def test_a_text_whose_logits_are_not_finite_fails_alone(device: str, ask: Ask) -> None:
    adapter: Any = built("token_classifier", folder("known_tagger"), device, 32, {})
    adapter.load()
    spoilt = adapter.tokenizer.encode(["filed"])[0].body[0]
    adapter.module.bert.embeddings.word_embeddings.weight.data[spoilt] = float("nan")
    found = ask(adapter, [{"text": "Paris"}, {"text": "ACME filed"}, {"text": "Beta"}])
    adapter.unload()
    assert [type(one) for one in found] == [Output, NotFinite, Output]


def test_labels_that_the_model_does_not_have_fail_the_load(device: str) -> None:
    adapter = built("token_classifier", folder("known_tagger"), device, 32, {}, labels=["LOC", "judge"])
    with pytest.raises(LoadFailed, match="judge"):
        adapter.load()


def test_more_tokens_than_the_model_has_positions_fail_the_load(device: str) -> None:
    with pytest.raises(LoadFailed, match="reads 32 tokens"):
        built("token_classifier", folder("known_tagger"), device, 64, {}).load()


def test_a_model_with_another_head_is_refused_though_its_weights_would_fit(device: str) -> None:
    with pytest.raises(LoadFailed, match="BertForSequenceClassification"):
        built("token_classifier", folder("cross_encoder"), device, 32, {}).load()


def test_a_model_without_its_head_is_not_filled_up_at_random(device: str, tmp_path: Path) -> None:
    whole = folder("known_tagger")
    made = Path(shutil.copytree(whole, tmp_path / "headless"))
    tensors = load_file(whole / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if "classifier" not in name}, made / "model.safetensors")
    with pytest.raises(LoadFailed, match=r"lack classifier\.bias"):
        built("token_classifier", made, device, 32, {}).load()
