from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from catalog.loader import Catalog
from catalog.options import EncodeOptions, parse_options
from catalog.schema import CostCoefficients, Spec
from catalog.terms import Lane, Verb
from engine.adapters.fake import FakeAdapter, FakeOptions
from engine.errors import ItemRejected, LoadFailed, LoadReason, NotFinite, TextTooLong
from engine.types import Batch, Entry, Footprint, Item, Outcome, Output, Work

MakeWork = Callable[..., Work]
MakeSpec = Callable[..., Spec]


def fake(spec: Spec, **options: Any) -> FakeAdapter:
    return FakeAdapter(spec, FakeOptions.model_validate(options), None, "fake")


def run(adapter: FakeAdapter, work: Work) -> list[Outcome]:
    return list(adapter.run(Batch(1, work.model, work.verb, tuple(Entry(work, item) for item in work.items))))


def vector(outcome: Outcome) -> np.ndarray[Any, np.dtype[np.float32]]:
    assert isinstance(outcome, Output)
    return np.frombuffer(outcome.fields["dense"]["values"], dtype="<f4")


def test_the_same_text_gives_the_same_vector_in_any_batch_and_instance(
    make_work: MakeWork, make_spec: MakeSpec
) -> None:
    spec = make_spec()
    many = run(fake(spec), make_work("one", "two", "three"))
    assert (vector(many[1]) == vector(run(fake(spec), make_work("two"))[0])).all()
    assert not np.allclose(vector(many[0]), vector(many[1]))


def test_vectors_have_the_specs_dimensions_and_norm_one(make_work: MakeWork, make_spec: MakeSpec) -> None:
    found = vector(run(fake(make_spec()), make_work("text"))[0])
    assert found.shape == (8,)
    assert np.linalg.norm(found) == pytest.approx(1.0)


def test_options_take_effect(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec())
    plain = vector(run(adapter, make_work("text"))[0])
    raw = vector(run(adapter, make_work("text", options=EncodeOptions(normalize=False)))[0])
    short = vector(run(adapter, make_work("text", options=EncodeOptions(dimensions=4)))[0])
    asked = vector(run(adapter, make_work("text", options=EncodeOptions(prompt="query")))[0])
    told = vector(run(adapter, make_work("text", options=EncodeOptions(instruction="find")))[0])
    assert np.allclose(raw / np.linalg.norm(raw), plain)
    assert short.shape == (4,)
    assert (asked == vector(run(adapter, make_work("query: text"))[0])).all()
    assert (told == vector(run(adapter, make_work("find text"))[0])).all()


def test_a_long_text_is_cut_and_marked(make_work: MakeWork, make_spec: MakeSpec) -> None:
    outcome = run(fake(make_spec(max_length=5)), make_work("a b c d"))[0]
    assert isinstance(outcome, Output)
    assert (outcome.tokens, outcome.truncated) == (5, True)
    assert (vector(outcome) == vector(run(fake(make_spec()), make_work("a b c"))[0])).all()


def test_a_long_text_that_may_not_be_cut_is_refused_with_its_length(make_work: MakeWork, make_spec: MakeSpec) -> None:
    work = make_work("a b c d", "a", options=EncodeOptions(truncate=False))
    outcomes = run(fake(make_spec(max_length=5)), work)
    assert isinstance(outcomes[0], TextTooLong)
    assert "6 tokens" in outcomes[0].message
    assert isinstance(outcomes[1], Output)


def test_an_item_without_text_is_refused_and_its_neighbours_are_not(make_work: MakeWork, make_spec: MakeSpec) -> None:
    work = make_work("a", "b")
    bad = Item(index=2, payload={}, length=1, cost_ms=1.0)
    batch = Batch(1, "m", work.verb, (*(Entry(work, item) for item in work.items), Entry(work, bad)))
    outcomes = list(fake(make_spec()).run(batch))
    assert isinstance(outcomes[2], ItemRejected)
    assert isinstance(outcomes[1], Output)


def test_lone_surrogates_do_not_break_it(make_work: MakeWork, make_spec: MakeSpec) -> None:
    assert isinstance(run(fake(make_spec()), make_work("\ud83d"))[0], Output)


def test_it_declares_its_bytes_and_holds_them_only_while_loaded(make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), bytes=100, activation_bytes=3, actual_bytes=120)
    assert adapter.footprint() == Footprint(100, 3)
    adapter.load()
    assert adapter.held() == 120
    adapter.unload()
    assert adapter.held() == 0


def test_a_load_in_progress_ends_when_interrupted(make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), load_seconds=60.0)
    failures: list[LoadFailed] = []

    def load() -> None:
        try:
            adapter.load()
        except LoadFailed as error:
            failures.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    adapter.interrupt()
    thread.join(5.0)
    assert len(failures) == 1


def test_a_load_told_to_fail_fails_with_its_reason_as_often_as_told(make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), faults=[{"kind": "fail_load", "reason": "network", "times": 1}])
    with pytest.raises(LoadFailed) as caught:
        adapter.load()
    assert caught.value.reason is LoadReason.NETWORK
    adapter.load()


def test_a_run_takes_as_long_as_its_padded_cost(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(cost=CostCoefficients(base=1.0, per_token=0.5)), seconds_per_cost=0.001)
    began = time.monotonic()
    run(adapter, make_work(lengths=[4, 100]))
    assert time.monotonic() - began >= 0.101


