from __future__ import annotations

from tests.bench.cases.families import BUDGET, MEDIA, split, varied
from tests.bench.texts import lengths

PICTURE = {"images": [{"data": b"a picture"}]}


def test_texts_grow_by_the_words_of_the_set_and_pictures_stay() -> None:
    found = varied([{"text": "an owl"}, PICTURE], 40, 6000, 0)
    assert [len(item["text"].split()) - 2 for item in found[::2]] == lengths(40)[::2]
    assert found[1::2] == [PICTURE] * 20


def test_no_text_grows_beyond_a_sixth_of_what_the_model_reads() -> None:
    assert max(len(item["text"].split()) for item in varied([{"text": "owl"}], 100, 60, 0)) == 11


def test_what_else_an_item_holds_is_kept() -> None:
    query = {"text": "what hunts at night"}
    assert all(item["query"] == query for item in varied([{"text": "an owl", "query": query}], 5, 100, 0))


def test_each_turn_has_texts_that_no_other_has() -> None:
    turns = [{item["text"] for item in varied([{"text": "an owl"}], 20, 600, turn)} for turn in range(3)]
    assert not turns[0] & turns[1]
    assert not turns[1] & turns[2]


def test_batches_hold_every_item_once_within_the_budget() -> None:
    items = varied([{"text": "an owl"}, PICTURE], 100, 6000, 0)
    batches = split(items, 0)
    assert sorted(map(repr, items)) == sorted(repr(item) for batch in batches for item in batch)
    assert max(len(batch) for batch in batches if PICTURE in batch) == BUDGET // MEDIA


def test_a_batch_has_no_more_items_than_the_adapter_takes() -> None:
    assert [len(batch) for batch in split([PICTURE] * 7, 3)] == [3, 3, 1]
