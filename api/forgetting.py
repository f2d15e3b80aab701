"""What goes at once: the results of jobs with `store` false, when they were answered, and blobs of deleted jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.services import Services
from tasks.errors import TaskError
from tasks.jobs import Job
from tasks.store import spent

log = logging.getLogger(__name__)


def once(it: Services, job: Job, reply: Response) -> Response:
    """The reply that tells the result of this job; if the job is not kept, it is the only one that does."""
    return reply if job.keep else OnlyReply(it, job.id, reply)


class OnlyReply(Response):
    """Sends a reply, and empties the job of what is told in it before the last byte goes out.

    So whoever has all of it knows that nothing is left, and whoever left before the end can ask again.
    """

    def __init__(self, it: Services, id_: UUID, reply: Response) -> None:
        super().__init__(reply.body, reply.status_code, media_type=reply.media_type)
        self.raw_headers = reply.raw_headers
        self._it = it
        self._id = id_

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        body = bytes(self.body)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": body[:-1], "more_body": True})
        # The server waits with the next piece until this one is on its way, or the caller has left.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await asyncio.sleep(0)
        if not await Request(scope, receive).is_disconnected():
            await forget(self._it, self._id)
        await send({"type": "http.response.body", "body": body[-1:]})


async def forget(it: Services, id_: UUID) -> None:
    """Empty an ended job that is not kept. What cannot be done now is done by the next sweeps."""
    try:
        await remove(it, await it.database.run(spent.forget_results, [id_]))
    except TaskError as error:
        log.warning("what job %s leaves goes later: %s", id_, error.code)


async def remove(it: Services, keys: Sequence[str]) -> None:
    """Remove blobs that no row names any more; what cannot be removed now is removed later. Raises StoreUnavailable."""
    if keys:
        await it.database.run(spent.done, await it.contents.delete(keys))
