"""A job that kills its worker, beside others that do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.conftest import Caller, Running
from tests.acceptance.fakes import fake

pytestmark = pytest.mark.slow

INNOCENTS = 20


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    deadly = fake(faults=[{"kind": "crash", "when_text": "poison"}])
    return start_stack(max_attempts=2, preload="acme/deadly", models={"acme/deadly": deadly})


def test_a_killer_alone_fails_is_set_apart_and_tried_again_alone(
    running: Running, caller: Callable[[Running], Caller]
) -> None:
    someone = caller(running)
    others = [someone.submit([f"text {n}"], "acme/deadly") for n in range(INNOCENTS // 2)]
    killer = someone.submit(["poison"], "acme/deadly")
    others += [someone.submit([f"text {n}", "more"], "acme/deadly") for n in range(INNOCENTS // 2)]

    ended = someone.ends([killer, *others], 120)
    assert {ended[id_]["status"] for id_ in others} == {"succeeded"}, [ended[id_]["error"] for id_ in others]
    assert (ended[killer]["status"], ended[killer]["error"]["code"]) == ("failed", "worker_lost")
    (group,) = running.client.get("/v1/dead").json()["data"]
    assert (group["code"], group["jobs"], group["killed_workers"], group["example"]) == ("worker_lost", 1, True, killer)

    assert running.client.post("/v1/dead/redrive", json={}).json()["redriven"] == 0
    assert running.client.post("/v1/dead/redrive", json={"ids": [killer]}).json()["jobs"] == [killer]
    beside = [someone.submit([f"beside {n}"], "acme/deadly") for n in range(INNOCENTS)]
    ended = someone.ends([killer, *beside], 120)
    assert {ended[id_]["status"] for id_ in beside} == {"succeeded"}
    # It begins as one that has killed a worker once: the others have spent nothing by it.
    assert {ended[id_]["attempts"] for id_ in beside} == {1}
    assert (ended[killer]["status"], ended[killer]["error"]["code"]) == ("failed", "worker_lost")
    assert someone.job(someone.submit(["after"], "acme/deadly", wait=0))["status"] in {"queued", "running", "succeeded"}
