from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import CostCoefficients, Spec
from engine.adapters.base import TokenSequence
from engine.backlog import Flow
from engine.costs import CostBook, Pass, Ran
from engine.passes import Lesson
from engine.seats import Seat
from engine.stepping import LEAST_READ, Sitting, StepCost, StepLimits, StepPlan, lessons, plan_step
from engine.types import Entry, Work

MakeWork = Callable[..., Work]
Sit = Callable[..., Sitting]

COST = StepCost(CostCoefficients(base=2.0, per_token=0.1), CostCoefficients(base=4.0, per_token=0.0, per_new=1.0))
FREE = StepCost(CostCoefficients(base=0.0, per_token=0.0), CostCoefficients(base=0.0, per_token=0.0))
ANY = StepLimits(50.0)


@pytest.fixture(scope="session")
def sit(make_work: MakeWork) -> Sit:
    """A sequence with a prompt of `prompt` tokens, of which `read` are read."""

    def make(prompt: int = 10, read: int = 0, turn: int = 0, *, alone: bool = False) -> Sitting:
        work = make_work(alone=alone)
        entry = Entry(work, work.items[0])
        sequence = TokenSequence(entry, prompt, 16)
        sequence.read = read
        return Sitting(sequence, Seat(entry, Flow(), 1.0, 0), turn=turn)

    return make


def reads(plan: StepPlan) -> list[int]:
    return [part.read for part in plan.parts]


def test_nobody_sits_and_nothing_is_planned() -> None:
    assert plan_step([], COST, ANY) == StepPlan()


def test_all_that_make_a_token_go_together(sit: Sit) -> None:
    sittings = [sit(read=10) for _ in range(5)]
    plan = plan_step(sittings, COST, ANY)
    assert list(plan.sittings) == sittings
    assert reads(plan) == [0] * 5
    assert plan.cost_ms == 4.0 + 5 * 1.0
    assert sum(plan.shares) == pytest.approx(plan.cost_ms)


def test_a_short_prompt_is_read_whole(sit: Sit) -> None:
    plan = plan_step([sit(prompt=100)], COST, ANY)
    assert reads(plan) == [100]
    assert plan.cost_ms == pytest.approx(12.0)


def test_a_long_prompt_is_read_in_parts_that_fit_the_time(sit: Sit) -> None:
    long = sit(prompt=1000)
    parts = []
    while long.sequence.unread:
        plan = plan_step([long], COST, ANY)
        assert plan.cost_ms <= 50.0
        parts += reads(plan)
        long.sequence.read += parts[-1]
    assert parts == [480, 480, 40]


def test_those_that_make_go_before_those_that_read(sit: Sit) -> None:
    reader, maker = sit(prompt=1000), sit(read=10)
    plan = plan_step([reader, maker], COST, ANY)
    assert list(plan.sittings) == [maker, reader]
    assert reads(plan) == [0, 450]


def test_the_weights_are_gone_through_once_for_reading_and_making(sit: Sit) -> None:
    plan = plan_step([sit(prompt=10), sit(read=10)], COST, ANY)
    assert plan.cost_ms == pytest.approx(4.0 + 1.0 + 1.0)


def test_who_had_no_part_in_the_last_step_goes_first(sit: Sit) -> None:
    makers = [sit(read=10, turn=7) for _ in range(60)]
    left_out = sit(prompt=1000, turn=6)
    plan = plan_step([*makers, left_out], COST, ANY)
    assert plan.sittings[0] is left_out


def test_no_sequence_is_left_out_for_long(sit: Sit) -> None:
    sittings = [sit(read=10) for _ in range(100)]
    for turn in range(1, 10):
        for sitting in plan_step(sittings, COST, ANY).sittings:
            sitting.turn = turn
    assert min(sitting.turn for sitting in sittings) >= 7


def test_a_prompt_is_read_however_dear_that_is(sit: Sit) -> None:
    dear = StepCost(CostCoefficients(base=0.0, per_token=100.0), COST.step)
    assert reads(plan_step([sit(prompt=1000)], dear, ANY)) == [LEAST_READ]


def test_free_prompts_are_read_whole(sit: Sit) -> None:
    assert reads(plan_step([sit(prompt=1000), sit(prompt=2000)], FREE, ANY)) == [1000, 2000]


def test_reading_on_costs_more_the_longer_the_prompt_has_become(sit: Sit) -> None:
    square = StepCost(CostCoefficients(base=0.0, per_token=0.01, per_square=0.001), COST.step)
    first = reads(plan_step([sit(prompt=5000)], square, ANY))[0]
    later = reads(plan_step([sit(prompt=5000, read=1000)], square, ANY))[0]
    assert square.reading(0, first) <= 50.0 < square.reading(0, first + 1)
    assert square.reading(1000, 1000 + later) <= 50.0 < square.reading(1000, 1001 + later)
    assert later < first


def test_memory_bounds_the_tokens_of_a_step(sit: Sit) -> None:
    plan = plan_step([sit(read=10), sit(read=10), sit(prompt=1000)], COST, StepLimits(50.0, tokens=30))
    assert reads(plan) == [0, 0, 28]
    assert plan.tokens == 30


def test_memory_bounds_the_sequences_of_a_step(sit: Sit) -> None:
    assert len(plan_step([sit(read=10) for _ in range(9)], COST, StepLimits(50.0, sequences=2)).parts) == 2


