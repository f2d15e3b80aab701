"""One account of a device for real processes: whatever they ask and however they die, the device is never overdrawn."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.account import Share
from engine.entries import Entries
from engine.shared_account import SharedAccount

Join = Callable[..., Any]
MIB = 2**20


def test_what_one_holds_another_cannot(join: Join) -> None:
    one, two = join(), join()
    assert one.hold(600)
    assert not two.hold(301)
    assert two.hold(300)
    assert not one.hold(601)
    assert (one.call("room"), one.call("others"), two.call("others")) == (0, 300, 600)


def test_what_is_given_up_another_may_have(join: Join) -> None:
    one, two = join(), join()
    assert one.hold(900)
    assert one.hold(100)
    assert two.hold(800)


def test_who_waits_presses_the_others_until_there_is_room_or_it_is_gone(join: Join) -> None:
    one, two, three = join(), join(), join()
    assert one.hold(600)
    two.call("want", 400)
    # A hold is refused on what is true now, and what it has read is not asked again at once.
    assert not one.hold(901)
    assert (one.call("pressed", 600), two.call("pressed", 0), three.call("pressed", 0)) == (True, False, True)
    assert one.hold(500)
    assert not one.call("pressed", 500)
    two.kill()
    assert one.hold(600)
    assert not one.call("pressed", 600)


def test_who_waits_for_more_than_others_could_give_presses_nobody(join: Join) -> None:
    one, two = join(), join()
    assert one.hold(600)
    two.call("want", 500)
    assert not one.hold(901)
    assert not one.call("pressed", 99)
    assert one.call("pressed", 200)


def test_what_was_taken_already_is_put_on_the_account_even_where_it_does_not_fit(join: Join) -> None:
    one, two = join(), join()
    assert one.hold(600)
    assert two.call("hold", 500, 0, True)
    assert not one.hold(601)
    assert not two.hold(501)
    assert one.hold(300)
    assert two.hold(600)


def test_what_is_reserved_and_not_taken_yet_must_be_free(card: Any, join: Join) -> None:
    one, two = join(), join()
    card.say(free=450)
    assert not one.hold(500, 500)
    assert one.hold(300, 300)
    assert not two.hold(200, 200)
    assert two.hold(100, 100)
    card.say(free=150)
    # One has taken it: only what two has not counts against the free now.
    assert one.hold(300, 0)
    assert one.call("room") == 0


def test_two_that_race_never_hold_more_than_there_is(join: Join, card: Any, folder: Path) -> None:
    racers = [join() for _ in range(3)]
    watcher = Entries(folder, card.device().identity)
    for seed, racer in enumerate(racers):
        racer.begin("race", 2000, 700, seed)
    seen = []
    for _ in range(500):
        with watcher.locked() as locked:
            assert locked
            seen.append(sum(share.held for share in watcher.others().values()))
    told = [racer.end() for racer in racers]
    watcher.leave()
    assert max(seen) <= 900
    assert all(granted and refused for granted, refused in told)


def test_what_a_killed_process_held_is_free_at_once(join: Join, folder: Path) -> None:
    one, two = join(), join()
    assert one.hold(900)
    assert not two.hold(900)
    one.kill()
    assert two.hold(900)
    assert len(list(folder.glob("*.share"))) == 1


def test_a_stopped_process_keeps_what_its_memory_keeps(join: Join) -> None:
    one, two = join(), join()
    assert one.hold(900)
    one.stop()
    assert not two.hold(1)
    one.go_on()
    assert one.hold(0)
    assert two.hold(900)


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_what_a_process_started_does_not_keep_its_account_alive(
    join: Join, kill_later: Callable[[int], None], way: str
) -> None:
    one, two = join(), join()
    assert one.hold(900)
    told = one.call(way)
    kill_later(told[0] if way == "fork" else told)
    assert way == "spawn" or told[1] == "refused"
    # What the child closed is still locked for its parent.
    assert not two.hold(900)
    one.kill()
    assert two.hold(900)


def test_memory_that_a_foreign_process_really_takes_is_not_given_away(
    card: Any, join: Join, kill_later: Callable[[int], None]
) -> None:
    take = "import sys; block = bytearray(200 * 2**20); block[::4096] = b'x' * len(block[::4096]); print('has it');"
    foreigner = subprocess.Popen([sys.executable, "-c", f"{take} sys.stdin.read()"], **_PIPES)
    kill_later(foreigner.pid)
    with foreigner:
        assert foreigner.stdout is not None
        assert foreigner.stdout.readline()
        card.say(free=300 * MIB, total=300 * MIB, pids=(foreigner.pid,))
        one = join(0)
        assert not one.hold(150 * MIB, 150 * MIB)
        assert one.hold(50 * MIB, 50 * MIB)
        assert one.call("foreign")[0] > 200 * MIB
        foreigner.kill()
        foreigner.wait(30)
        assert one.hold(290 * MIB, 290 * MIB)


_PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


def test_a_process_that_was_stopped_with_the_lock_in_hand_holds_nobody_up(account: SharedAccount, folder: Path) -> None:
    assert account.hold(Share(500))
    [lock] = folder.glob("*.lock")
    with lock.open() as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        assert not account.hold(Share(501))
        assert account.hold(Share(400))
        assert account.room() == 500
    assert account.hold(Share(501))


def test_a_lock_that_cannot_be_had_is_waited_for_once(account: SharedAccount, folder: Path) -> None:
    (lock,) = folder.glob("*.lock")
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not account.hold(Share(100, 0))
        began = time.monotonic()
        for count in range(1, 9):
            assert account.hold(Share(count, 0), force=True)
        assert time.monotonic() - began < 0.2
    assert account.hold(Share(100, 0))


def test_what_could_not_be_written_is_written_once_it_can_be(
    account: SharedAccount, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = join()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert account.hold(Share(400, 0))
    assert other.call("others") == 0
    account.room()
    assert not other.hold(601)
    assert other.call("others") == 400


def test_a_process_goes_on_with_its_account_after_the_lock_alone_was_removed(
    account: SharedAccount, join: Join, folder: Path
) -> None:
    assert account.hold(Share(400, 0))
    (lock,) = folder.glob("*.lock")
    lock.unlink()
    assert account.hold(Share(500, 0))
    assert join().call("others") == 500
    assert len(list(folder.glob("*.share"))) <= 2


@pytest.mark.parametrize("content", [b"", b"half", b"\xff" * 36, b"roost\x00v2" + b"\x01" * 28, b"x" * 4096])
def test_an_entry_that_cannot_be_read_counts_for_nothing_and_harms_nobody(
    account: SharedAccount, card: Any, folder: Path, content: bytes
) -> None:
    entry = folder / f"{card.device().identity}.77.damaged.share"
    entry.write_bytes(content)
    with entry.open() as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        assert account.hold(Share(900))
        assert account.others() == Share()
        assert entry.exists()
    assert account.hold(Share(0))
    assert account.hold(Share(1))
    assert not entry.exists()


def test_an_entry_damaged_in_use_counts_as_it_was_last_read(account: SharedAccount, join: Join, folder: Path) -> None:
    one = join()
    assert one.hold(600)
    assert not account.hold(Share(301))
    [entry] = folder.glob(f"*.{one.pid}.*.share")
    os.truncate(entry, 3)
    assert not account.hold(Share(301))


def test_links_folders_and_pipes_among_the_entries_count_for_nothing(
    account: SharedAccount, card: Any, folder: Path, join: Join
) -> None:
    one = join()
    assert one.hold(400)
    [entry] = folder.glob(f"*.{one.pid}.*.share")
    (folder / f"{card.device().identity}.1.link.share").symlink_to(entry)
    (folder / f"{card.device().identity}.1.folder.share").mkdir()
    os.mkfifo(folder / f"{card.device().identity}.1.pipe.share")
    assert account.hold(Share(500))
    assert account.others().held == 400


def test_processes_find_each_other_again_after_their_folder_was_cleared(join: Join, folder: Path) -> None:
    one, two = join(), join()
    assert one.hold(500)
    shutil.rmtree(folder)
    assert two.hold(400)
    assert one.hold(500)
    assert not two.hold(401)


def test_devices_in_one_folder_have_accounts_of_their_own(account: SharedAccount, card: Any, folder: Path) -> None:
    other = Entries(folder, "another")
    assert account.hold(Share(900))
    with other.locked():
        assert other.others() == {}
    other.leave()


def test_threads_of_one_process_share_its_entry(card: Any, folder: Path, join: Join) -> None:
    watcher = join()
    with ExitStack() as ending:
        account = SharedAccount(card.device(), folder, 100)
        ending.callback(account.close)
        granted: list[bool] = []

        def use() -> None:
            for wish in range(200):
                granted.append(account.hold(Share(wish * 5)))
                account.room()

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(granted) == 800
        assert account.hold(Share(123), force=True)
        assert watcher.call("others") == 123
    assert watcher.hold(900)


def test_room_may_be_a_moment_old_and_a_hold_never_is(card: Any, folder: Path, join: Join) -> None:
    now = [0.0]
    account = SharedAccount(card.device(), folder, 100, clock=lambda: now[0])
    assert account.room() == 900
    assert join().hold(500)
    assert account.room() == 900
    assert not account.hold(Share(401))
    now[0] = 0.06
    assert account.room() == 400
    account.close()


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o700)


def test_a_folder_that_others_may_write_is_refused(card: Any, open_folder: Path) -> None:
    with pytest.raises(Exception, match="ROOST_LEDGER_DIR") as refusal:
        SharedAccount(card.device(), open_folder)
    assert getattr(refusal.value, "code", None) == "ledger_unusable"


def test_a_link_in_place_of_the_folder_is_refused(card: Any, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(Exception, match="ROOST_LEDGER_DIR"):
        SharedAccount(card.device(), tmp_path / "link")


def test_the_folder_and_what_is_in_it_are_this_user_s_alone(account: SharedAccount, folder: Path) -> None:
    assert account.hold(Share(1))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o077 for file in folder.iterdir()} == {0}
