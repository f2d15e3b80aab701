from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from catalog.schema import CostCoefficients
from catalog.terms import Lane, Verb
from engine.backlog import Backlog, Flow, Kind, Ticket
from engine.batcher import Bounds
from engine.types import Entry, Work

MakeWork = Callable[..., Work]
MakeTicket = Callable[..., Ticket]

KIND = Kind("m", Verb.ENCODE, Lane.INTERACTIVE)
FREE = CostCoefficients(base=0.0, per_token=0.0)
ANY = Bounds(256, 10**9, FREE)
TIGHT = Bounds(256, 100, CostCoefficients(base=1.0, per_token=0.1))


@pytest.fixture
def ticket(make_work: MakeWork) -> MakeTicket:
    """A ticket of a given length; of one flow unless another is given."""
    numbers, own = count(), Flow()

    def make(length: int = 8, flow: Flow = own, cost: float = 1.0) -> Ticket:
        work = make_work(lengths=[length])
        return Ticket(Entry(work, work.items[0]), length, flow, cost, 1.0, next(numbers))

    return make


def filled(*tickets: Ticket) -> Backlog:
    backlog = Backlog(KIND)
    for ticket in tickets:
        backlog.add(ticket)
    return backlog


def test_an_empty_backlog_has_no_head() -> None:
    backlog = Backlog(KIND)
    assert backlog.head() is None
    assert backlog.oldest() is None


def test_the_anchor_comes_first_and_its_own_length_next(ticket: MakeTicket) -> None:
    tickets = [ticket(length) for length in (11, 20, 10, 20, 10, 20)]
    backlog = filled(*tickets)
    assert backlog.take(tickets[3], ANY) == [tickets[i] for i in (3, 1, 5, 0, 2, 4)]


def test_the_nearest_lengths_join_first(ticket: MakeTicket) -> None:
    tickets = {length: ticket(length) for length in (50, 10, 49, 53, 52, 90)}
    taken = filled(*tickets.values()).take(tickets[50], Bounds(4, 10**9, FREE))
    assert [t.length for t in taken] == [50, 49, 52, 53]


def test_the_padded_tokens_bound_what_joins(ticket: MakeTicket) -> None:
    tickets = [ticket(30) for _ in range(10)]
    assert len(filled(*tickets).take(tickets[0], TIGHT)) == 3


def test_a_length_too_far_above_does_not_shut_out_what_is_below(ticket: MakeTicket) -> None:
    anchor, above, below = ticket(30), ticket(95), ticket(29)
    assert filled(anchor, above, below).take(anchor, TIGHT) == [anchor, below]


def test_what_was_taken_is_not_there_any_more(ticket: MakeTicket) -> None:
    tickets = [ticket(10) for _ in range(6)]
    backlog = filled(*tickets)
    backlog.take(tickets[2], Bounds(3, 10**9, FREE))
    assert backlog.waiting == 3
    assert backlog.head() is tickets[3]
    assert backlog.oldest() is tickets[3]


def test_a_dropped_ticket_is_passed_over(ticket: MakeTicket) -> None:
    tickets = [ticket(10) for _ in range(3)]
    backlog = filled(*tickets)
    backlog.drop(tickets[0])
    backlog.drop(tickets[0])
    assert backlog.waiting == 2
    assert backlog.head() is tickets[1]
    assert backlog.take(tickets[1], ANY) == tickets[1:]


def test_the_turn_passes_to_the_flow_that_has_had_less(ticket: MakeTicket) -> None:
    first, second = Flow(), Flow()
    tickets = [ticket(flow=first), ticket(flow=first), ticket(flow=second)]
    backlog = filled(*tickets)
    assert backlog.head() is tickets[0]
    first.served += 5.0
    assert backlog.head() is tickets[2]


def test_flows_share_a_batch_by_what_they_have_had_with_what_is_in_it_already(ticket: MakeTicket) -> None:
    early, late = Flow(), Flow()
    first = [ticket(flow=early, cost=20.0) for _ in range(6)]
    second = [ticket(flow=late) for _ in range(6)]
    backlog = filled(*first, *second)
    late.served = 1.5
    taken = backlog.take(first[0], Bounds(6, 10**9, CostCoefficients(base=0.0, per_token=0.125)))
    assert [t.flow is late for t in taken] == [False, False, True, False, True, False]
    assert backlog.waiting == 6


def test_a_flow_that_was_charged_less_than_was_said_is_not_passed_over(ticket: MakeTicket) -> None:
    said, other = Flow(), Flow()
    dear = [ticket(flow=said, cost=100.0), ticket(flow=said, cost=1.0)]
    plain = ticket(flow=other, cost=90.0)
    backlog = filled(*dear, plain)
    backlog.take(dear[0], Bounds(1, 10**9, FREE))
    said.served += 1.0
    assert backlog.head() is dear[1]
    assert backlog.take(plain, Bounds(2, 10**9, FREE)) == [plain, dear[1]]


def test_what_has_gone_does_not_pile_up_behind_what_stays(ticket: MakeTicket) -> None:
    stays = ticket(500)
    backlog = filled(stays)
    for number in range(20_000):
        passing = ticket(8 + number % 3, flow=Flow())
        backlog.add(passing)
        if number % 2:
            backlog.drop(passing)
        else:
            backlog.take(passing, Bounds(1, 10**9, FREE))
    assert backlog.waiting == 1
    assert backlog.head() is stays
    kept = len(backlog._arrivals) + len(backlog._flows) + sum(map(len, backlog._by_length.values()))
    assert kept < 5000


def test_without_padding_the_nearest_lengths_join_first_and_shorter_ones_fill_up(ticket: MakeTicket) -> None:
    tickets = {length: ticket(length) for length in (50, 10, 47, 60, 300)}
    taken = filled(*tickets.values()).take(tickets[50], Bounds(256, 120, FREE, padded=False))
    assert [t.length for t in taken] == [50, 47, 10]


def test_what_the_caller_wants_soonest_goes_first_in_its_flow(make_work: MakeWork) -> None:
    flow, backlog = Flow(), Backlog(KIND)
    works = [make_work(), make_work(deadline=9.0), make_work(deadline=5.0), make_work()]
    for number, work in enumerate(works):
        backlog.add(Ticket(Entry(work, work.items[0]), 8, flow, 1.0, 1.0, number))
    order = []
    while (head := backlog.head()) is not None:
        backlog.take(head, Bounds(1, 10**9, FREE))
        order.append(head.entry.work)
    assert order == [works[2], works[1], works[0], works[3]]
    assert backlog.waiting == 0
