"""Dead letters: failed jobs that the server keeps, by their reasons, and trying them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from roost import asking, flows
from roost.steps import Patience, Steps
from roost.wire import JSON, MSGPACK, Request, packed

ObjectT = TypeVar("ObjectT")
ListT = TypeVar("ListT")

PATH = "/v1/dead"


class DeadLetters(Generic[ObjectT, ListT]):
    """The calls of `client.dead`. Filters are `code`, `model`, `verb`, `lane`, `since` and `until` (RFC 3339)."""

    def __init__(self, run: Callable[[Steps[Any]], Any], patience: Patience) -> None:
        self._run = run
        self._patience = patience

    def groups(self, **filters: str | None) -> ListT:
        """Why jobs have failed, and how many of them, those with the most jobs first."""
        found: ListT = self._run(_groups(filters, self._patience))
        return found

    def redrive(
        self,
        ids: Sequence[str] | None = None,
        *,
        killers: bool = False,
        limit: int | None = None,
        after: str | None = None,
        **filters: str | None,
    ) -> ObjectT:
        """Try failed jobs again: those of these ids, or those that match, the oldest first, at most 1,000 at once.

        `killers` takes those, too, that ended their workers. What comes back says how many, which not and why, and
        whether there are more: ask for these with `after` its `last_id`, or what has failed again by then is tried
        once more. Raises RequestRefused, or Overloaded where the limits of the tenant let in none.
        """
        body: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
        body |= {} if ids is None else {"ids": list(ids)}
        body |= {"killers": True} if killers else {}
        body |= {} if limit is None else {"limit": limit}
        body |= {} if after is None else {"after": after}
        headers = {"Content-Type": MSGPACK, "Accept": JSON}
        request = Request("POST", f"{PATH}/redrive", headers=headers, body=packed(body))
        # Asked twice it does no harm: a job that is tried again already has not failed.
        found: ObjectT = self._run(flows.fetch(request, self._patience))
        return found


def _groups(filters: dict[str, str | None], patience: Patience) -> Steps[list[dict[str, Any]]]:
    return list((yield from flows.fetch(asking.get_json(PATH, filters), patience))["data"])