def test_what_a_lack_of_memory_has_cut_comes_back_step_by_step() -> None:
    limits = ANY.cut(3, 100)
    assert (limits.sequences, limits.tokens) == (3, 100)
    assert limits.mended(1) == limits
    assert limits.mended(100).sequences == 6
    assert ANY.mended(100) == ANY


def test_a_sequence_alone_has_its_steps_for_itself(sit: Sit) -> None:
    alone, other = sit(read=10, alone=True, turn=1), sit(read=10, turn=2)
    assert plan_step([other, alone], COST, ANY).sittings == (alone,)
    alone.turn = 3
    plan = plan_step([other, alone], COST, ANY)
    assert plan.sittings == (other,)
    assert not plan.alone


_SITTINGS = st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 3000), st.integers(0, 3)), min_size=1, max_size=20)
_COEFFICIENTS = st.builds(
    CostCoefficients,
    base=st.floats(0, 60),
    per_token=st.floats(0, 1),
    per_square=st.floats(0, 0.01),
    per_new=st.floats(0, 5),
)


@given(_SITTINGS, _COEFFICIENTS, _COEFFICIENTS, st.floats(1, 100), st.none() | st.integers(1, 2000))
def test_no_step_is_predicted_to_take_longer_than_allowed_but_by_one_least_part(
    sit: Sit,
    rows: list[tuple[int, int, int]],
    read: CostCoefficients,
    step: CostCoefficients,
    ms: float,
    tokens: int | None,
) -> None:
    sittings = [sit(prompt, min(have, prompt), turn) for prompt, have, turn in rows]
    cost = StepCost(read, step)
    plan = plan_step(sittings, cost, StepLimits(ms, tokens=tokens))
    assert plan.parts
    assert len({id(part.sequence) for part in plan.parts}) == len(plan.parts)
    assert sum(plan.shares) == pytest.approx(plan.cost_ms)
    for part in plan.parts:
        assert 0 <= part.read <= part.sequence.unread
        assert part.read or not part.sequence.unread
    if tokens is not None:
        assert plan.tokens <= tokens
    if plan.cost_ms > ms * (1 + 1e-6):
        assert len(plan.parts) == 1
        assert plan.parts[0].read <= LEAST_READ


def test_a_token_costs_what_its_sequence_holds_by_then(sit: Sit) -> None:
    cost = StepCost(COST.read, CostCoefficients(base=4.0, per_token=0.01, per_new=1.0))
    plan = plan_step([sit(prompt=1000, read=1000)], cost, ANY)
    assert plan.cost_ms == pytest.approx(15.0)


def test_a_step_of_one_kind_teaches_it_all_of_its_time(sit: Sit) -> None:
    making = plan_step([sit(read=10), sit(prompt=30, read=30)], COST, ANY)
    assert lessons(making, COST) == [Lesson(Pass.STEP, [10, 30])]
    reading = plan_step([sit(prompt=100, read=40)], COST, ANY)
    assert lessons(reading, COST) == [Lesson(Pass.READ, [100], [40])]


def test_a_step_that_reads_and_makes_teaches_both_their_predicted_parts(sit: Sit) -> None:
    plan = plan_step([sit(read=10), sit(prompt=100)], COST, ANY)
    step, read = sorted(lessons(plan, COST), key=lambda lesson: lesson.part)
    assert (step.kind, list(step.lengths), read.kind, list(read.lengths)) == (Pass.STEP, [10], Pass.READ, [100])
    # 4 + 1 by itself, 2 + 10 by itself, and 4 + 1 + 10 together.
    assert [step.part, read.part] == pytest.approx([5 / 15, 12 / 15])


def test_nothing_is_taught_where_nothing_is_known(sit: Sit) -> None:
    assert lessons(plan_step([sit(read=10)], FREE, ANY), FREE) == []


def test_reading_is_learned_from_steps_that_make_tokens_too(sit: Sit, make_spec: Callable[..., Spec]) -> None:
    """On a device where reading takes four times what is guessed, and prompts are read in parts beside others."""
    true = StepCost(CostCoefficients(base=5.0, per_token=0.4, per_square=0.001), COST.step)
    spec, book = make_spec(cost=CostCoefficients(base=4.0, per_token=0.1, per_new=1.0)), CostBook("fake")

    def known() -> StepCost:
        return StepCost(book.coefficients("m", spec, Pass.READ), book.coefficients("m", spec, Pass.STEP))

    for number in range(300):
        sittings = [sit(read=10 + number % 40) for _ in range(1 + number % 5)]
        if number % 2:
            sittings.append(sit(prompt=60 + 37 * (number % 9), read=30 * (number % 3)))
        plan = plan_step(sittings, known(), StepLimits(1e9))
        reads = [true.reading(part.sequence.read, part.sequence.read + part.read) for part in plan.parts if part.read]
        makes = [true.making(part.sequence) for part in plan.parts if not part.read]
        seconds = (max(true.step.base, true.read.base if reads else 0.0) + sum(reads) + sum(makes)) / 1000
        for one in lessons(plan, known()):
            book.observe(Ran("m", one.kind, one.lengths, False, one.part * seconds, begun=one.begun), spec)
    for begin, end in ((0, 60), (0, 200), (60, 350)):
        assert known().reading(begin, end) == pytest.approx(true.reading(begin, end), rel=0.15)
    assert known().making(sit(read=30).sequence) + known().step.base == pytest.approx(5.0, rel=0.15)
