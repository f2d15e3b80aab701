"""What fake models are told to do wrong, and when: the one place of it for every family that has no model."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from engine.errors import LoadReason, OutOfMemory


class Fault(StrEnum):
    """What can go wrong on purpose: two at a load, one at a return from host memory, the others at a run."""

    SLOW_LOAD = "slow_load"
    FAIL_LOAD = "fail_load"
    FAIL_RESTORE = "fail_restore"
    OOM = "oom"
    MEMORY_ERROR = "memory_error"
    NAN = "nan"
    CRASH = "crash"
    """The process kills itself, as the kernel does when memory runs out."""
    HANG = "hang"
    """The call does not end until it is interrupted."""
    ERROR = "error"
    DEVICE_LOST = "device_lost"
    """This call and all later ones fail as a card does after a sticky error."""
    WRONG_COUNT = "wrong_count"


AT_LOAD = frozenset({Fault.SLOW_LOAD, Fault.FAIL_LOAD})
AT_RESTORE = frozenset({Fault.FAIL_RESTORE})
AT_RUN = frozenset(Fault) - AT_LOAD - AT_RESTORE
WITHOUT_VECTORS = AT_RUN - {Fault.NAN}
"""What can go wrong in a run of a family whose outputs are no numbers."""


class FaultRule(BaseModel):
    """When a fault happens: on every call, or as narrowed.

    `at_call` is the n-th load, restore or run, counted from 1, and then `times` calls from there on (one by default).
    Without it, `times` bounds how often the rule applies in all. `when_text` asks for an item that contains it,
    `over_items` for a batch of more items than that. `seconds` belongs to slow_load, `reason` to fail_load and
    fail_restore.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Fault
    at_call: Annotated[int, Field(ge=1)] | None = None
    times: Annotated[int, Field(ge=1)] | None = None
    when_text: str | None = None
    over_items: Annotated[int, Field(ge=0)] | None = None
    seconds: Annotated[float, Field(ge=0)] = 0.0
    reason: LoadReason = LoadReason.UNKNOWN

    def applies(self, call: int, applied: int, texts: Sequence[str]) -> bool:
        """Whether the fault happens on this call, having happened `applied` times."""
        if self.at_call is not None and not self.at_call <= call < self.at_call + (self.times or 1):
            return False
        if self.at_call is None and self.times is not None and applied >= self.times:
            return False
        if self.over_items is not None and len(texts) <= self.over_items:
            return False
        return self.when_text is None or any(self.when_text in text for text in texts)


def only(known: Collection[Fault]) -> Callable[[tuple[FaultRule, ...]], tuple[FaultRule, ...]]:
    """A check of a family's options: a fault that it does not have is refused, not left out in silence."""

    def check(rules: tuple[FaultRule, ...]) -> tuple[FaultRule, ...]:
        for rule in rules:
            if rule.kind not in known:
                have = ", ".join(sorted(known))
                raise ValueError(f"this family has no fault {rule.kind.value!r}; it has {have}")
        return rules

    return check


class Faults:
    """The rules of one model and how often each has applied. `interrupted` ends a hanging call."""

    def __init__(self, rules: Sequence[FaultRule], interrupted: threading.Event) -> None:
        self._rules = rules
        self._interrupted = interrupted
        self._applied = [0] * len(rules)
        self._lost = False

    def due(self, call: int, texts: Sequence[str], kinds: Collection[Fault] = AT_RUN) -> list[FaultRule]:
        """The rules of these kinds that apply to this call. Not to be called from two threads at once."""
        due = []
        for index, rule in enumerate(self._rules):
            if rule.kind in kinds and rule.applies(call, self._applied[index], texts):
                self._applied[index] += 1
                due.append(rule)
        return due

    def meet(self, rules: Sequence[FaultRule], texts: Sequence[str]) -> None:
        """Fail a run as its rules say. Those about its outputs, `nan` and `wrong_count`, are for the family to apply.

        After `device_lost` every later run fails too.
        """
        for rule in rules:
            self._meet(rule.kind, texts)
        if self._lost:
            raise RuntimeError("CUDA error: device-side assert triggered")

    def _meet(self, kind: Fault, texts: Sequence[str]) -> None:
        match kind:
            case Fault.OOM:
                raise OutOfMemory
            case Fault.MEMORY_ERROR:
                raise MemoryError
            case Fault.ERROR:
                # As libraries do, with the input in the message: it must go no further.
                raise RuntimeError(f"cannot read {texts!r}")
            case Fault.CRASH:
                os.kill(os.getpid(), signal.SIGKILL)
            case Fault.HANG:
                self._interrupted.wait()
                raise RuntimeError("interrupted")
            case Fault.DEVICE_LOST:
                self._lost = True


def short_by_one(rules: Sequence[FaultRule]) -> bool:
    """Whether the run is to give one outcome too few."""
    return any(rule.kind is Fault.WRONG_COUNT for rule in rules)
