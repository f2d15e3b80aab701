from __future__ import annotations

import errno

import pytest

from catalog.errors import WeightsReason, WeightsUnavailable
from engine.errors import DeviceLost, LoadFailed, LoadReason, OutOfMemory
from engine.failures import COOL_DOWN_S, device_lost, load_failure, out_of_memory


class GatedRepoError(Exception):
    """Named as the hub client's."""


class SafetensorError(Exception):
    """Named as the library's."""


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (GatedRepoError("401"), LoadReason.GATED),
        (SafetensorError("header too short"), LoadReason.CORRUPT),
        (FileNotFoundError(2, "no such file"), LoadReason.NOT_FOUND),
        (ConnectionResetError("reset"), LoadReason.NETWORK),
        (TimeoutError("slow"), LoadReason.NETWORK),
        (ModuleNotFoundError("No module named 'flash_attn'"), LoadReason.DEPENDENCY),
        (MemoryError(), LoadReason.OUT_OF_MEMORY),
        (OutOfMemoryError("CUDA out of memory"), LoadReason.OUT_OF_MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), LoadReason.OUT_OF_MEMORY),
        (EOFError(), LoadReason.CORRUPT),
        (ZeroDivisionError("division by zero"), LoadReason.UNKNOWN),
        (WeightsUnavailable("no", reason=WeightsReason.NETWORK), LoadReason.NETWORK),
        (WeightsUnavailable("no", reason=WeightsReason.CORRUPT), LoadReason.CORRUPT),
    ],
)
def test_a_failed_load_has_a_reason(error: Exception, reason: LoadReason) -> None:
    failure = load_failure("org/model", error)
    assert isinstance(failure, LoadFailed)
    assert failure.reason is reason
    assert "org/model" in failure.message


def test_only_reasons_that_may_pass_are_retryable() -> None:
    retryable = {reason for reason in LoadReason if LoadFailed("", reason).retryable}
    assert retryable == {LoadReason.NETWORK, LoadReason.OUT_OF_MEMORY}


def test_every_reason_cools_down() -> None:
    assert set(COOL_DOWN_S) == set(LoadReason)


def test_a_reason_given_by_the_adapter_stands() -> None:
    error = LoadFailed("mine", LoadReason.CONFIG)
    assert load_failure("m", error) is error


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: device-side assert triggered\nCUDA kernel errors might be ...",
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: unspecified launch failure",
        "CUDA error: uncorrectable ECC error encountered",
    ],
)
def test_a_sticky_error_of_the_device_is_a_lost_device(text: str) -> None:
    lost = device_lost(RuntimeError(text))
    assert isinstance(lost, DeviceLost)
    assert lost.retryable
    assert load_failure("m", RuntimeError(text)).code == "device_lost"


def test_other_errors_do_not_lose_the_device() -> None:
    assert device_lost(RuntimeError("shape mismatch")) is None
    assert device_lost(ValueError("the text says: device-side assert")) is None


def test_running_out_of_memory_is_recognised() -> None:
    assert out_of_memory(OutOfMemory())
    assert out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"))
    assert not out_of_memory(ValueError("out of memory"))
