"""The cost book: a guess first, then what passes have taught, kept apart by what they ran under."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from catalog.cost import coefficients
from catalog.schema import CostCoefficients, Spec
from engine.costs import CostBook, CostRecord, Pass, Ran

TRUE = CostCoefficients(base=4.0, per_token=0.5, per_square=0.0005)


def spec(**more: Any) -> Spec:
    facts = {"id": "m", "family": "fake", "tasks": {"encode": {"dims": 8}}, "parameters": 22_000_000, "max_length": 256}
    return Spec.model_validate(facts | more)


def passes(
    count: int,
    factor: float = 1.0,
    *,
    size: int = 1024,
    padded: bool = True,
    true: CostCoefficients = TRUE,
    **circumstances: Any,
) -> list[Ran]:
    """Passes of up to `size` tokens that take what `true` says, times `factor`."""
    dice = random.Random(3)
    found = []
    for _ in range(count):
        longest = dice.randint(8, 256)
        lengths = [dice.randint(4, longest) for _ in range(max(1, dice.randint(1, size // longest)) - 1)] + [longest]
        ms = true.batch(len(lengths), longest) if padded else true.packed(lengths)
        found.append(Ran("m", Pass.RUN, lengths, padded, factor * ms / 1000, **circumstances))
    return found


def taught(*ran: Ran, lanes: int = 1, of: Spec | None = None) -> CostBook:
    book = CostBook("cpu", lanes=lanes)
    for one in ran:
        book.observe(one, of or spec())
    return book


def close(found: CostCoefficients | None, true: CostCoefficients, factor: float = 1.0) -> bool:
    """Whether typical items cost the same by both, within a twentieth."""
    assert found is not None
    return all(
        found.batch(n, length) == pytest.approx(factor * true.batch(n, length), rel=0.05)
        for n, length in [(1, 64), (8, 128), (4, 250)]
    )


def test_before_anything_has_run_there_is_the_guess() -> None:
    book = CostBook("cpu")
    assert book.coefficients("m", spec()) == coefficients(spec(), "cpu")
    assert book.price("m") is None
    assert book.batch_tokens("m", 1, 10**6) is None
    assert book.changed() == []


def test_more_threads_are_guessed_to_be_quicker_but_not_as_many_times() -> None:
    book, one = CostBook("cpu"), coefficients(spec(), "cpu")
    four = book.coefficients("m", spec(), threads=4)
    assert one.per_token / 4 < four.per_token < one.per_token / 2
    assert four.base == one.base


def test_what_a_spec_says_itself_is_the_first_guess() -> None:
    assert CostBook("cpu").coefficients("m", spec(cost=TRUE.model_dump()), threads=4) == TRUE


@pytest.mark.parametrize("padded", [True, False])
def test_passes_teach_what_they_cost(padded: bool) -> None:
    book = taught(*passes(100, padded=padded))
    assert close(book.coefficients("m", spec()), TRUE)


def priced(book: CostBook, runs: Sequence[Ran]) -> float:
    """What all items of these passes are priced at together."""
    price = book.price("m")
    assert price is not None
    return sum(len(ran.lengths) * price.batch(1, max(ran.lengths)) for ran in runs)


def test_a_prediction_holds_for_the_pass() -> None:
    book = taught(*passes(100))
    assert book.predict("m", spec(), [10, 100, 30]) == pytest.approx(TRUE.batch(3, 100), rel=0.05)
    assert book.predict("m", spec(), [10, 100, 30], padded=False) == pytest.approx(TRUE.packed([10, 100, 30]), rel=0.05)


def test_models_threads_and_kinds_of_passes_are_apart() -> None:
    book = taught(*passes(60, threads=1), *passes(60, 0.5, threads=4))
    assert close(book.coefficients("m", spec(), threads=1), TRUE)
    assert close(book.coefficients("m", spec(), threads=4), TRUE, 0.5)
    assert book.coefficients("other", spec()) == coefficients(spec(), "cpu")
    assert book.coefficients("m", spec(), Pass.READ) == coefficients(spec(), "cpu")


def test_threads_that_never_ran_are_guessed_from_those_that_did() -> None:
    book = taught(*passes(60, 10, threads=1))
    assert book.coefficients("m", spec(), threads=2).per_token == pytest.approx(5.0 / 2**0.7, rel=0.1)


def test_planning_goes_by_the_circumstances_that_are_usual() -> None:
    book = taught(*passes(30, 1.0, crowded=False), *passes(90, 2.0, crowded=True))
    assert close(book.coefficients("m", spec()), TRUE, 2.0)


def test_a_crowded_pass_is_priced_at_its_share_of_the_device() -> None:
    crowded = passes(60, 2.0, crowded=True)
    book = taught(*crowded, *passes(200, 1.2, threads=4), lanes=4)
    assert priced(book, crowded) == pytest.approx(sum(ran.seconds for ran in crowded) * 1000 / 4, rel=0.15)


def test_without_crowded_passes_the_price_is_all_of_a_pass() -> None:
    alone = passes(60)
    assert priced(taught(*alone, lanes=4), alone) == pytest.approx(sum(ran.seconds for ran in alone) * 1000, rel=0.15)


def test_a_job_among_many_pays_for_its_part_of_a_pass_and_one_by_itself_for_all_of_it() -> None:
    true = CostCoefficients(base=40.0, per_token=0.2)
    full = [Ran("m", Pass.RUN, [50 + n % 3] * 20, False, true.packed([50 + n % 3] * 20) / 1000) for n in range(60)]
    lone = [Ran("m", Pass.RUN, [50 + n % 3], False, true.packed([50 + n % 3]) / 1000) for n in range(60)]
    among, itself = taught(*full).price("m"), taught(*lone).price("m")
    assert among is not None
    assert itself is not None
    assert among.batch(1, 50) == pytest.approx(12.0, rel=0.1)
    assert itself.batch(1, 50) == pytest.approx(50.0, rel=0.1)


def test_a_size_of_batch_that_takes_longer_for_each_token_is_predicted_so() -> None:
    book = CostBook("cpu")
    for small, large in zip(passes(300, size=1024), passes(300, 1.5, size=8192), strict=True):
        book.observe(small, spec())
        book.observe(large, spec())
    wide = TRUE.batch(60, 128)
    assert book.predict("m", spec(), [128] * 60) == pytest.approx(1.5 * wide, rel=0.15)


def test_the_quickest_size_is_found_and_kept_within_bounds() -> None:
    book, of = CostBook("cpu"), spec()
    dice = random.Random(5)
    for _ in range(600):
        tokens = book.batch_tokens("m", 1, 10**6) or 1024
        # Beyond 512 tokens each doubling costs a fifth more.
        slower = 1.0 if tokens <= 512 else (tokens / 512) ** 0.26
        lengths = [64] * (tokens // 64)
        ms = TRUE.batch(len(lengths), 64) * slower * dice.uniform(0.95, 1.05)
        book.observe(Ran("m", Pass.RUN, lengths, True, ms / 1000), of)
    chosen = book.batch_tokens("m", 1, 10**6)
    assert chosen is not None
    assert 256 <= chosen <= 768
    assert book.batch_tokens("m", 2048, 8192) == 2048
    assert book.batch_tokens("m", 1, 128) == 128


def test_a_model_that_is_very_cheap_has_no_best_size() -> None:
    cheap = CostCoefficients(base=0.3, per_token=0.0001)
    assert taught(*passes(200, true=cheap)).batch_tokens("m", 1, 10**6) is None


def test_the_first_size_of_a_cheap_model_is_larger() -> None:
    cheaper = CostCoefficients(base=1, per_token=0.003)
    assert taught(*passes(200, true=cheaper)).batch_tokens("m", 1, 10**6) == 3072


def test_uncrowded_passes_do_not_tell_of_sizes_where_passes_are_crowded() -> None:
    crowded, alone = passes(200, 2.0, crowded=True), passes(200, 1.0, size=500, crowded=False)
    both = taught(*[one for pair in zip(crowded, alone, strict=True) for one in pair])
    only = taught(*crowded)
    assert both.batch_tokens("m", 1, 10**6) == only.batch_tokens("m", 1, 10**6)


def test_a_step_costs_its_weights_its_sequences_and_what_they_hold() -> None:
    book, of = CostBook("cpu"), spec(tasks={"generate": {}})
    dice = random.Random(2)
    for _ in range(200):
        lengths = [dice.randint(1, 500) for _ in range(dice.randint(1, 16))]
        ms = 30 + 2 * len(lengths) + 0.01 * sum(lengths)
        book.observe(Ran("m", Pass.STEP, lengths, False, ms / 1000), of)
        book.observe(Ran("m", Pass.READ, [100], False, 0.054), of)
    found = book.coefficients("m", of, Pass.STEP)
    assert found.base + sum(found.item(length, 1) for length in (100, 300)) == pytest.approx(38, rel=0.05)
    price = book.price("m")
    assert price is not None
    assert 2 < price.per_new < 30 + 2 + 5
    assert price.base + price.item(100) == pytest.approx(54, rel=0.05)


def test_a_first_step_is_guessed_to_read_all_weights_once() -> None:
    of = spec(tasks={"generate": {}})
    found, guess = CostBook("cpu").coefficients("m", of, Pass.STEP), coefficients(of, "cpu")
    assert found.base == guess.base + guess.per_new
    assert found.per_new == guess.per_token


def test_what_was_learned_survives_as_plain_numbers() -> None:
    first = taught(*passes(100, crowded=True), *passes(50, 0.7, threads=2), lanes=2)
    (record,) = first.changed()
    kept = CostRecord(record.model, record.device, orjson.loads(orjson.dumps(record.state)))
    second = CostBook("cpu", [kept], lanes=2)
    for threads in (1, 2):
        assert second.coefficients("m", spec(), threads=threads) == first.coefficients("m", spec(), threads=threads)
    assert second.price("m") == first.price("m") == record.price
    assert second.batch_tokens("m", 1, 10**6) == first.batch_tokens("m", 1, 10**6)
    assert second.changed() == []


def test_a_record_is_told_of_once_for_each_time_it_changes() -> None:
    book = taught(*passes(3))
    assert [record.model for record in book.changed()] == ["m"]
    assert book.changed() == []
    book.observe(passes(1)[0], spec())
    assert [record.model for record in book.changed()] == ["m"]


@pytest.mark.parametrize(
    "state",
    [{}, {"version": 0}, {"version": 1}, {"version": 1, "size": [99, 1], "fits": []}]
    + [{"version": 1, "size": None, "fits": fits} for fits in (7, [[1]], [["run", 1, False, [1.0], []]])],
)
def test_a_record_that_cannot_be_read_is_left_out(state: dict[str, Any]) -> None:
    book = CostBook("cpu", [CostRecord("m", "cpu", state)])
    assert book.coefficients("m", spec()) == coefficients(spec(), "cpu")


def test_records_of_other_hardware_are_left_out() -> None:
    (record,) = taught(*passes(50)).changed()
    assert CostBook("cuda", [record]).price("m") is None


def test_records_that_come_late_do_not_undo_what_was_learned_since() -> None:
    (old,) = taught(*passes(20)).changed()
    book = taught(*passes(100, 3.0))
    book.teach([old])
    assert close(book.coefficients("m", spec()), TRUE, 3.0)
    fresh = taught(*passes(2, 3.0))
    fresh.teach([old])
    assert fresh.coefficients("m", spec()).per_token < 1


@pytest.mark.parametrize("ran", [Ran("m", Pass.RUN, [], True, 1.0), Ran("m", Pass.RUN, [5], True, 0.0)])
def test_a_pass_of_nothing_teaches_nothing(ran: Ran) -> None:
    assert taught(ran).changed() == []


def test_lanes_may_teach_at_the_same_time() -> None:
    book = CostBook("cpu", lanes=4)

    def lane() -> None:
        for one in passes(100, crowded=True):
            book.observe(one, spec())
            book.coefficients("m", spec())
            book.changed()

    lanes = [threading.Thread(target=lane) for _ in range(4)]
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    assert close(book.coefficients("m", spec()), TRUE)


@pytest.mark.parametrize("place", [0, 3, 17])
def test_a_kept_state_that_no_passes_can_have_left_is_left_out(place: int, caplog: pytest.LogCaptureFixture) -> None:
    book = taught(*passes(60))
    (record,) = book.changed()
    state = json.loads(json.dumps(record.state))
    state["fits"][0][3][place] = 1e308 if place < 17 else float("inf")
    again = CostBook("cpu", [CostRecord(record.model, record.device, state, record.price)])
    assert again.predict("m", spec(), [10]) == CostBook("cpu").predict("m", spec(), [10])
    assert "left out" in caplog.text
