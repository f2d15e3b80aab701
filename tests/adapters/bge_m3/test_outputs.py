"""Several outputs of one pass, scores by each and by all, and heads in pickles."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from catalog.options import EncodeOptions, OutputDtype, OutputType, ScoreOptions
from catalog.schema import Spec
from catalog.terms import Verb
from engine.adapters.bge_m3 import HEADS, BgeM3Adapter, highest
from engine.errors import ItemRejected, LoadFailed, LoadReason, TextTooLong
from engine.text_encoder import EncoderOptions
from engine.types import Outcome, Output
from tests.adapters.case import plain
from tests.adapters.conftest import batch
from tests.small import folder

ALL = [OutputType.DENSE, OutputType.SPARSE, OutputType.MULTIVECTOR]


def adapter_of(files: Path, device: str, needs: Sequence[str] = (), **facts: int) -> BgeM3Adapter:
    widths = {"dims": 48, "token_dims": 32, "sparse_dims": 1000} | facts
    encode = {**widths, "outputs": [kind.value for kind in ALL]}
    made = {
        "id": "random/bge-m3",
        "family": "bge_m3",
        "source": {"path": str(files), "needs": needs},
        "tasks": {"encode": encode, "score": {"scale": "similarity"}},
        "parameters": 1,
        "max_length": 96,
    }
    return BgeM3Adapter(Spec.model_validate(made), EncoderOptions(), files, device)


@pytest.fixture(scope="module")
def adapter(device: str) -> Iterator[BgeM3Adapter]:
    made = adapter_of(folder("bge_m3"), device)
    made.load()
    yield made
    made.unload()


def encode(adapter: BgeM3Adapter, texts: Sequence[str], options: Sequence[EncodeOptions]) -> list[Outcome]:
    return list(adapter.run(batch(Verb.ENCODE, [{"text": text} for text in texts], options)))


def score(adapter: BgeM3Adapter, payloads: Sequence[dict[str, Any]], **options: Any) -> list[Outcome]:
    return list(adapter.run(batch(Verb.SCORE, payloads, [ScoreOptions(**options)] * len(payloads))))


def test_items_that_ask_for_different_outputs_share_a_pass_and_get_their_own(
    adapter: BgeM3Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    embed = BgeM3Adapter._embed

    def watch(self: BgeM3Adapter, rows: Sequence[Any], asked: Any) -> Any:
        passes.append(len(rows))
        return embed(self, rows, asked)

    monkeypatch.setattr(BgeM3Adapter, "_embed", watch)
    each = [EncodeOptions(output_types=[kind]) for kind in ALL] + [EncodeOptions(output_types=ALL), EncodeOptions()]
    found = encode(adapter, ["what floats?"] * 5, each)
    assert passes == [1]
    assert [sorted(one.fields) if isinstance(one, Output) else one for one in found] == [
        ["dense"],
        ["sparse"],
        ["multivector"],
        ["dense", "multivector", "sparse"],
        ["dense"],
    ]
    whole = found[3]
    assert isinstance(whole, Output)
    for one in found:
        assert isinstance(one, Output)
        for name, value in one.fields.items():
            assert value == whole.fields[name]


def test_each_item_has_its_own_types_and_normalisation(adapter: BgeM3Adapter) -> None:
    options = [
        EncodeOptions(output_types=[OutputType.DENSE], normalize=False),
        EncodeOptions(output_types=[OutputType.DENSE, OutputType.MULTIVECTOR], output_dtype=OutputDtype.INT8),
        EncodeOptions(output_types=[OutputType.SPARSE], output_dtype=OutputDtype.FLOAT16),
    ]
    raw, small, half = encode(adapter, ["what floats?"] * 3, options)
    assert isinstance(raw, Output)
    assert isinstance(small, Output)
    assert isinstance(half, Output)
    assert abs(np.linalg.norm(plain(raw)["dense"]) - 1) > 0.01
    assert {vector["dtype"] for vector in small.fields.values()} == {"int8"}
    assert half.fields["sparse"]["dtype"] == "float16"


def test_a_long_text_is_cut_and_marked_or_refused(adapter: BgeM3Adapter) -> None:
    cut, refused = encode(adapter, ["queue " * 200] * 2, [EncodeOptions(), EncodeOptions(truncate=False)])
    assert isinstance(cut, Output)
    assert cut.truncated
    assert cut.tokens > 200
    assert isinstance(refused, TextTooLong)


def test_all_is_the_mean_of_the_three_by_their_weights(adapter: BgeM3Adapter) -> None:
    pair = {"text": "jobs and workers", "query": {"text": "which jobs?"}}

    def of(**options: Any) -> float:
        found = score(adapter, [pair], **options)[0]
        assert isinstance(found, Output)
        value: float = found.fields["score"]
        return value

    each = [of(score_mode=mode) for mode in ("dense", "sparse", "multivector")]
    assert len({round(value, 4) for value in each}) == 3
    assert of() == pytest.approx(sum(each) / 3, abs=1e-5)
    assert of(score_weights=[2.0, 0.0, 1.0]) == pytest.approx((2 * each[0] + each[2]) / 3, abs=1e-5)


def test_vectors_that_are_sent_score_as_their_texts_by_that_mode_alone(adapter: BgeM3Adapter) -> None:
    texts = ["which jobs?", "jobs and workers"]
    made = encode(adapter, texts, [EncodeOptions(output_types=[OutputType.MULTIVECTOR])] * 2)
    query, document = ({"multivector": one.fields["multivector"]} for one in made if isinstance(one, Output))
    pairs = [{"text": texts[1], "query": {"text": texts[0]}}, {**document, "query": query}]
    by_text, by_vectors = score(adapter, pairs, score_mode="multivector")
    assert isinstance(by_text, Output)
    assert isinstance(by_vectors, Output)
    assert by_vectors.fields["score"] == pytest.approx(by_text.fields["score"], abs=1e-5)
    refused = score(adapter, pairs[1:])[0]
    assert isinstance(refused, ItemRejected)
    assert "score_mode" in refused.message


def pickled(place: Path) -> Path:
    shutil.copytree(folder("bge_m3"), place, dirs_exist_ok=True)
    for name in HEADS:
        torch.save(load_file(place / f"{name}.safetensors"), place / f"{name}.pt")
        (place / f"{name}.safetensors").unlink()
    return place


def test_heads_in_pickles_are_read_where_the_yaml_allows_it(adapter: BgeM3Adapter, device: str, tmp_path: Path) -> None:
    other = adapter_of(pickled(tmp_path), device, needs=["pickle"])
    other.load()
    assert other.held() == adapter.held()
    assert other.footprint() == adapter.footprint()
    one, same = (encode(each, ["what floats?"], [EncodeOptions(output_types=ALL)])[0] for each in (adapter, other))
    assert isinstance(one, Output)
    assert isinstance(same, Output)
    assert one.fields == same.fields
    other.unload()


def test_heads_in_pickles_are_refused_where_it_does_not(device: str, tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"source\.needs") as refused:
        adapter_of(pickled(tmp_path), device).load()
    assert refused.value.reason is LoadReason.CONFIG


class Bomb:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.place,)


def test_a_pickle_that_holds_code_is_refused_and_the_code_not_run(device: str, tmp_path: Path) -> None:
    files = pickled(tmp_path / "model")
    (files / "sparse_linear.pt").write_bytes(pickle.dumps({"weight": Bomb(tmp_path / "it-ran")}))
    with pytest.raises(LoadFailed) as refused:
        adapter_of(files, device, needs=["pickle"]).load()
    assert refused.value.reason is LoadReason.CORRUPT
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize(("fact", "wrong"), [("dims", 47), ("sparse_dims", 999), ("token_dims", 33)])
def test_a_model_that_is_not_what_its_yaml_says_is_refused(device: str, fact: str, wrong: int) -> None:
    other = adapter_of(folder("bge_m3"), device, (), **{fact: wrong})
    with pytest.raises(LoadFailed, match=fact) as refused:
        other.load()
    assert refused.value.reason is LoadReason.CONFIG
    assert not other.held()


def test_the_highest_weight_of_an_id_counts_and_control_tokens_have_none() -> None:
    weights = np.array([9.0, 0.5, 2.0, 1.0, 0.0, 9.0], dtype=np.float32)
    indices, best = highest([0, 7, 3, 7, 5, 2], weights, np.array([0, 2]))
    assert indices.tolist() == [3, 5, 7]
    assert best.tolist() == [2.0, 0.0, 1.0]
