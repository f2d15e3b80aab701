"""Becomes another program after tying its life to the parent's; run as a script, between `Popen` and the program.

Done here rather than in a `preexec_fn`, which is unsafe once threads exist. Only the standard library, so that it costs
a few milliseconds: `python -I -S launch.py PARENT SIGNAL UID GID CAPABILITY PROGRAM ARGS…` (UID -1 keeps the user).
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Word(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def main(arguments: list[str]) -> None:
    """Drop the user, keep one capability if asked, ask for a signal at the parent's death, become the program."""
    parent, signal_number, uid, gid, capability = (int(word) for word in arguments[:5])
    program = arguments[5:]
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    if uid >= 0:
        if libc and capability >= 0:
            # The change of user then keeps what `_keep` narrows; without it access(2) would not heed the capability.
            _call(libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        if libc and capability >= 0:
            _keep(libc, capability)
    if libc:
        # After the change of user, which clears it.
        _call(libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0))
    if os.getppid() != parent:
        raise SystemExit("the process that started this one has already ended")
    os.execv(program[0], program)  # noqa: S606 - a shell would be in the way of signals


def _keep(libc: ctypes.CDLL, capability: int) -> None:
    """Carry one capability over the exec into an ordinary program, as an ambient one."""
    header = _Header(_CAPABILITY_VERSION_3, 0)
    words = (_Word * 2)()
    words[0].effective = words[0].permitted = words[0].inheritable = 1 << capability
    _call(libc.capset(ctypes.byref(header), words))
    _call(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0))


def _call(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main(sys.argv[1:])
