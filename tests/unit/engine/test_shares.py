"""The arithmetic of a shared device, for any number of processes and whatever they ask."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from engine.account import Share
from engine.device import FakeDevice
from engine.memory import Memory, Use
from engine.shared_account import SharedAccount
from engine.shares import fits, foreign, room, tell_foreign, together

BYTES = st.integers(0, 1000)
SHARES = st.builds(lambda held, part: Share(held, held * part // 100), BYTES, st.integers(0, 100))
NOBODY = Share()


def probe(total: int, foreign_bytes: int, shares: list[Share]) -> Memory:
    """What a device says of which these shares, as far as taken, and something foreign have their part."""
    taken = sum(share.held - share.pending for share in shares)
    return Memory(total, max(0, total - foreign_bytes - taken), 0)


@given(st.integers(100, 2000), BYTES, BYTES, st.lists(st.tuples(st.integers(0, 3), SHARES), max_size=40))
def test_whatever_is_asked_all_together_hold_no_more_than_the_device_has_and_is_free(
    total: int, reserve: int, foreign_bytes: int, wishes: list[tuple[int, Share]]
) -> None:
    reserve = min(reserve, total - 1)
    held = [NOBODY] * 4
    for who, wish in wishes:
        # What a process grows by is not taken yet.
        asked = Share(wish.held, max(0, wish.held - (held[who].held - held[who].pending)))
        others = together(share for place, share in enumerate(held) if place != who)
        memory = probe(total, foreign_bytes, held)
        grows = wish.held > held[who].held
        if fits(asked, held[who], others, memory, reserve):
            held[who] = asked
            if grows:
                everybody = together(held)
                assert everybody.held <= total - reserve
                assert everybody.pending <= memory.free
                assert foreign_bytes + everybody.held <= total


@given(SHARES, SHARES, BYTES, BYTES)
def test_there_is_room_for_exactly_what_fits(mine: Share, others: Share, free: int, reserve: int) -> None:
    memory = Memory(2000, free, 0)
    left = room(mine, others, memory, reserve)
    if left:
        assert fits(Share(mine.held + left, mine.pending + left), mine, others, memory, reserve)
    more = left + 1
    assert not fits(Share(mine.held + more, mine.pending + more), mine, others, memory, reserve)


@given(SHARES, SHARES, BYTES)
def test_holding_no_more_than_before_always_fits(mine: Share, others: Share, less: int) -> None:
    assert fits(Share(max(0, mine.held - less)), mine, others, Memory(10, 0, 0), 10)


def test_a_process_is_short_of_what_it_was_given_and_finds_taken(tmp_path: Path) -> None:
    device = FakeDevice(1000)
    account = SharedAccount(device, tmp_path / "ledger", reserve=40, clock=count(step=10).__next__)
    assert account.hold(Share(600, 200))
    device.foreign = 760
    assert account.short(0) == 0
    device.foreign = 860
    assert (account.short(0), account.short(70)) == (100, 30)
    account.close()


def test_a_reserve_that_is_used_by_others_is_not_kept_twice() -> None:
    # Half of it is reserved and more than that is foreign: a twentieth stays free, not another half.
    assert room(NOBODY, NOBODY, Memory(1000, 400, 0), 500) == 350


def test_foreign_is_what_is_used_and_on_nobody_s_account() -> None:
    assert foreign(Memory(100, 30, 0), Share(held=50, pending=10)) == 30
    assert foreign(Memory(100, 90, 0), Share(held=50, pending=10)) == 0


def test_who_takes_most_of_what_is_foreign_is_named() -> None:
    users = [Use(1, 40 * 2**30), Use(4711, 12 * 2**30)]
    assert tell_foreign(12 * 2**30, users, ours={1}) == "foreign 12.0 GiB, of which pid 4711 has 12.0 GiB"
    assert tell_foreign(2**30, []) == "foreign 1.0 GiB"
