"""What an exception out of a model library means: no memory, a lost device, or a reason why a load failed.

Libraries are recognised by the names of their exceptions, so that none is imported for that.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Mapping

from pydantic import ValidationError

from catalog.errors import RoostError, WeightsUnavailable
from engine.errors import DeviceLost, EngineError, LoadFailed, LoadReason, ModelTooLarge, OutOfMemory

COOL_DOWN_S: Mapping[LoadReason, float] = {
    LoadReason.NETWORK: 10.0,
    LoadReason.OUT_OF_MEMORY: 5.0,
    LoadReason.UNKNOWN: 30.0,
    LoadReason.NOT_FOUND: 60.0,
    LoadReason.GATED: 60.0,
    LoadReason.CORRUPT: 60.0,
    LoadReason.CONFIG: 300.0,
    LoadReason.TIMEOUT: 600.0,
    LoadReason.DEPENDENCY: 300.0,
}
"""Seconds for which a model that failed to load is not tried again, and its works fail at once."""

_ADVICE: Mapping[LoadReason, str] = {
    LoadReason.NOT_FOUND: "Check the model's source in its YAML.",
    LoadReason.GATED: "Accept the model's terms and give the worker a token (HF_TOKEN).",
    LoadReason.OUT_OF_MEMORY: "Free memory on the device, or raise ROOST_BUDGET if it has more.",
    LoadReason.NETWORK: "Check the worker's way to the model hub, or put the files in place.",
    LoadReason.DEPENDENCY: "Install what the model's family needs on the worker.",
    LoadReason.CORRUPT: "Delete the model's files, so that they are fetched again.",
    LoadReason.CONFIG: "Mend the model's YAML.",
    LoadReason.TIMEOUT: "Raise ROOST_LOAD_LIMIT_S if the model needs longer.",
    LoadReason.UNKNOWN: "See the worker's log.",
}

_REASONS: Mapping[str, LoadReason] = {
    "GatedRepoError": LoadReason.GATED,
    "RepositoryNotFoundError": LoadReason.NOT_FOUND,
    "RevisionNotFoundError": LoadReason.NOT_FOUND,
    "RemoteEntryNotFoundError": LoadReason.NOT_FOUND,
    "LocalEntryNotFoundError": LoadReason.NETWORK,
    "HfHubHTTPError": LoadReason.NETWORK,
    "TransportError": LoadReason.NETWORK,
    "ConnectionError": LoadReason.NETWORK,
    "TimeoutError": LoadReason.NETWORK,
    "FileNotFoundError": LoadReason.NOT_FOUND,
    "ImportError": LoadReason.DEPENDENCY,
    "SafetensorError": LoadReason.CORRUPT,
    "UnpicklingError": LoadReason.CORRUPT,
    "JSONDecodeError": LoadReason.CORRUPT,
    "EOFError": LoadReason.CORRUPT,
    "BadZipFile": LoadReason.CORRUPT,
    "MemoryError": LoadReason.OUT_OF_MEMORY,
    "OutOfMemoryError": LoadReason.OUT_OF_MEMORY,
    "OutOfMemory": LoadReason.OUT_OF_MEMORY,
    "ValidationError": LoadReason.CONFIG,
    "InvalidSpec": LoadReason.CONFIG,
}
_DEVICE_LOST = (
    "device-side assert",
    "illegal memory access",
    "unspecified launch failure",
    "uncorrectable ecc",
    "misaligned address",
    "device unavailable",
    "context is destroyed",
    "cublas_status_execution_failed",
    "gpu has fallen off the bus",
    "device lost",
)
_NO_MEMORY = ("out of memory", "cannot allocate memory", "can't allocate memory", "cublas_status_alloc_failed")


def load_failure(name: str, error: BaseException) -> EngineError:
    """The error of a failed load: DeviceLost, ModelTooLarge, or else LoadFailed with reason and advice."""
    if isinstance(error, LoadFailed | ModelTooLarge | DeviceLost):
        return error
    lost = device_lost(error)
    if lost is not None:
        return lost
    reason = _reason(error)
    if isinstance(error, RoostError):
        return LoadFailed(f"{name} could not be loaded ({reason}). {error.message}", reason)
    said = _first_line(error)
    return LoadFailed(f"{name} could not be loaded ({reason}): {said}. {_ADVICE[reason]}", reason)


def let_go(error: BaseException) -> None:
    """Have an error hold nothing of the calls that it came through: their frames would keep what they had in memory.

    For one that is kept, and before memory is asked for again.
    """
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        one = chain.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        chain += [one.__cause__, one.__context__]
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = one.__cause__ = one.__context__ = None


def device_lost(error: BaseException) -> DeviceLost | None:
    """DeviceLost if the error says that the device cannot compute any more in this process."""
    if isinstance(error, DeviceLost):
        return error
    text = str(error).lower()
    if isinstance(error, RuntimeError) and any(sign in text for sign in _DEVICE_LOST):
        sign = next(sign for sign in _DEVICE_LOST if sign in text)
        return DeviceLost(f"The device reported {sign!r} and cannot compute any more in this process; it restarts.")
    return None


def out_of_memory(error: BaseException) -> bool:
    """Whether the error says that memory ran out."""
    if isinstance(error, OutOfMemory | MemoryError):
        return True
    if any(base.__name__ == "OutOfMemoryError" for base in type(error).__mro__):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _NO_MEMORY)


def _reason(error: BaseException) -> LoadReason:
    if isinstance(error, WeightsUnavailable):
        return LoadReason(error.reason.value)
    if out_of_memory(error):
        return LoadReason.OUT_OF_MEMORY
    names = [base.__name__ for base in type(error).__mro__]
    return next((_REASONS[name] for name in names if name in _REASONS), LoadReason.UNKNOWN)


def _first_line(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"load option {'.'.join(str(part) for part in first['loc'])!r}: {first['msg']}"
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}".rstrip(": .")
