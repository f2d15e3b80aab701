from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.account import Share
from engine.ledger import Ledger
from engine.memory import Memory
from tests.unit.engine.watching import Pool


def test_the_ledger_counts_weights_and_what_is_lent() -> None:
    ledger = Ledger(1000)
    ledger.hold("a", 300, 50)
    ledger.lend(100)
    assert (ledger.weights, ledger.lendable, ledger.held("a")) == (300, 600, 300)
    ledger.lend(-100)
    ledger.free("a")
    assert (ledger.weights, ledger.lendable, ledger.held("a")) == (0, 1000, 0)


def test_room_for_weights_leaves_the_largest_activation_floor_free() -> None:
    ledger = Ledger(1000)
    ledger.hold("a", 300, 200)
    assert ledger.room(floor=50) == 500
    assert ledger.room(floor=400) == 300


def test_a_correction_after_the_measurement_replaces_the_estimate() -> None:
    ledger = Ledger(1000)
    ledger.hold("a", 300, 0)
    ledger.hold("a", 1200, 0)
    assert ledger.excess == 200


def test_what_fits_beside_pinned_models_fits_ever() -> None:
    ledger = Ledger(1000)
    assert ledger.fits_ever(900, 100)
    assert not ledger.fits_ever(901, 100)
    assert not ledger.fits_ever(600, 100, beside=301)


@pytest.fixture
def pool() -> Pool:
    return Pool(1000)


def test_what_leaves_makes_room_before_it_has_gone() -> None:
    ledger = Ledger(1000)
    ledger.hold("a", 600, 0)
    assert ledger.room(0) == 400
    ledger.leave("a")
    assert (ledger.room(0), ledger.weights) == (1000, 600)


def test_room_that_was_promised_is_promised_once() -> None:
    ledger = Ledger(1000)
    ledger.reserve("a", 600, 50)
    assert ledger.room(0) == 350


def test_a_promise_is_kept_once_who_leaves_has_gone(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.hold("old", 800, 0)
    ledger.leave("old")
    ledger.reserve("new", 700, 0)
    assert not ledger.given_up("new")
    assert not ledger.take("new")
    assert pool.share.held == 800
    ledger.free("old")
    assert ledger.given_up("new")
    assert ledger.take("new")
    assert pool.share == Share(700, 700)


def test_what_the_process_takes_itself_beyond_its_models_is_not_foreign(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.hold("a", 300, 50)
    # 300 of weights and 120 of its own, 200 of other workers, 80 of somebody else.
    pool.taken = 200
    assert ledger.foreign(Memory(1000, 300, 420)) == 80


def test_what_was_loaded_is_not_pending_any_more(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.reserve("a", 300, 50)
    ledger.take("a")
    ledger.hold("a", 310, 50)
    assert pool.share == Share(360, 50)


def test_on_a_device_without_memory_all_stays_pending(pool: Pool) -> None:
    ledger = Ledger(1000, pool, phantom=True)
    ledger.hold("a", 300, 50)
    assert pool.share == Share(350, 350)


def test_a_batch_within_what_earlier_ones_took_asks_nobody(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.hold("a", 300, 50)
    ledger.lend(200, "a")
    ledger.lend(-200, "a")
    asked = pool.asked
    for size in (50, 200, 120):
        assert ledger.try_lend(size, "a")
        assert ledger.lent_to("a") == size
        ledger.lend(-size, "a")
    assert pool.asked == asked
    assert pool.share.held == 500


def test_what_batches_no_longer_need_is_given_back(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.hold("a", 300, 50)
    ledger.lend(200)
    ledger.refresh()
    assert pool.share.held == 500
    ledger.lend(-200)
    ledger.refresh()
    assert pool.share.held == 350


def test_a_batch_that_the_account_has_no_room_for_gets_nothing(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.hold("a", 300, 50)
    pool.taken = 600
    assert not ledger.try_lend(101)
    assert (ledger.lent, pool.share.held) == (0, 350)
    assert ledger.lendable == 100
    assert ledger.try_lend(100)


def test_what_others_hold_bounds_what_can_be_lent_and_loaded(pool: Pool) -> None:
    pool.taken = 400
    ledger = Ledger(900, pool)
    ledger.hold("a", 300, 50)
    assert (ledger.lendable, ledger.room(0), ledger.reach()) == (300, 250, 900)
    pool.total = 800
    ledger.refresh()
    assert (ledger.lendable, ledger.room(0), ledger.reach()) == (100, 50, 800)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reserve", "take", "hold", "free", "leave", "lend", "return", "refresh"]),
            st.sampled_from("abc"),
            st.integers(0, 400),
        ),
        max_size=40,
    )
)
def test_the_share_covers_all_that_was_taken_and_lent(steps: list[tuple[str, str, int]]) -> None:
    pool = Pool(1000)
    ledger = Ledger(1000, pool)
    promised: set[str] = set()
    lent: list[int] = []
    for step, model, size in steps:
        if step == "reserve" and not ledger.held(model):
            ledger.reserve(model, size, 10)
            promised.add(model)
        elif step == "take" and model in promised:
            ledger.take(model)
        elif step == "hold":
            ledger.hold(model, size, 10)
            promised.discard(model)
        elif step == "free":
            ledger.free(model)
            promised.discard(model)
        elif step == "leave":
            ledger.leave(model)
        elif step == "lend" and ledger.try_lend(size):
            lent.append(size)
        elif step == "return" and lent:
            ledger.lend(-lent.pop())
        elif step == "refresh":
            ledger.refresh()
        loaded = sum(ledger.held(name) for name in "abc" if name not in promised)
        assert pool.share.held >= loaded + ledger.lent
        assert 0 <= pool.share.pending <= pool.share.held
        assert ledger.lent == sum(lent)


def test_what_a_newcomer_was_promised_is_not_lent_where_others_leave_less_than_the_budget() -> None:
    ledger = Ledger(1000, Pool(500))
    ledger.hold("a", 100, 0)
    ledger.refresh()
    assert ledger.lendable == 400
    ledger.reserve("b", 300, 0)
    assert ledger.lendable == 100


def test_what_is_lent_is_waited_for_only_as_long_as_that_helps(pool: Pool) -> None:
    ledger = Ledger(1000, pool)
    ledger.hold("a", 300, 0)
    ledger.reserve("b", 300, 0)
    pool.taken = 300
    ledger.lend(200)
    ledger.refresh()
    assert not ledger.repaid
    assert not ledger.out_of_reach
    pool.taken = 500
    ledger.refresh()
    assert ledger.out_of_reach
