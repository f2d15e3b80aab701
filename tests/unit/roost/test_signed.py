from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from roost import NotSigned, RoostError, verify

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
OTHER = "whsec_MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE="
BODY = '{"type":"job.succeeded","timestamp":"2026-05-01T00:00:00Z","data":{"id":"ä"}}'.encode()


def signed(body: bytes = BODY, ago: float = 0.0, *secrets: str) -> dict[str, str]:
    at = datetime.now(UTC) - timedelta(seconds=ago)
    signatures = [Webhook(secret).sign("msg_1", at, body.decode()) for secret in secrets or (SECRET,)]
    return {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": " ".join(signatures),
    }


def test_what_was_signed_is_the_event() -> None:
    assert verify(signed(), BODY, SECRET) == json.loads(BODY)
    assert verify(signed(), BODY.decode(), SECRET)["type"] == "job.succeeded"


def test_during_a_rotation_either_secret_will_do() -> None:
    headers = signed(BODY, 0, OTHER, SECRET)
    assert verify(headers, BODY, SECRET) == verify(headers, BODY, OTHER)


@pytest.mark.parametrize(
    ("changed", "body", "secret", "said"),
    [
        ({"Webhook-Id": ""}, BODY, SECRET, "webhook-id"),
        ({}, BODY + b" ", SECRET, "bytes of the body"),
        ({}, BODY, OTHER, "secret of this endpoint"),
        ({"Webhook-Id": "msg_2"}, BODY, SECRET, "does not fit"),
        ({"Webhook-Timestamp": "soon"}, BODY, SECRET, "does not fit"),
        ({"Webhook-Signature": "nonsense"}, BODY, SECRET, "does not fit"),
        ({"Webhook-Signature": "v1,é"}, BODY, SECRET, "does not fit"),
        ({}, b"\xff", SECRET, "does not fit"),
        ({}, BODY, "", "secret is none"),
        ({}, BODY, "whsec_a", "secret is none"),
    ],
)
def test_anything_else_is_refused_with_what_to_do(changed: dict[str, str], body: bytes, secret: str, said: str) -> None:
    with pytest.raises(NotSigned, match=said) as caught:
        verify(signed() | changed, body, secret)
    assert isinstance(caught.value, RoostError)
    assert caught.value.code == "not_signed"


@pytest.mark.parametrize("ago", [400, -400])
def test_a_request_of_another_time_is_refused(ago: float) -> None:
    with pytest.raises(NotSigned, match="five minutes"):
        verify(signed(BODY, ago), BODY, SECRET)
