"""What can go wrong on a device. `code` and `retryable` travel to the caller as they are."""

from __future__ import annotations

from enum import StrEnum

from catalog.errors import RoostError


class EngineError(RoostError):
    """The engine could not do this work; the code says why."""

    code = "engine_error"


class LoadReason(StrEnum):
    """Why a model did not load; each has its own cool-down."""

    NOT_FOUND = "not_found"
    GATED = "gated"
    OUT_OF_MEMORY = "out_of_memory"
    NETWORK = "network"
    DEPENDENCY = "dependency"
    CORRUPT = "corrupt"
    CONFIG = "config"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"


class LoadFailed(EngineError):
    """The model could not be loaded; the message gives the reason and what to do."""

    code = "model_load_failed"

    def __init__(self, message: str, reason: LoadReason) -> None:
        self.reason = reason
        self.retryable = reason in (LoadReason.NETWORK, LoadReason.OUT_OF_MEMORY)
        super().__init__(message)


class ModelTooLarge(EngineError):
    """The model can never fit the device's budget; raise ROOST_BUDGET or choose a smaller model."""

    code = "model_too_large"


class OutOfMemory(EngineError):
    """The device ran out of memory even for this item alone; send a shorter item or raise the budget."""

    code = "out_of_memory"


class NotFinite(EngineError):
    """The model gave NaN or infinity for this item; the input may be outside what the model can take."""

    code = "not_finite"


class WrongCount(EngineError):
    """The model gave another number of results than it got items; report this with the model's name."""

    code = "wrong_result_count"


class ItemRejected(EngineError):
    """The item cannot be read by this model; the message says what is wrong with it."""

    code = "invalid_item"


class TextTooLong(EngineError):
    """The text is longer than the model reads; shorten it or send 'truncate': true."""

    code = "text_too_long"

    @classmethod
    def counted(cls, tokens: int, longest: int) -> TextTooLong:
        """Of a text with so many tokens, where the model reads `longest` and nothing is to be cut."""
        said = f"The text has {tokens} tokens and the model reads {longest}; shorten it or send 'truncate': true."
        return cls(said, param="text")


class ModelFailed(EngineError):
    """The model raised an error on this item alone; the message is the error's own name, never its text."""

    code = "model_failed"


class DeviceLost(EngineError):
    """The device cannot compute any more in this process; the work is handed back and the process restarts."""

    code = "device_lost"
    retryable = True


class DeadlinePassed(EngineError):
    """The job was not done before its deadline; give it more time or a higher priority."""

    code = "deadline_passed"


class DeviceUnavailable(EngineError):
    """The device that was asked for is not there; the message says what ROOST_DEVICE may be on this machine."""

    code = "device_unavailable"


class InvalidBudget(EngineError):
    """A size of memory cannot be read or is more than there is; give bytes, 8GiB, or a share such as 60%."""

    code = "invalid_budget"


class LedgerUnusable(EngineError):
    """The folder of the account that workers on a device share cannot be used; the message says why."""

    code = "ledger_unusable"
