"""Webhooks of a whole stack: signed, with what ended, and not lost when the sender dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner
from standardwebhooks import Webhook

from deploy.commands.webhooks import webhooks
from roost import verify
from tasks.webhooks.signing import new_secret, shown_secret
from tests.acceptance.conftest import Caller, Running
from tests.acceptance.fakes import fake
from tests.acceptance.until import until

pytestmark = pytest.mark.slow

Came = list[tuple[dict[str, str], bytes]]


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    return start_stack(
        webhook_allow="127.0.0.1", preload="acme/quick", models={"acme/quick": fake()}, public_url="https://r.example"
    )


@pytest.fixture
def receiver() -> Iterator[tuple[str, Came]]:
    """A server that takes what comes, and its URL."""
    came: Came = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            came.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the library
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", came
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_end_of_a_job_is_told_signed_and_with_its_result(
    running: Running, caller: Callable[[Running], Caller], receiver: tuple[str, Came]
) -> None:
    url, came = receiver
    made = running.client.post("/v1/webhooks", json={"url": url, "events": ["job.*"], "inline": True}).json()
    own = new_secret()
    job = caller(running).submit(["a text"], "acme/quick", webhook={"url": url, "secret": shown_secret(own)})
    until(lambda: len(came) >= 2)

    told = {}
    for secret in (made["secret"], shown_secret(own)):
        (headers, body) = next(one for one in came if _signed(one, secret))
        told[secret] = Webhook(secret).verify(body, headers)
    for event in told.values():
        assert (event["type"], event["data"]["id"]) == ("job.succeeded", job)
        assert event["data"]["urls"]["result"] == f"https://r.example/v1/jobs/{job}/result"
    result = running.client.get(f"/v1/jobs/{job}/result").json()
    assert told[made["secret"]]["data"]["result"]["items"] == result["items"]
    assert "result" not in told[shown_secret(own)]["data"]
    (listed,) = running.client.get("/v1/deliveries", params={"of": job, "webhook": made["id"]}).json()["data"]
    assert until(lambda: _ended(running, listed["id"])) == "delivered"
    running.client.delete(f"/v1/webhooks/{made['id']}")


def test_the_command_tells_what_came_of_a_test(running: Running, receiver: tuple[str, Came]) -> None:
    def roost(*words: str, status: int = 0) -> str:
        done = CliRunner().invoke(webhooks, [*words, "--url", running.url])
        assert done.exit_code == status, done.output
        return done.stdout

    url, came = receiver
    id_, secret = roost("create", url, "--event", "job.expired").split()
    assert "delivered, 204" in roost("test", id_)
    ((headers, body),) = came
    assert verify(headers, body, secret)["type"] == "webhook.test"
    roost("update", id_, "--to", "http://127.0.0.1:1/")
    name, _, said = roost("test", id_, status=1).strip().partition(": ")
    assert "(pending, attempt 1)" in said
    roost("update", id_, "--to", url)
    roost("redeliver", name)
    assert until(lambda: _ended(running, name)) == "delivered"
    assert [sent["webhook-id"] for sent, _ in came[1:]] == [name]
    roost("delete", id_)


def test_what_ends_while_the_sender_is_dead_is_told_once_it_lives_though_the_worker_dies(
    running: Running, caller: Callable[[Running], Caller], receiver: tuple[str, Came]
) -> None:
    url, came = receiver
    running.part("sender").kill()
    jobs = [caller(running).submit([f"text {n}"], "acme/quick", webhook={"url": url}) for n in range(20)]
    caller(running).ends(jobs)
    # What ended them tells nobody any more: all that is told is in the transaction that ended them.
    running.worker.kill()
    running.part("sender").start()
    until(lambda: len(came) >= 20)
    secret = running.client.get("/v1/webhook-secret").json()["secret"]
    assert sorted(Webhook(secret).verify(body, headers)["data"]["id"] for headers, body in came) == sorted(jobs)
    assert len({headers["webhook-id"] for headers, _ in came}) == 20
    running.worker.start(ready=False)


def test_a_receiver_inside_is_refused_unless_it_is_allowed(
    running: Running, caller: Callable[[Running], Caller]
) -> None:
    for url in ("http://127.0.0.2/", "https://10.0.0.1/", "http://[::1]/", "http://2130706433/"):
        answer = caller(running).post(["a"], "acme/quick", webhook={"url": url})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "url_refused"), url


def _signed(one: tuple[dict[str, str], bytes], secret: str) -> bool:
    try:
        Webhook(secret).verify(one[1], one[0])
    except Exception:  # noqa: BLE001 - by whichever fault
        return False
    return True


def _ended(running: Running, id_: str) -> str:
    found = running.client.get(f"/v1/deliveries/{id_}").json()
    return "" if found["status"] == "pending" else str(found["status"])
