"""From a request in native form to a submission: known model, valid options, files, counted texts, a price, a queue.

Files by URL are fetched here and by nobody else: what is stored and what a worker reads has them in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from starlette.datastructures import Headers

from api.services import Door
from catalog.terms import Verb
from tasks.errors import InvalidRequest
from tasks.messages import Submission
from tasks.prepare import check, check_key, price
from tasks.request import parse_request

P = ParamSpec("P")
R = TypeVar("R")


async def admit(it: Door, raw: object, *, caller: str, large: bool = False, key: str | None = None) -> Submission:
    """The submission of a decoded body of POST /v1/jobs, for this caller. Nothing is accepted yet.

    `large` has it read in a thread: it came in many bytes. Raises a TaskError or a CatalogError that names the field.
    """
    now, limits = it.clock(), it.limits_of(caller)
    asked_for = await off_loop(large, parse_request, raw, limits.max_items)
    await it.asking.meet(asked_for.model)
    # A grammar is compiled, and large files are looked into.
    slow = large or (asked_for.verb is Verb.GENERATE and "grammar" in asked_for.options)
    checked = await off_loop(slow, check, asked_for, it.catalog, limits)
    await it.presence.admit(checked.choice.key)
    if checked.sources:
        checked = await it.fetching.fill(checked, caller)
    counts = await it.counting.count(checked.choice.spec, checked.texts, checked.chars)
    return price(checked, counts, now=now, cost=it.prices.of(checked.choice), key=key, caller=caller)


async def off_loop(slow: bool, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call it, in a thread if it may take long enough to hold up the event loop."""
    return await asyncio.to_thread(call, *args, **kwargs) if slow else call(*args, **kwargs)


def key_of(headers: Headers) -> str | None:
    """The only Idempotency-Key. Which of two would count is nobody's guess. Raises InvalidRequest."""
    keys = headers.getlist("idempotency-key")
    if len(keys) > 1:
        raise InvalidRequest("'Idempotency-Key' must be given once.", param="Idempotency-Key")
    return check_key(keys[0] if keys else None)
