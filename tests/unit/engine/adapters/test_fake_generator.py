from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.options import GenerateOptions
from catalog.schema import Spec, Tasks
from catalog.terms import Lane, Verb
from engine.adapters.base import Part, TokenSequence
from engine.adapters.fake_generator import FakeGeneratorAdapter, FakeGeneratorOptions
from engine.errors import EngineError, ItemRejected, OutOfMemory, TextTooLong
from engine.types import Batch, Entry, Item, Output, Work

SPEC = Spec(id="g", family="fake_generator", tasks=Tasks(generate={}), parameters=0, max_length=64)


def adapter(**options: Any) -> FakeGeneratorAdapter:
    return FakeGeneratorAdapter(SPEC, FakeGeneratorOptions.model_validate(options), None, "fake")


def entry(text: object, place: int = 0, **options: Any) -> Entry:
    item = Item(place, {"messages": text} if isinstance(text, list) else {"text": text}, 8, 1.0)
    given = GenerateOptions(**options) if "temperature" in options else SimpleNamespace(**options)
    return Entry(Work("w", "g", Verb.GENERATE, (item,), given, Lane.INTERACTIVE, 5, 0.0), item)


def joined(generator: FakeGeneratorAdapter, text: object, **options: Any) -> TokenSequence:
    sequence = generator.join(entry(text, **options))
    assert isinstance(sequence, TokenSequence)
    return sequence


def to_the_end(generator: FakeGeneratorAdapter, sequence: TokenSequence, parts: Sequence[int]) -> Output:
    """Read the prompt in such parts, then make all tokens."""
    for read in (*parts, *[0] * sequence.most):
        (outcome,) = generator.step([Part(sequence, read)])
        if isinstance(outcome, Output):
            generator.leave(sequence)
            return outcome
    raise AssertionError("it did not end")


def test_the_words_follow_from_the_prompt_alone_however_it_is_read() -> None:
    whole = to_the_end(adapter(), joined(adapter(), "a b c d"), [4])
    parts = to_the_end(adapter(), joined(adapter(), "a b c d"), [1, 2, 1])
    other = to_the_end(adapter(), joined(adapter(), "a b c e"), [4])
    assert whole == parts
    assert whole.fields["text"] != other.fields["text"]
    assert (len(whole.fields["text"].split()), whole.tokens) == (16, 20)


def test_what_is_said_only_grows_and_the_text_begins_with_it() -> None:
    generator = adapter(new_tokens=4)
    sequence = joined(generator, "a b")
    said, outcome = [sequence.said], generator.step([Part(sequence, 2)])[0]
    while outcome is None:
        said.append(sequence.said)
        outcome = generator.step([Part(sequence)])[0]
    assert isinstance(outcome, Output)
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(said))
    assert len(set(said)) == 4
    assert outcome.fields["text"].startswith(said[-1])
    assert outcome.usage == {"prompt_tokens": 2, "completion_tokens": 4}


def test_side_by_side_is_as_alone() -> None:
    generator = adapter(new_tokens=5)
    entries = tuple(entry(f"prompt {n}") for n in range(4))
    together = generator.run(Batch(1, "g", Verb.GENERATE, entries))
    assert [generator.run(Batch(1, "g", Verb.GENERATE, (one,)))[0] for one in entries] == together
    assert generator.caches == 0


def test_what_a_caller_asks_for_is_the_most_it_gets() -> None:
    output = to_the_end(adapter(), joined(adapter(), "a", max_tokens=3), [1])
    assert (len(output.fields["text"].split()), output.fields["finish_reason"]) == (3, "length")


def test_an_early_end_is_told() -> None:
    generator = adapter(new_tokens=30, early_end=True)
    outputs = [to_the_end(generator, joined(generator, f"p{n}"), [1]) for n in range(20)]
    assert {output.fields["finish_reason"] for output in outputs} == {"stop"}
    assert len({output.tokens for output in outputs}) > 5


def test_an_open_cache_is_counted_from_the_first_step_until_the_sequence_leaves() -> None:
    generator = adapter()
    first, second = joined(generator, "a b"), joined(generator, "c")
    assert generator.caches == 0
    generator.step([Part(first, 1), Part(second, 1)])
    assert generator.caches == 2
    generator.leave(first)
    generator.leave(first)
    assert generator.caches == 1
    unused = joined(generator, "d")
    generator.leave(unused)
    assert generator.caches == 1


@pytest.mark.parametrize(("text", "error"), [(None, ItemRejected), (" ", ItemRejected), ("a " * 49, TextTooLong)])
def test_what_cannot_be_a_sequence_says_why(text: object, error: type[EngineError]) -> None:
    assert isinstance(adapter().join(entry(text)), error)


@pytest.mark.parametrize("read", [0, 3])
def test_a_step_that_does_not_fit_its_sequence_is_an_error(read: int) -> None:
    generator = adapter()
    with pytest.raises(ValueError, match="reads what is not there"):
        generator.step([Part(joined(generator, "a b"), read)])


def test_items_of_one_job_draw_by_themselves_and_the_same_each_time() -> None:
    def said(place: int, **options: Any) -> str:
        text: str = to_the_end(adapter(), joined(adapter(), "a b", place=place, **options), [2]).fields["text"]
        return text

    assert said(0, temperature=0.0, seed=1) == said(1, temperature=0.0, seed=2)
    drawn = [said(place, temperature=1.0, seed=seed) for seed in (1, 2) for place in range(3)]
    assert len(set(drawn)) == 6
    assert drawn == [said(place, temperature=1.0, seed=seed) for seed in (1, 2) for place in range(3)]
    assert said(0, temperature=1.0) != said(1, temperature=1.0)


def test_the_texts_of_a_conversation_are_its_prompt() -> None:
    parts = [{"type": "text", "text": "c"}, {"type": "image"}]
    talk = [{"role": "system", "content": "a b"}, {"role": "user", "content": parts}]
    assert to_the_end(adapter(), joined(adapter(), talk), [3]) == to_the_end(
        adapter(), joined(adapter(), "a b\nc"), [3]
    )


@pytest.mark.parametrize("text", ["one", " two  words\n", '{"a": 1}\n\n\tb'])
def test_an_echo_is_the_last_text_to_the_letter(text: str) -> None:
    generator = adapter(echo=True)
    talk = [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]
    output = to_the_end(generator, joined(generator, talk), [2 + len(text.split())])
    assert (output.fields["text"], output.fields["finish_reason"]) == (text, "stop")


def test_an_echo_that_is_cut_says_so() -> None:
    output = to_the_end(adapter(echo=True), joined(adapter(echo=True), "a b c", max_tokens=2), [3])
    assert (output.fields["text"], output.fields["finish_reason"]) == ("a b ", "length")


def test_faults_happen_as_declared() -> None:
    generator = adapter(faults=[{"kind": "oom", "at_call": 1}, {"kind": "error", "when_text": "bad"}], most_tokens=4)
    good, bad, long = joined(generator, "good"), joined(generator, "bad"), joined(generator, "a b c d e")
    with pytest.raises(OutOfMemory):
        generator.step([Part(good, 1)])
    with pytest.raises(RuntimeError, match="cannot read"):
        generator.step([Part(bad, 1)])
    with pytest.raises(OutOfMemory):
        generator.step([Part(long, 5)])
    assert generator.step([Part(good, 1), Part(long, 3)]) == [None, None]
