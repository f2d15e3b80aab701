"""`roost webhooks deliveries`, `redeliver` and `test`: what was told to whom."""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from deploy.commands.connecting import QUICK_S, as_json, to_server, told_in_a_line
from deploy.commands.showing import age, show
from roost import Client
from tasks.webhooks.schedule import State

_AGAIN = (State.FAILED, State.DROPPED, State.DELIVERED)
"""The states out of which deliveries are sent again; what is pending is about to be sent anyway."""

_SPAN = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
LOOK_S = 0.5
TEST_S = 20.0
"""For how long `test` waits for what comes of it: an attempt has its limit, 15 s unless the operator says otherwise."""


@click.command()
@click.argument("delivery_id", metavar="[DELIVERY]", required=False)
@click.option("--webhook", metavar="ID", help="Only those to this endpoint.")
@click.option("--status", type=click.Choice([state.value for state in State]), help="Only those in this state.")
@click.option("--event", "kind", help="Only those of this event, such as job.failed.")
@click.option("--of", metavar="ID", help="Only those of this job, batch or backfill.")
@click.option("--most", default=20, show_default=True, type=click.IntRange(1), help="At most so many.")
@to_server
@as_json
def deliveries(
    delivery_id: str | None,
    webhook: str | None,
    status: str | None,
    kind: str | None,
    of: str | None,
    most: int,
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """List what was told to whom, newest first, or every attempt of one DELIVERY."""
    with told_in_a_line(), connected(url, api_key) as client:
        if delivery_id is not None:
            _attempts(client.webhooks.delivery(delivery_id), as_json=as_json)
            return
        found = client.webhooks.deliveries(webhook=webhook, status=status, type=kind, of=of, most=most)
    if as_json:
        click.echo(json.dumps(found))
        return
    names = ("id", "type", "of", "webhook", "state", "attempts", "age")
    rows = [(*(one[name] or "-" for name in names[:4]), one["status"], one["attempts"], _age(one)) for one in found]
    show(names, rows)


@click.command()
@click.argument("delivery_id", metavar="[DELIVERY]", required=False)
@click.option("--webhook", metavar="ID", help="The endpoint, instead of one delivery.")
@click.option(
    "--since", metavar="TIME", help="Of --webhook: those made from then on: 2026-05-01T08:00:00Z, or 2h: two hours ago."
)
@click.option("--until", metavar="TIME", help="Of --webhook: those made before; now, if left out.")
@click.option(
    "--status",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in _AGAIN]),
    help="Left out: failed and dropped.",
)
@to_server
@as_json
def redeliver(
    delivery_id: str | None,
    webhook: str | None,
    since: str | None,
    until: str | None,
    states: tuple[str, ...],
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Send one DELIVERY again, or those of an endpoint from a time, each under the `webhook-id` that it had."""
    if (delivery_id is None) == (webhook is None) or (webhook is None) != (since is None):
        raise click.UsageError("Name one DELIVERY, or --webhook and --since.")
    now = datetime.now(UTC)
    with told_in_a_line(), connected(url, api_key) as client:
        if delivery_id is not None:
            sent = client.webhooks.redeliver(delivery_id)
            click.echo(json.dumps(sent) if as_json else sent["status"])
            return
        # The end of the time is fixed, so that what comes meanwhile does not make it longer.
        span = moment(since or "", now), now if until is None else moment(until, now)
        count, more = 0, True
        after: str | None = None
        while more:
            found = client.webhooks.redeliver_range(webhook or "", *span, status=states or None, after=after)
            count, more, after = count + found["redelivered"], found["has_more"], found["last_id"]
    click.echo(json.dumps({"redelivered": count}) if as_json else f"{count} sent again")


def moment(text: str, now: datetime) -> datetime:
    """A time as it is written, or so long ago as `2h`, `30m` or `1d`. Without a zone it is this machine's."""
    if (match := _SPAN.fullmatch(text)) is not None:
        return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time; write 2026-05-01T08:00:00Z, or 2h for two hours ago.") from None


@click.command()
@click.argument("webhook_id", metavar="ID")
@click.option("--wait/--no-wait", default=True, help="Wait for the first attempt, or print the delivery's id.")
@to_server
@as_json
def test(webhook_id: str, wait: bool, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Send the endpoint ID an event, and tell what came of it."""
    with told_in_a_line(), connected(url, api_key) as client:
        sent = client.webhooks.test(webhook_id)
        if not wait:
            click.echo(json.dumps(sent) if as_json else sent["id"])
            return
        found = _tried(client, sent["id"])
    if as_json:
        click.echo(json.dumps(found))
    else:
        click.echo(f"{found['id']}: {told(found)}")
    if found["status"] != "delivered":
        sys.exit(1)


def told(delivery: dict[str, Any]) -> str:
    """What came of a delivery so far, by its last attempt."""
    if not delivery["tried"]:
        return "not tried yet; is `roost sender` running?"
    last = delivery["tried"][-1]
    if delivery["status"] == "delivered":
        return f"delivered, {last['status']} after {last['duration_ms']} ms"
    return f"{last['error']} ({delivery['status']}, attempt {last['number']})"


def _tried(client: Client, delivery_id: str) -> dict[str, Any]:
    """The delivery after its first attempt, or after TEST_S."""
    until = time.monotonic() + TEST_S
    while True:
        found = client.webhooks.delivery(delivery_id)
        if found["tried"] or found["status"] != "pending" or time.monotonic() >= until:
            return found
        time.sleep(LOOK_S)


def _attempts(delivery: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(delivery))
        return
    click.echo(f"{delivery['id']}: {delivery['type']} of {delivery['of']}, {delivery['status']}")
    if delivery["next_at"]:
        click.echo(f"next attempt at {delivery['next_at']}")
    rows = [
        (one["number"], one["at"], one["duration_ms"], one["status"] or "-", one["error"] or "")
        for one in delivery["tried"]
    ]
    if rows:
        show(("attempt", "at", "ms", "status", "error"), rows)


def _age(delivery: dict[str, Any]) -> str:
    return age(datetime.fromisoformat(delivery["created_at"]))


def connected(url: str | None, api_key: str | None) -> Client:
    """A client that soon says so where no server is."""
    return Client(url, api_key, patience_s=QUICK_S)
