"""Whether what came to a receiver of webhooks was sent by the server, by Standard Webhooks 1.0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from standardwebhooks import Webhook
from standardwebhooks.webhooks import EmptyWebhookSecretError, WebhookVerificationError

from roost.errors import NotSigned


def verify(headers: Mapping[str, str], body: bytes | str, secret: str) -> dict[str, Any]:
    """The event in a request that came: `type`, `timestamp` and `data`. `body` is all of it, as it came.

    Raises NotSigned, for which a receiver answers 400: headers are missing, the signature is of another secret or
    body, or the time is more than five minutes from ours. An event may come more than once, always under the same
    header `webhook-id`: whoever must not act on it twice remembers these.
    """
    try:
        webhook = Webhook(secret)
    except (ValueError, EmptyWebhookSecretError):
        raise NotSigned(
            "The secret is none: it reads 'whsec_' and base64, as it was told when the endpoint was made.",
            param="secret",
        ) from None
    try:
        webhook.verify(body, dict(headers), json_parse=False)
    except (WebhookVerificationError, ValueError) as error:
        raise NotSigned(_HINTS.get(str(error), _OTHER)) from None
    # What was signed is ours, and JSON.
    event: dict[str, Any] = json.loads(body)
    return event


_OTHER = (
    "The signature does not fit. Verify the bytes of the body as they came, before anything decodes them, "
    "and with the secret of this endpoint."
)
_CLOCK = "The time of the request is more than five minutes from ours: an old request, or a clock that is wrong."
_HINTS: Mapping[str, str] = {
    "Missing required headers": "The headers webhook-id, webhook-timestamp and webhook-signature are needed.",
    "Message timestamp too old": _CLOCK,
    "Message timestamp too new": _CLOCK,
}
