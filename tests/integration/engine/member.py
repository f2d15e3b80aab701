"""A process on a shared device, in a test's hands: `python -m tests.integration.engine.member FOLDER DEVICE RESERVE`.

The device is a file that says all of it, or a real one as ROOST_DEVICE names it. It reads one call a line, as JSON, and
answers each with one line.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from engine.account import Share
from engine.device import FakeDevice, choose_device
from engine.memory import Memory
from engine.shared_account import SharedAccount


class FileDevice(FakeDevice):
    """A device of which a file says all: its bytes, and those that are free less what the processes named there take.

    So a test takes memory as a foreign process would: by a number, or really.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        super().__init__(self._read()["total"])

    def probe(self) -> Memory:
        told = self._read()
        taken = sum(_resident(pid) for pid in told.get("pids", []))
        return Memory(self.total, max(0, told["free"] - taken), 0)

    def _read(self) -> dict[str, Any]:
        return dict(json.loads(self._file.read_text()))


def answer(account: SharedAccount, call: str, *given: Any) -> Any:
    """What a call comes to."""
    match call:
        case "hold":
            held, pending, *force = given
            return account.hold(Share(held, pending), force=bool(force and force[0]))
        case "race":
            return _race(account, *given)
        case "room":
            return account.room()
        case "want":
            return account.want(*given)
        case "pressed":
            return account.pressed(*given)
        case "others":
            return account.others().held
        case "foreign":
            return [account.foreign(), account.tell_foreign()]
        case "fork":
            return _fork(account)
        case "spawn":
            return subprocess.Popen(["sleep", "60"], close_fds=False).pid
        case _:
            raise ValueError(call)


def _race(account: SharedAccount, times: int, most: int, seed: int) -> list[int]:
    """Ask for more and less at random; how often it was granted and refused."""
    dice, told = random.Random(seed), [0, 0]
    for _ in range(times):
        wish = dice.randint(0, most)
        told[not account.hold(Share(wish, 0))] += 1
    account.hold(Share())
    return told


def _fork(account: SharedAccount) -> list[Any]:
    """A child that lives on, and what came of its use of the parent's account."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            account.hold(Share(1, 1))
            os.write(writer, b"held")
        except RuntimeError:
            os.write(writer, b"refused")
        signal.pause()
        os._exit(1)
    return [pid, os.read(reader, 20).decode()]


def _resident(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def main() -> None:
    """Answer until there is no more to read."""
    folder, device, reserve = sys.argv[1:]
    real = choose_device(device) if device.startswith("cuda") else FileDevice(Path(device))
    account = SharedAccount(real, Path(folder), int(reserve))
    print(json.dumps(os.getpid()), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(account, *json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
