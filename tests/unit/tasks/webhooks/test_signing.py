from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from uuid import UUID

import orjson
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tasks.webhooks.events import payload
from tasks.webhooks.signing import (
    LEAST_BYTES,
    MOST_BYTES,
    SecretInvalid,
    headers,
    message_id,
    new_secret,
    parsed_secret,
    shown_secret,
)

DELIVERY = UUID(int=7)
OLD, NEW, OTHER = b"o" * 24, b"n" * 64, b"x" * 32


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


def verified(key: bytes, body: bytes, sent: dict[str, str]) -> bool:
    """Whether the library takes it with this secret, in the form in which its owner has it."""
    try:
        Webhook(shown_secret(key)).verify(body, sent)
    except WebhookVerificationError:
        return False
    return True


@pytest.mark.parametrize(
    "data",
    [
        {"id": "1"},
        {"name": "Zoë 中文 \U0001f426 \u2028 \x00", "quoted": 'a "b" \\ /'},
        {"floats": [0.1, 1e-7, 1e22, -0.0, 1.0, 3.141592653589793, 5e-324], "large": 2**53 + 1},
        {},
    ],
)
def test_the_library_verifies_the_bytes_that_are_sent(data: dict[str, object], now: datetime) -> None:
    body = payload("job.succeeded", now, data)
    sent = dict(headers(DELIVERY, now, body, [OLD]))
    assert Webhook(shown_secret(OLD)).verify(body, sent)["data"] == orjson.loads(body)["data"]
    assert all(value.isascii() for value in sent.values())


def test_all_secrets_sign_during_a_rotation_and_no_other(now: datetime) -> None:
    body = payload("job.failed", now, {"id": "é"})
    sent = dict(headers(DELIVERY, now, body, [NEW, OLD]))
    assert len(sent["webhook-signature"].split(" ")) == 2
    assert [verified(key, body, sent) for key in (NEW, OLD, OTHER)] == [True, True, False]
    assert not verified(NEW, body + b" ", sent)
    assert not verified(NEW, body, {**sent, "webhook-id": message_id(UUID(int=8))})


def test_each_attempt_has_its_own_time_and_signature_under_the_same_id(now: datetime) -> None:
    body = payload("job.failed", now, {"id": "1"})
    first, second = (dict(headers(DELIVERY, at, body, [OLD])) for at in (now - timedelta(minutes=4), now))
    assert first["webhook-id"] == second["webhook-id"] == "msg_00000000000000000000000000000007"
    assert int(second["webhook-timestamp"]) - int(first["webhook-timestamp"]) == 240
    assert first["webhook-signature"] != second["webhook-signature"]
    assert verified(OLD, body, first)
    assert verified(OLD, body, second)
    assert not verified(OLD, body, {**second, "webhook-timestamp": first["webhook-timestamp"]})


def test_what_was_signed_long_ago_is_refused_by_who_verifies(now: datetime) -> None:
    body = payload("job.failed", now, {"id": "1"})
    assert not verified(OLD, body, dict(headers(DELIVERY, now - timedelta(minutes=6), body, [OLD])))


def test_a_secret_is_shown_so_that_it_can_be_given_back() -> None:
    secret = new_secret()
    assert shown_secret(secret).startswith("whsec_")
    assert parsed_secret(shown_secret(secret)) == secret
    assert new_secret() != secret
    for size in (LEAST_BYTES, MOST_BYTES):
        assert parsed_secret(shown_secret(b"\xff" * size)) == b"\xff" * size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        shown_secret(b"s" * (LEAST_BYTES - 1)),
        shown_secret(b"s" * (MOST_BYTES + 1)),
        base64.b64encode(b"s" * 32).decode(),
        "WHSEC_" + base64.b64encode(b"s" * 32).decode(),
        "whsec_" + base64.b64encode(b"s" * 32).decode().rstrip("="),
        "whsec_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        " " + shown_secret(b"s" * 32),
        shown_secret(b"s" * 32) + "\n",
        "whsec_" + "é" * 32,
        "whsec_" + "s3cret !" * 8,
    ],
)
def test_a_secret_of_the_wrong_form_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SecretInvalid) as caught:
        parsed_secret(text, "webhook.secret")
    assert (caught.value.code, caught.value.param) == ("secret_invalid", "webhook.secret")
    assert caught.value.message == "'webhook.secret' must be 'whsec_' and 24 to 64 bytes in base64."
