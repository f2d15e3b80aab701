"""How the texts of a batch become arrays, and attention that stays inside each text."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.tokenizer import Tokens
from engine.attention import Segments, attend, within
from engine.packing import Layout, Packed, agree, alike, pack, pad, together, trial


def tokens(*lengths: int) -> list[Tokens]:
    return [Tokens([100 * n + i for i in range(length)], [n % 2] * length, 0, 0) for n, length in enumerate(lengths)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_every_text_lies_whole_in_the_row(lengths: list[int]) -> None:
    rows = tokens(*lengths)
    packed = pack(rows, Layout(type_ids=True, first_position=2))
    ends = packed.bounds.tolist()
    for place, index in enumerate(packed.order):
        part = slice(ends[place], ends[place + 1])
        assert packed.arrays["input_ids"][0, part].tolist() == rows[index].ids
        assert packed.arrays["token_type_ids"][0, part].tolist() == rows[index].type_ids
        assert packed.arrays["position_ids"][0, part].tolist() == list(range(2, 2 + lengths[index]))
        assert set(packed.arrays["seq_idx"][0, part].tolist()) == {place}
    assert sorted(packed.order) == list(range(len(rows)))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_groups_are_texts_of_one_length_and_fill_the_row(lengths: list[int]) -> None:
    packed = pack(tokens(*lengths), Layout(type_ids=False))
    assert [length for group in packed.groups for length in [group.length] * group.count] == sorted(lengths)
    assert len({group.length for group in packed.groups}) == len(packed.groups)
    assert packed.groups[0].start == 0
    assert [g.start + g.count * g.length for g in packed.groups] == [
        *(group.start for group in packed.groups[1:]),
        sum(lengths),
    ]
    assert packed.longest == max(lengths)


def test_padding_goes_to_the_side_that_the_model_wants() -> None:
    rows = tokens(1, 3)
    right = pad(rows, Layout(type_ids=False, pad_id=7))
    left = pad(rows, Layout(type_ids=False, pad_id=7, pad_left=True))
    assert right["input_ids"].tolist() == [[0, 7, 7], [100, 101, 102]]
    assert left["input_ids"].tolist() == [[7, 7, 0], [100, 101, 102]]
    assert left["attention_mask"].tolist() == [[0, 0, 1], [1, 1, 1]]


def test_a_trials_texts_differ_and_have_the_template() -> None:
    made = trial(Tokens([1, 50, 2], [0, 0, 0], 1, 1), range(10, 90), [3, 6, 6])
    assert [len(row.ids) for row in made] == [3, 6, 6]
    assert all((row.ids[0], row.ids[-1]) == (1, 2) for row in made)
    assert made[1].ids != made[2].ids


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        ([[2.0, 0.0]], True),
        ([[1.0, 1e-5]], True),
        ([[1.0, 1e-3]], False),
        ([[-1.0, 0.0]], False),
        ([[np.nan, 0]], False),
    ],
)
def test_vectors_agree_by_their_directions(other: list[list[float]], equal: bool) -> None:
    assert agree(np.array([[1.0, 0.0]], np.float32), np.array(other, np.float32), 1e-4, 0.99999) is equal


def attention(packed: Packed, heads: int, fewer: int, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over a packed row, and the same by its definition, text after text, in float64."""
    torch.manual_seed(5)
    total = int(packed.bounds[-1])
    query = torch.randn(1, heads, total, 8)
    key, value = (torch.randn(1, heads // fewer, total, 8) for _ in range(2))
    module: Any = SimpleNamespace(is_causal=False)
    with within(Segments(torch.from_numpy(packed.bounds), packed.groups)):
        got, _ = attend(module, query, key, value, None, scaling=0.3, **more)
    expected = torch.empty(1, total, heads, 8)
    ends = packed.bounds.tolist()
    for start, stop in itertools.pairwise(ends):
        q, k, v = (t[0, :, start:stop].double() for t in (query, key, value))
        k, v = k.repeat_interleave(fewer, 0), v.repeat_interleave(fewer, 0)
        back = torch.arange(stop - start)[:, None] - torch.arange(stop - start)[None, :]
        window = more.get("sliding_window") or stop
        seen = (back < window) & ((back >= 0) if more.get("is_causal") else (back > -window))
        scores = (q @ k.transpose(1, 2) * 0.3).masked_fill(~seen, -torch.inf)
        expected[0, start:stop] = (scores.softmax(-1) @ v).transpose(0, 1).float()
    return got, expected


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([None, 1, 3, 20]),
    st.sampled_from([1, 2]),
)
def test_a_token_sees_its_own_text_alone(lengths: list[int], causal: bool, window: int | None, fewer: int) -> None:
    packed = pack(tokens(*lengths), Layout(type_ids=False))
    got, expected = attention(packed, 4, fewer, is_causal=causal, sliding_window=window)
    assert torch.allclose(got, expected, atol=1e-5)


def test_what_it_cannot_add_to_the_scores_is_refused() -> None:
    packed = pack(tokens(2, 3), Layout(type_ids=False))
    with pytest.raises(NotImplementedError, match="softcap"):
        attention(packed, 2, 1, softcap=30.0)


def test_texts_are_known_to_their_own_thread_alone() -> None:
    packed = pack(tokens(2, 3), Layout(type_ids=False))
    t = torch.randn(1, 2, 5, 8)
    module: Any = SimpleNamespace(is_causal=False)
    found: list[torch.Tensor] = []
    with within(Segments(torch.from_numpy(packed.bounds), packed.groups)):
        other = threading.Thread(target=lambda: found.append(attend(module, t, t, t, None)[0]))
        other.start()
        other.join()
        inside = attend(module, t, t, t, None)[0]
    outside = attend(module, t, t, t, None)[0]
    assert torch.equal(found[0], outside)
    assert not torch.allclose(inside, outside)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("causal", [False, True])
def test_a_card_computes_what_a_cpu_does(dtype: torch.dtype, causal: bool) -> None:
    packed = pack(tokens(3, 40, 3, 129), Layout(type_ids=False))
    module: Any = SimpleNamespace(is_causal=causal)
    t = [torch.randn(1, 4, int(packed.bounds[-1]), 32) for _ in range(3)]
    bounds = torch.from_numpy(packed.bounds)
    with within(Segments(bounds, packed.groups)):
        expected, _ = attend(module, t[0], t[1], t[2], None)
    with within(Segments(bounds.cuda(), packed.groups)):
        q, k, v = (x.to("cuda", dtype) for x in t)
        got, _ = attend(module, q, k, v, None)
    assert torch.allclose(got.float().cpu(), expected, atol=1e-4 if dtype is torch.float32 else 3e-2)


@given(lengths=st.lists(st.integers(1, 600), max_size=60), most=st.integers(1, 4000))
def test_passes_have_every_row_once_within_their_size_and_little_padding(lengths: list[int], most: int) -> None:
    found = alike(lengths, most)
    assert sorted(place for places in found for place in places) == list(range(len(lengths)))
    for places in found:
        own = [lengths[place] for place in places]
        assert own == sorted(own, reverse=True)
        padded = len(own) * own[0]
        assert len(own) == 1 or padded <= most
        assert padded - sum(own) <= max(128, padded // 4)


def test_short_rows_share_a_pass_rather_than_save_padding() -> None:
    assert len(alike([30, 5, 12, 8], 1024)) == 1
    assert len(alike([500, 5, 5, 5], 4096)) == 2


@given(lengths=st.lists(st.integers(1, 600), max_size=60), most=st.integers(1, 4000))
def test_passes_without_padding_have_every_row_once_within_their_size(lengths: list[int], most: int) -> None:
    found = together(lengths, most)
    assert sorted(place for places in found for place in places) == list(range(len(lengths)))
    for places in found:
        own = [lengths[place] for place in places]
        assert len(own) == 1 or (sum(own) <= most and len(own) * max(own) <= 4 * most)