def test_at_call_counts_calls_and_times_widens_it(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), faults=[{"kind": "error", "at_call": 2, "times": 2}])
    results = []
    for _ in range(4):
        try:
            run(adapter, make_work("a"))
            results.append(True)
        except RuntimeError:
            results.append(False)
    assert results == [True, False, False, True]


def test_a_lost_device_stays_lost(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), faults=[{"kind": "device_lost", "when_text": "bad"}])
    for text in ("bad", "good"):
        with pytest.raises(RuntimeError, match="device-side assert"):
            run(adapter, make_work(text))


def test_a_hanging_call_ends_when_interrupted(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), faults=[{"kind": "hang"}])
    adapter.interrupt()
    with pytest.raises(RuntimeError, match="interrupted"):
        run(adapter, make_work("a"))


def test_a_crash_kills_the_process() -> None:
    program = """
from catalog.loader import Catalog
from catalog.terms import Lane, Verb
from engine.adapters.fake import FakeAdapter, FakeOptions
from engine.types import Batch, Entry, Item, Work
adapter = FakeAdapter(
    Catalog.load().find("roost/fake").spec,
    FakeOptions.model_validate({"faults": [{"kind": "crash"}]}), None, "cpu",
)
item = Item(0, {"text": "a"}, 3, 1.0)
work = Work("w", "m", Verb.ENCODE, (item,), None, Lane.BULK, 5, 0.0)
adapter.run(Batch(1, "m", Verb.ENCODE, (Entry(work, item),)))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == -9


def test_a_typo_in_a_load_option_is_refused() -> None:
    with pytest.raises(ValidationError, match="byte"):
        FakeOptions.model_validate({"byte": 1})


def answered(verb: Verb, *payloads: dict[str, Any], load: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    spec = Catalog.load().find("roost/fake").spec
    made = FakeAdapter(spec, FakeOptions.model_validate(load or {}), None, "fake")
    given = parse_options(spec, verb, {}, options)
    entries = []
    for index, payload in enumerate(payloads):
        item = Item(0, payload, 8, 1.0)
        entries.append(Entry(Work(str(index), "m", verb, (item,), given, Lane.INTERACTIVE, 5, 0.0), item))
    return list(made.run(Batch(1, "m", verb, tuple(entries))))


def test_a_score_follows_from_the_pair_alone_and_equal_texts_score_equally() -> None:
    pairs = [{"text": text, "query": {"text": query}} for query in ("q", "r") for text in ("a", "b", "a")]
    scores = [one.fields["score"] for one in answered(Verb.SCORE, *pairs)]
    assert scores[0] == scores[2] == answered(Verb.SCORE, pairs[0])[0].fields["score"]
    assert len(set(scores)) == 4
    assert all(0 < score < 1 for score in scores)


def test_a_score_has_the_logit_that_it_comes_from() -> None:
    (found,) = answered(Verb.SCORE, {"text": "a", "query": {"text": "q"}})
    assert 1 / (1 + math.exp(-found.fields["raw_score"])) == pytest.approx(found.fields["score"], abs=1e-5)


def test_a_score_that_is_no_number_is_its_items_error_alone() -> None:
    spoilt = {"faults": [{"kind": "nan", "when_text": "SPOILT"}]}
    pairs = [{"text": text, "query": {"text": "q"}} for text in ("a", "SPOILT", "c")]
    found = answered(Verb.SCORE, *pairs, load=spoilt)
    assert [type(one) for one in found] == [Output, NotFinite, Output]


def test_entities_are_capitalised_words_by_code_points() -> None:
    text = "İstanbul, \U0001f468‍\U0001f469‍\U0001f467 and e\u0301 before \U0001d400da. ada left Rome."
    (found,) = answered(Verb.EXTRACT, {"text": text}, labels=["name", "place"])
    entities = found.fields["entities"]
    assert [one["text"] for one in entities] == ["İstanbul", "\U0001d400da", "Rome"]
    assert all(text[one["start"] : one["end"]] == one["text"] for one in entities)
    assert {one["label"] for one in entities} <= {"name", "place"}


def test_nothing_is_found_in_a_blank_text_and_all_of_a_long_one_is_read() -> None:
    blank, long = answered(Verb.EXTRACT, {"text": " "}, {"text": "word " * 10_000 + "Ada"})
    assert blank.fields == {"entities": []}
    assert [one["start"] for one in long.fields["entities"]] == [50_000]
    assert not long.truncated


def test_files_are_told_by_size_and_hash() -> None:
    png = {"data": b"\x00\xff" * 50}
    (found,) = answered(Verb.EXTRACT, {"images": [png, {"data": b"x"}], "document": png})
    told = found.fields["data"]
    assert [one["bytes"] for one in told["images"]] == [100, 1]
    assert told["document"][0] == told["images"][0] != told["images"][1]
    assert found.usage == {"images": 2}


def test_items_that_differ_in_their_files_alone_have_vectors_of_their_own() -> None:
    one, other, same = answered(Verb.ENCODE, *({"images": [{"data": data}]} for data in (b"a", b"b", b"a")))
    assert one.fields == same.fields != other.fields
