"""Giving work its jobs: admitted, put into rows, and offered again for as long as the service is busy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from api.feeding.halt import Halt
from api.feeding.services import Feeding
from api.limits import LEFT
from tasks.errors import BrokerUnavailable, Overloaded, StoreUnavailable
from tasks.messages import Submission
from tasks.tenant_limits import Later

RETRY_S = 1.0
"""How soon is offered again what could not be taken in just now."""

LATER_S = 5.0
"""How soon it is looked again whether a tenant may go on: its limits can be raised meanwhile."""

BUSY = (Overloaded, StoreUnavailable, BrokerUnavailable)


@dataclass(slots=True)
class Pace:
    """Whether the last job of some work had to wait for its tenant's limits."""

    held: bool = False


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of one piece of work. Once it is halted no more are taken in."""

    it: Feeding
    halt: Halt
    pace: Pace = field(default_factory=Pace)

    async def admitted(self, admit: Callable[[], Awaitable[Submission]]) -> Submission | None:
        """The job that `admit` makes; None when the work is halted first. Raises what the door refuses with."""
        while self.halt.stop is None:
            try:
                return await admit()
            except FileNotFoundError:
                raise
            except (*BUSY, OSError):
                await self.halt.sleep(RETRY_S)
        return None

    async def allowed(self, job: Submission) -> bool:
        """Wait until the limits of its tenant let this job in; False when the work is halted first.

        Half of what may come at once is left to calls, which would be refused where this waits.
        """
        self.pace.held = False
        while self.halt.stop is None:
            try:
                await self.it.tenants.look(job.caller)
                await self.it.limiter.admit(job, left=LEFT)
            except Later as error:
                self.pace.held = True
                await self.halt.sleep(min(error.retry_after_s or LATER_S, LATER_S))
            except BUSY:
                await self.halt.sleep(RETRY_S)
            else:
                return True
        return False

    async def put(self, job: Submission, *, again: bool) -> None:
        """See that a job has its row, unless the work is halted. `again`: it may be there already."""
        while self.halt.stop is None:
            try:
                job = await self.it.submitter.offloaded(job)
                await (self.it.submitter.keep(job) if again else self.it.submitter.accept(job))
            except BUSY:
                again = True
                await self.halt.sleep(RETRY_S)
            else:
                return
