"""What waits, as the door reads it from the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.backlog import read_backlog
from tasks.pull_script import message_commands

if TYPE_CHECKING:
    from tests.integration.api.conftest import Api, Consumer


async def test_what_waits_is_told_by_queue_and_by_model(api: Api) -> None:
    for model in ("org/model", "org/model:small", "org/plain"):
        assert (await api.submit("a text", model=model)).status_code == 202
    await api.services.submitter.close()
    backlog = await read_backlog(api.services.redis)
    assert backlog.queues["interactive.xs"] == 3
    assert (backlog.of("org/model"), backlog.of("org/plain"), backlog.of("org/none")) == (2, 1, 0)
    assert (await api.http.get("/v1/models/org/model")).json()["queued"] == 2


async def test_what_was_taken_waits_no_longer(api: Api, consumer: Consumer) -> None:
    assert (await api.submit("a text", wait=10)).status_code == 200
    backlog = await read_backlog(api.services.redis)
    assert (sum(backlog.queues.values()), backlog.of("org/model")) == (0, 0)


async def test_what_waits_of_all_tenants_is_counted(api: Api) -> None:
    for tenant in ("", "acme", "beta"):
        for command in message_commands("bulk.m", "org/model", [b"{}"], 1.0, tenant):
            await api.services.redis.execute_command(*command)  # type: ignore[no-untyped-call]
    backlog = await read_backlog(api.services.redis)
    assert (backlog.of("org/model"), backlog.queues["bulk.m"]) == (3, 3)
