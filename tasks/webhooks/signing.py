"""Secrets of webhooks and signatures with them, as Standard Webhooks 1.0 has them."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from standardwebhooks import Webhook

from tasks.errors import TaskError

PREFIX = "whsec_"
LEAST_BYTES, MOST_BYTES = 24, 64
_NEW_BYTES = 32


class SecretInvalid(TaskError):
    """A secret is 'whsec_' and 24 to 64 random bytes in base64. Leave it out, and one is made."""

    code = "secret_invalid"


def new_secret() -> bytes:
    """A secret that nobody can guess."""
    return secrets.token_bytes(_NEW_BYTES)


def shown_secret(secret: bytes) -> str:
    """A secret as its owner has it."""
    return PREFIX + base64.b64encode(secret).decode()


def parsed_secret(text: str, param: str = "secret") -> bytes:
    """The bytes of a secret in the form that is shown. Raises SecretInvalid; the message does not repeat the secret."""
    if text.startswith(PREFIX):
        try:
            secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except (ValueError, binascii.Error):
            secret = b""
        if LEAST_BYTES <= len(secret) <= MOST_BYTES:
            return secret
    raise SecretInvalid(f"{param!r} must be {PREFIX!r} and {LEAST_BYTES} to {MOST_BYTES} bytes in base64.", param=param)


def message_id(delivery: UUID) -> str:
    """The `webhook-id` of a delivery: the same in all its attempts."""
    return f"msg_{delivery.hex}"


def headers(delivery: UUID, at: datetime, body: bytes, keys: Sequence[bytes]) -> Mapping[str, str]:
    """The headers of one attempt: a signature with each secret over the id, the time of this attempt and the body."""
    name = message_id(delivery)
    signed = [Webhook(key).sign(name, at, body.decode()) for key in keys]
    return {
        "content-type": "application/json",
        "user-agent": "Roost-Webhooks/1",
        "webhook-id": name,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signed),
    }
