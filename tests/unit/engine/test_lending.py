"""A batch takes no more of the device than the account that all workers share has for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import lending
from engine.engine import Engine
from engine.ledger import Ledger
from engine.lending import borrow
from engine.snapshot import ModelState
from engine.types import Output, Work
from tests.unit.engine.recorder import Recorder
from tests.unit.engine.watching import Pool

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]


def ledger(pool: Pool) -> Ledger:
    """Books of 1000 bytes with a model of 300, and 100 kept for its batches."""
    books = Ledger(1000, pool)
    books.hold("m", 300, 100)
    return books


def test_a_batch_that_has_room_is_lent_all_of_it() -> None:
    pool = Pool(1000)
    assert borrow(ledger(pool), "m", 1, [100] * 4, 400) == (400, 4)
    assert pool.share.held == 700


def test_of_a_batch_that_is_refused_as_many_items_as_fit_are_computed_at_once() -> None:
    pool = Pool(1000)
    books = ledger(pool)
    pool.taken = 500
    assert borrow(books, "m", 1, [100] * 4, 400) == (200, 2)
    assert pool.share.held == 500


def test_nothing_is_lent_where_not_even_one_item_has_room() -> None:
    pool = Pool(1000)
    books = ledger(pool)
    pool.taken = 600
    assert borrow(books, "m", 1, [150], 150) == (0, 0)
    assert (books.lent, pool.share.held) == (0, 400)


def test_a_model_that_takes_nothing_is_never_refused() -> None:
    pool = Pool(1000)
    pool.taken = 1000
    assert borrow(Ledger(1000, pool), "m", 0, [10, 20], 40) == (0, 2)


@given(st.integers(0, 1000), st.lists(st.integers(1, 400), min_size=1, max_size=8), st.integers(1, 3))
def test_no_loan_passes_the_account(taken: int, lengths: list[int], per_token: int) -> None:
    pool = Pool(1000)
    books = ledger(pool)
    pool.taken = taken
    lent, items = borrow(books, "m", per_token, lengths, len(lengths) * max(lengths))
    assert pool.share.held <= max(400, 1000 - taken)
    assert lent == items * per_token * max(lengths)
    assert items or per_token * max(lengths) > max(100, 700 - taken)


def there(make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, pool: Pool, *names: str) -> Engine:
    """An engine of 2000 bytes with these models loaded, of 100 bytes each and 512 for their batches."""
    models = {name: {"bytes": 100, "activation_bytes": 1} for name in names}
    engine = make_engine(models, budget_bytes=2000, account=pool)
    works = [now_work(model=name) for name in names]
    engine.submit(works)
    recorder.results(*works)
    return engine


def model(engine: Engine, name: str) -> ModelState:
    return next(state for state in engine.snapshot().models if state.model == name)


def test_a_batch_whose_room_others_took_meanwhile_runs_in_parts(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    pool = Pool(2000)
    engine = there(make_engine, recorder, now_work, pool, "m")
    pool.taken = 900
    work = now_work(lengths=[400] * 4)
    engine.submit([work])
    (done,) = recorder.results(work)
    assert all(isinstance(outcome, Output) for outcome in done.outcomes)
    assert pool.most <= 1100
    assert model(engine, "m").activations == 0


def test_an_idle_model_leaves_for_an_item_that_has_no_room(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    pool = Pool(2000)
    engine = there(make_engine, recorder, now_work, pool, "idle", "m")
    pool.taken = 2000 - pool.share.held
    before = pool.share.held
    work = now_work(lengths=[600])
    engine.submit([work])
    (done,) = recorder.results(work)
    assert isinstance(done.outcomes[0], Output)
    assert model(engine, "idle").evictions == 1
    assert pool.share.held <= before


def test_an_idle_model_leaves_for_an_item_that_would_pass_the_budget(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork
) -> None:
    pool = Pool(2**40)
    engine = there(make_engine, recorder, now_work, pool, "idle", "m")
    work = now_work(lengths=[1850])
    engine.submit([work])
    (done,) = recorder.results(work)
    assert isinstance(done.outcomes[0], Output)
    assert model(engine, "idle").evictions == 1
    assert pool.most <= engine.snapshot().ledger.budget


def test_an_item_for_which_nothing_here_can_make_room_runs_in_the_end(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "WAIT_S", 0.05)
    pool = Pool(2000)
    engine = there(make_engine, recorder, now_work, pool, "m")
    pool.taken = 2000 - pool.share.held
    work = now_work(lengths=[600])
    engine.submit([work])
    (done,) = recorder.results(work)
    assert isinstance(done.outcomes[0], Output)
    assert model(engine, "m").activations == 0


def test_an_item_without_room_takes_it_as_soon_as_others_give_it_back(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "WAIT_S", 1000.0)
    pool = Pool(2000)
    engine = there(make_engine, recorder, now_work, pool, "m")
    pool.taken = 2000 - pool.share.held
    work = now_work(lengths=[600])
    engine.submit([work])
    assert engine.drain(0.1) is False
    pool.taken = 0
    (done,) = recorder.results(work)
    assert isinstance(done.outcomes[0], Output)
    assert pool.most == 700
