"""What GLiNER models promise beyond the contract: labels never mix, long texts are read whole, offsets are exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from catalog.options import ExtractOptions
from catalog.schema import Source
from catalog.terms import Verb
from engine.adapters.gliner import GlinerAdapter
from engine.errors import ItemRejected, LoadFailed, NotFinite
from engine.torch_adapter import TorchOptions
from engine.types import Batch, Outcome, Output
from tests.adapters.conftest import DEVICE, batch
from tests.adapters.families.gliner import library, model, spec_of
from tests.small import folder

LABELS = ["person", "company"]


def load(kind: str) -> GlinerAdapter:
    spec, path = model(kind)()
    adapter = GlinerAdapter(spec, TorchOptions(), path, DEVICE)
    adapter.load()
    return adapter


@pytest.fixture(scope="module", params=["span", "bi", "relex"])
def any_kind(request: pytest.FixtureRequest) -> Iterator[GlinerAdapter]:
    adapter = load(request.param)
    yield adapter
    adapter.unload()


@pytest.fixture(scope="module")
def span() -> Iterator[GlinerAdapter]:
    adapter = load("span")
    yield adapter
    adapter.unload()


def run(adapter: GlinerAdapter, texts: Sequence[str], *options: ExtractOptions) -> list[Outcome]:
    own = list(options) * len(texts) if len(options) == 1 else list(options)
    return list(adapter.run(batch(Verb.EXTRACT, [{"text": text} for text in texts], own)))


def entities(outcome: Outcome) -> list[dict[str, Any]]:
    assert isinstance(outcome, Output), outcome
    found: list[dict[str, Any]] = outcome.fields["entities"]
    return found


def close(one: Any, other: Any) -> bool:
    return bool(one == pytest.approx(other, abs=1e-4)) if not isinstance(one, dict | list | str) else _close(one, other)


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(close(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def test_jobs_with_labels_of_their_own_never_mix_in_a_batch(any_kind: GlinerAdapter) -> None:
    asked = [
        ExtractOptions(labels=["person", "company"], threshold=0.4),
        ExtractOptions(labels=["currency"], threshold=0.45, flat_ner=False),
        ExtractOptions(labels=["judge", "person", "place", "day"], threshold=0.48, multi_label=True),
        ExtractOptions(labels=["day"], threshold=0.3, relation_labels=["before"]),
        ExtractOptions(labels=["company", "person"], threshold=0.4),
        ExtractOptions(labels=["x", "y", "z"], threshold=0.2, merge_adjacent_entities=True),
    ]
    texts = ["Ada met Ben at ACME.", "It cost 5 euros in Paris.", "The judge sat in Rome on Monday."] * 2
    for count in (2, 6):
        together = run(any_kind, texts[:count], *asked[:count])
        for text, options, outcome in zip(texts, asked, together, strict=False):
            assert {one["label"] for one in entities(outcome)} <= set(options.labels or ())
            alone = run(any_kind, [text], options)[0]
            assert isinstance(outcome, Output)
            assert isinstance(alone, Output)
            assert close(dict(outcome.fields), dict(alone.fields))
        assert any(entities(outcome) for outcome in together)


def test_blank_texts_have_empty_lists_and_their_neighbours_what_they_have_alone(any_kind: GlinerAdapter) -> None:
    options = ExtractOptions(labels=LABELS, threshold=0.3)
    found = [entities(outcome) for outcome in run(any_kind, ["Email the CEO", "", "   ", "Paris"], options)]
    assert found[1] == found[2] == []
    assert close(found[0], entities(run(any_kind, ["Email the CEO"], options)[0]))
    assert found[0]
    assert found[3]


def long_text() -> str:
    words = [f"word{index % 97}" for index in range(3000)]
    for place, name in ((3, "Zebulon"), (1500, "Quillon"), (2996, "Yarrow")):
        words[place] = name
    return " ".join(words)


def test_all_windows_of_a_long_text_are_read_and_offsets_are_of_the_whole(span: GlinerAdapter) -> None:
    text = long_text()
    outcome = run(span, [text], ExtractOptions(labels=["person"], threshold=0.01))[0]
    found = entities(outcome)
    assert isinstance(outcome, Output)
    assert not outcome.truncated
    for name in ("Zebulon", "Quillon", "Yarrow"):
        assert any(name in one["text"] for one in found), name
    assert all(text[one["start"] : one["end"]] == one["text"] for one in found)
    covered = sorted((one["start"], one["end"]) for one in found)
    gaps = [text[end:start] for (_, end), (start, _) in pairwise(covered) if start > end]
    assert max(len(gap.split()) for gap in gaps) < 24, "some window has nothing"
    assert all(one[1] <= other[0] for one, other in pairwise(covered)), "flat, yet they overlap"


def test_a_window_is_read_as_the_library_reads_it_alone(span: GlinerAdapter) -> None:
    text = " ".join(f"Name{index} of Town{index}," for index in range(40))
    options = ExtractOptions(labels=LABELS, threshold=0.47)
    plan = span._plan(span.ready(), batch(Verb.EXTRACT, [{"text": text}], [options]).entries[0], {})
    assert not isinstance(plan, Exception)
    windows = plan.cut.windows
    assert len(windows) > 2
    own = library(folder("gliner") / "span")
    middle = {
        (window.start + one["start"], window.start + one["end"], one["label"])
        for window in windows
        for one in own.inference([text[window.start : window.end]], LABELS, threshold=0.47)[0]
        if window.own_start <= window.start + (one["start"] + one["end"]) / 2 < window.own_end
    }
    found = {(one["start"], one["end"], one["label"]) for one in entities(run(span, [text], options)[0])}
    # What overlaps across a cut is settled by score, so a few of the library's may be missing, and none is new.
    assert found <= middle
    assert len(middle - found) < len(windows)


def test_a_pass_never_holds_more_windows_than_was_lent(span: GlinerAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    original = GlinerAdapter._pass

    def watched(self: GlinerAdapter, ready: Any, rows: Sequence[Any]) -> Any:
        taken.append(len(rows) * max(row.pieces for row in rows))
        return original(self, ready, rows)

    monkeypatch.setattr(GlinerAdapter, "_pass", watched)
    texts, options = [long_text(), "Ada met Ben."], ExtractOptions(labels=LABELS)
    whole = batch(Verb.EXTRACT, [{"text": text} for text in texts], [options] * 2)
    lent = Batch(
        whole.id, whole.model, whole.verb, tuple(_cost(entry, min(entry.item.length, 128)) for entry in whole.entries)
    )
    span.run(lent)
    assert len(taken) > 10
    assert max(taken) <= 256


def test_many_labels_count_in_what_a_pass_holds(span: GlinerAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    original = GlinerAdapter._pass

    def watched(self: GlinerAdapter, ready: Any, rows: Sequence[Any]) -> Any:
        taken.append(len(rows))
        return original(self, ready, rows)

    monkeypatch.setattr(GlinerAdapter, "_pass", watched)
    few, many = ExtractOptions(labels=LABELS), ExtractOptions(labels=[f"label{index}" for index in range(20)])
    run(span, ["Ada met Ben."] * 6, few)
    assert taken == [6]
    taken.clear()
    run(span, ["Ada met Ben."] * 6, many)
    assert len(taken) > 2


@pytest.mark.parametrize("kind", ["span", "relex"])
def test_labels_are_bounded_where_positions_have_no_end(kind: str) -> None:
    adapter = load(kind)
    adapter._hard = 0
    many = [f"label{index}" for index in range(100)]
    refused, taken = run(adapter, ["Ada"] * 2, ExtractOptions(labels=many), ExtractOptions(labels=many[:9]))
    assert isinstance(refused, ItemRejected)
    assert refused.param == "options.labels"
    assert "room for 128" in refused.message
    assert isinstance(taken, Output)
    adapter.unload()


def _cost(entry: Any, length: int) -> Any:
    from dataclasses import replace

    return replace(entry, item=replace(entry.item, length=length))


def test_a_repeated_mention_keeps_each_of_its_places(span: GlinerAdapter) -> None:
    text = "ACME filed. ACME paid. Beta filed."
    found = entities(run(span, [text], ExtractOptions(labels=["company"], threshold=0.2, flat_ner=False))[0])
    assert {(0, 4), (12, 16), (23, 27)} <= {(one["start"], one["end"]) for one in found}


@pytest.mark.parametrize(
    "before",
    [
        "\u0130stanbul \u0130\u0130\u0130",
        "\u039f\u0394\u039f\u03a3",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "cafe\u0301",
        "\U0001d400\U0001d401",
    ],
    ids=["dotted I", "final sigma", "family", "combining", "bold"],
)
def test_offsets_are_code_points_whatever_comes_before(any_kind: GlinerAdapter, before: str) -> None:
    text = f"{before} Ada Lovelace met Ben in {before}."
    found = entities(run(any_kind, [text], ExtractOptions(labels=LABELS, threshold=0.3, flat_ner=False))[0])
    assert found
    assert all(text[one["start"] : one["end"]] == one["text"] for one in found)
    starts = {one["start"] for one in found}
    assert text.index("Ada") in starts or text.index("Lovelace") in starts or text.index("met") in starts


def test_a_word_too_long_for_the_model_is_said() -> None:
    spec, path = model("span")()
    short = GlinerAdapter(spec.model_copy(update={"max_length": 24}), TorchOptions(), path, DEVICE)
    short.load()
    outcome = run(short, ["short " + "ab9" * 30 + " words"], ExtractOptions(labels=LABELS))[0]
    assert isinstance(outcome, Output)
    assert outcome.truncated
    short.unload()


def test_an_item_without_labels_or_with_labels_that_cannot_be_read_is_refused_alone(span: GlinerAdapter) -> None:
    many = [f"a label of quite some length, number {index}" for index in range(60)]
    asked = [ExtractOptions(), ExtractOptions(labels=many), ExtractOptions(labels=["x", "<<ENT>>"])]
    found = run(span, ["Ada"] * 4, *asked, ExtractOptions(labels=["x"]))
    assert isinstance(found[0], ItemRejected)
    assert found[0].param == "options.labels"
    assert isinstance(found[1], ItemRejected)
    assert isinstance(found[2], ItemRejected)
    assert isinstance(found[3], Output)


def test_numbers_that_are_none_are_that_rows_error(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = load("span")
    library_model: Any = adapter.ready()
    original = library_model.run_batch

    def broken(*given: Any, **more: Any) -> Any:
        output = original(*given, **more)
        output.logits = output.logits.clone()
        output.logits[1] = float("nan")
        return output

    monkeypatch.setattr(library_model, "run_batch", broken)
    first, second = run(adapter, ["Ada and Ben", "Ada or Ben"], ExtractOptions(labels=LABELS, threshold=0.3))
    assert isinstance(first, Output) != isinstance(second, Output)
    assert isinstance(first, NotFinite) or isinstance(second, NotFinite)
    adapter.unload()


def test_a_pickle_is_read_only_where_the_yaml_allows_it() -> None:
    spec, path = model("pickled")()
    adapter = GlinerAdapter(spec.model_copy(update={"source": Source()}), TorchOptions(), path, DEVICE)
    with pytest.raises(LoadFailed, match=r"source\.needs"):
        adapter.load()


def test_a_folder_that_lacks_a_tensor_is_refused(tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    copy = tmp_path / "cut"
    shutil.copytree(folder("gliner") / "span", copy)
    tensors = load_file(copy / "model.safetensors")
    del tensors["rnn.lstm.weight_ih_l0"]
    save_file(tensors, copy / "model.safetensors")
    adapter = GlinerAdapter(spec_of("span"), TorchOptions(), copy, DEVICE)
    with pytest.raises(LoadFailed, match="lack 1 tensors"):
        adapter.load()


def test_a_model_of_relations_must_be_said_to_be_one() -> None:
    adapter = GlinerAdapter(spec_of("span"), TorchOptions(), folder("gliner") / "relex", DEVICE)
    with pytest.raises(LoadFailed, match="finds relations"):
        adapter.load()


def test_an_encoder_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    import json
    import shutil

    copy = tmp_path / "code"
    shutil.copytree(folder("gliner") / "span", copy)
    config = json.loads((copy / "gliner_config.json").read_text())
    config["encoder_config"]["auto_map"] = {"AutoModel": "somebody/code--model.Model"}
    (copy / "gliner_config.json").write_text(json.dumps(config))
    with pytest.raises(LoadFailed, match="code of its own"):
        GlinerAdapter(spec_of("span"), TorchOptions(), copy, DEVICE).load()
