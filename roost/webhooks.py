"""Endpoints that are told of a caller's events, and what was told to whom: `client.webhooks`.

Objects are those of docs/webhooks.md. Who receives events checks them with `roost.verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from roost import asking, flows
from roost.steps import Patience, Steps, ask
from roost.wire import JSON, MSGPACK, Request, failure, packed

ObjectT = TypeVar("ObjectT")
ListT = TypeVar("ListT")

ENDPOINTS, DELIVERIES = "/v1/webhooks", "/v1/deliveries"
OWN = "/v1/webhook-secret"
_PAGE = 100


class Webhooks(Generic[ObjectT, ListT]):
    """The calls of `client.webhooks`."""

    def __init__(self, run: Callable[[Steps[Any]], Any], patience: Patience) -> None:
        self._run = run
        self._patience = patience

    def create(
        self,
        url: str,
        *,
        events: Sequence[str] | None = None,
        description: str = "",
        inline: bool = False,
        secret: str | None = None,
    ) -> ObjectT:
        """Have a URL told of events, all or those named, such as `job.failed` or `batch.*`. `secret` is told only now.

        It is sent once: after a ConnectionFailed look at `list` before you create it again. Raises RequestRefused for
        a URL where nobody may send, and TooLarge beyond the endpoints that a caller may have.
        """
        body = {"url": url, "description": description, "inline": inline}
        body |= {} if events is None else {"events": list(events)}
        return self._fetch(_post(ENDPOINTS, body | _secret(secret), again=False))

    def list(self, *, most: int = 100) -> ListT:
        """The newest endpoints."""
        found: ListT = self._run(flows.paged(ENDPOINTS, {}, most, _PAGE, self._patience))
        return found

    def get(self, webhook_id: str) -> ObjectT:
        """An endpoint, and how it does. Raises NotFound."""
        return self._fetch(asking.get_json(_path(ENDPOINTS, webhook_id)))

    def update(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        description: str | None = None,
        inline: bool | None = None,
    ) -> ObjectT:
        """Change what is named. What waits to be sent goes to the new URL."""
        given: dict[str, Any] = {"url": url, "events": events, "description": description, "inline": inline}
        body = {name: value for name, value in given.items() if value is not None}
        body |= {} if events is None else {"events": list(events)}
        return self._fetch(_send("PATCH", _path(ENDPOINTS, webhook_id), body))

    def rotate(self, webhook_id: str, *, secret: str | None = None) -> ObjectT:
        """Sign with a new secret, which is told only now; for 24 hours with the one before as well.

        It is sent once: sent twice, the secret that receivers know would be forgotten.
        """
        return self._fetch(_post(_path(ENDPOINTS, webhook_id, "rotate"), _secret(secret), again=False))

    def test(self, webhook_id: str) -> ObjectT:
        """Send a `webhook.test`; the delivery, which tells what comes of it. Raises Conflict if disabled."""
        return self._fetch(_post(_path(ENDPOINTS, webhook_id, "test"), again=False))

    def enable(self, webhook_id: str) -> ObjectT:
        """Tell it of what happens from now on."""
        return self._fetch(_post(_path(ENDPOINTS, webhook_id, "enable")))

    def disable(self, webhook_id: str) -> ObjectT:
        """Send it nothing more. What waits for it is dropped."""
        return self._fetch(_post(_path(ENDPOINTS, webhook_id, "disable")))

    def delete(self, webhook_id: str) -> ObjectT:
        """Forget it and its deliveries. Raises NotFound."""
        found: ObjectT = self._run(_deleted(webhook_id, self._patience))
        return found

    def deliveries(
        self,
        *,
        webhook: str | None = None,
        status: str | None = None,
        type: str | None = None,  # noqa: A002 - as the API has it
        of: str | None = None,
        most: int = 100,
    ) -> ListT:
        """The newest deliveries: to one endpoint, in one state, of one event, of one job, batch or backfill."""
        params = {"webhook": webhook, "status": status, "type": type, "of": of}
        found: ListT = self._run(flows.paged(DELIVERIES, params, most, _PAGE, self._patience))
        return found

    def delivery(self, delivery_id: str) -> ObjectT:
        """A delivery with all its attempts. Raises NotFound."""
        return self._fetch(asking.get_json(_path(DELIVERIES, delivery_id)))

    def redeliver(self, delivery_id: str) -> ObjectT:
        """Begin anew with its attempts, under its `webhook-id`. Raises Conflict if the endpoint is disabled."""
        return self._fetch(_post(_path(DELIVERIES, delivery_id, "redeliver")))

    def redeliver_range(
        self,
        webhook_id: str,
        since: datetime | str,
        until: datetime | str | None = None,
        *,
        status: Sequence[str] | None = None,
        after: str | None = None,
    ) -> ObjectT:
        """The same for deliveries that were created in this time, those that failed or were dropped unless said.

        A thousand at once: call it again while it tells `has_more`, with `after` the `last_id` that it tells. A time is
        a datetime with its zone, or RFC 3339.
        """
        body: dict[str, Any] = {"since": _time(since)}
        body |= {} if until is None else {"until": _time(until)}
        body |= {} if status is None else {"status": list(status)}
        body |= {} if after is None else {"after": after}
        return self._fetch(_post(_path(ENDPOINTS, webhook_id, "redeliver"), body))

    def own_secret(self) -> ObjectT:
        """What signs the webhooks of jobs that name a URL and no secret, as `secret`."""
        return self._fetch(asking.get_json(OWN))

    def rotate_own_secret(self, *, secret: str | None = None) -> ObjectT:
        """Change it. The one before signs nothing more, so receivers must learn of the new one at once."""
        return self._fetch(_post(f"{OWN}/rotate", _secret(secret), again=False))

    def _fetch(self, request: Request) -> ObjectT:
        found: ObjectT = self._run(flows.fetch(request, self._patience))
        return found


def _post(path: str, body: Mapping[str, Any] | None = None, *, again: bool = True) -> Request:
    return _send("POST", path, body, again=again)


def _send(method: str, path: str, body: Mapping[str, Any] | None, *, again: bool = True) -> Request:
    if body is None:
        return Request(method, path, headers={"Accept": JSON}, again=again)
    return Request(method, path, headers={"Accept": JSON, "Content-Type": MSGPACK}, body=packed(body), again=again)


def _deleted(webhook_id: str, patience: Patience) -> Steps[dict[str, Any]]:
    reply = yield from ask(Request("DELETE", _path(ENDPOINTS, webhook_id), headers={"Accept": JSON}), patience)
    if reply.status >= 400:
        raise failure(reply)
    return {"id": webhook_id, "object": "webhook", "deleted": True}


def _secret(secret: str | None) -> dict[str, str]:
    return {} if secret is None else {"secret": secret}


def _time(at: datetime | str) -> str:
    return at if isinstance(at, str) else at.isoformat()


def _path(kind: str, id_: str, change: str = "") -> str:
    return f"{kind}/{quote(id_, safe='')}" + (f"/{change}" if change else "")
