"""Lines of batches that name who is told of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from api.feeding.services import Feeding
from tasks.batches import Status
from tasks.store import deliveries
from tests.integration.api.conftest import Consumer
from tests.integration.api.given import batch_of
from tests.integration.api.test_feeding import Start, ended, it, lines_of, start

__all__ = ["it", "start"]

URL = "https://hooks.example.org/in"


async def test_a_line_of_a_native_verb_may_name_who_is_told_and_a_wrong_one_is_refused_alone(
    it: Feeding, start: Start, consumer: Consumer
) -> None:
    def line(id_: str, hook: Any) -> bytes:
        body = {"model": "org/plain", "items": [id_], "webhook": hook}
        return json.dumps({"custom_id": id_, "method": "POST", "url": "/v1/encode", "body": body}).encode() + b"\n"

    made = await batch_of(
        it, line("told", {"url": URL}) + line("inside", {"url": "https://10.0.0.1/"}), endpoint="/v1/encode"
    )
    await start("one")
    batch = await ended(it, made)
    assert (batch.status, batch.completed, batch.failed) == (Status.COMPLETED, 1, 1)
    (refused,) = await lines_of(it, batch.error_file)
    assert (refused["custom_id"], refused["response"]["body"]["error"]["code"]) == ("inside", "url_refused")

    now = datetime.now(UTC) + timedelta(seconds=1)
    (due,) = await it.database.run(
        deliveries.claim,
        now,
        timedelta(minutes=1),
        most=10,
        more=10,
        each=8,
        room={},
        share=10,
        share_of_more=10,
        held={},
    )
    (job,) = consumer.taken
    assert (due.url, due.type, due.object, due.endpoint) == (URL, "job.succeeded", job.id, None)
