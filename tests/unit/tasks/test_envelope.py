"""Our message is what Celery itself would have sent, and kombu takes it as such."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from kombu.transport.virtual import Channel, Message

from catalog.terms import Lane, Verb
from tasks.celery import make_app
from tasks.envelope import argument, envelope, headers, queue_of
from tasks.messages import TASK_NAME, Submission, unpack
from tasks.settings import Settings

NewJob = Callable[..., Submission]
TEXT = "a text that nobody but the model may see"


@pytest.fixture
def job() -> Submission:
    return Submission(
        id=UUID("0192b3f0-0000-7000-8000-000000000001"),
        caller="anna",
        verb=Verb.ENCODE,
        model="org/model:profile",
        revision=None,
        lane=Lane.BULK,
        bucket="m",
        priority=9,
        options={"dimensions": 128},
        inputs=TEXT.encode(),
        lengths=[9, 9],
        costs=[100.5, 1.0],
        faults={},
        created=1.0,
        deadline=None,
        retention_s=60,
    )


def _received(job: Submission) -> Message:
    """As a kombu channel sees it, without a connection."""
    channel = Channel.__new__(Channel)
    return Message(json.loads(envelope(job)), channel=channel)


def test_headers_body_and_properties_are_those_of_celery(job: Submission) -> None:
    app = make_app(Settings(broker_url="memory://"))
    golden = app.amqp.as_task_v2(
        str(job.id), TASK_NAME, args=(argument(job),), argsrepr="", kwargsrepr="", ignore_result=True
    )
    message = _received(job)
    ours = {name: value for name, value in message.headers.items() if name not in headers(job)}
    wanted = json.loads(json.dumps(golden.headers))
    assert {**ours, "origin": ""} == {**wanted, "origin": ""}
    assert json.loads(message.body) == json.loads(json.dumps(golden.body))
    assert golden.properties.items() <= message.properties.items()
    assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")


def test_kombu_reads_back_the_job(job: Submission) -> None:
    message = _received(job)
    (packed,), kwargs, _ = message.decode()
    assert unpack(b64decode(packed)) == job
    assert kwargs == {}


def test_task_delivery_and_correlation_are_the_job(job: Submission) -> None:
    message = _received(job)
    assert {message.headers["id"], message.delivery_tag, message.properties["correlation_id"]} == {str(job.id)}


def test_a_requeued_message_finds_its_queue(job: Submission) -> None:
    assert _received(job).delivery_info == {"exchange": "", "routing_key": "bulk.m"}
    assert queue_of(job) == "bulk.m"


def test_the_parent_s_account_is_in_the_headers(job: Submission) -> None:
    told = {"cost_ms": 101.5, "model": "org/model:profile", "lane": "bulk", "fence": 1}
    assert headers(job) == {**told, "tenant": "anna"}
    assert headers(replace(job, caller="default")) == told


def test_no_text_stands_in_clear(job: Submission) -> None:
    assert TEXT.encode() not in envelope(job)
    assert (_received(job).headers["argsrepr"], _received(job).headers["kwargsrepr"]) == ("", "")
