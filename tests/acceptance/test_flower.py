"""What operators see of real jobs: Flower how each one ended and how long it ran, and nothing anywhere of a text."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
import redis

from deploy.embedded.ports import chosen
from tests.acceptance.fakes import fake, parser, writer

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]
Shown = Callable[[str], dict[str, Any]]

ENDED = {"SUCCESS", "FAILURE", "REVOKED"}


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    slow = fake(seconds_per_cost=0.001) | {"cost": {"base": 0.0, "per_token": 100.0}}
    touchy = fake(max_length=1_000_000, faults=[{"kind": "error", "when_text": "POISON"}])
    deadly = fake(faults=[{"kind": "crash", "when_text": "CRASH"}])
    ranker = fake() | {"tasks": {"score": {}}}
    others = {"ranker": ranker, "writer": writer(), "parser": parser()}
    return start_stack(
        flower_port=chosen(0),
        events="on",
        lanes=1,
        batch_items=1,
        log_level="debug",
        max_attempts=1,
        models={"slow": slow, "touchy": touchy, "deadly": deadly, **others},
    )


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


@pytest.fixture
def flower(stack: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.stack.urls["flower"], timeout=30) as client:
        yield client


@pytest.fixture
def shown(flower: httpx.Client) -> Shown:
    """What Flower tells of a job's task, once it has heard of its end."""

    def look(id_: str) -> dict[str, Any]:
        until = time.monotonic() + 30
        answer = flower.get(f"/api/task/info/{id_}")
        while answer.status_code == 404 or answer.json()["state"] not in ENDED:
            assert time.monotonic() < until, answer.text
            answer = flower.get(f"/api/task/info/{id_}")
        return dict(answer.json())

    return look


def test_a_job_that_succeeded_is_shown_with_its_runtime(someone: Any, shown: Shown) -> None:
    id_ = someone.submit(["word"], "slow")
    job = someone.end(id_)
    task = shown(id_)
    assert (task["name"], task["state"]) == ("roost.run", "SUCCESS")
    assert task["runtime"] == pytest.approx(job["timings"]["device_ms"] / 1000, abs=0.1)
    assert task["received"] <= task["started"] <= task["succeeded"]


def test_a_job_that_failed_is_shown_with_the_code_of_its_error(someone: Any, shown: Shown) -> None:
    id_ = someone.submit(["POISON"], "touchy")
    someone.end(id_)
    task = shown(id_)
    assert (task["state"], task["exception"]) == ("FAILURE", "model_failed")


def test_a_job_cancelled_in_a_workers_hands_is_shown_as_revoked(someone: Any, shown: Shown) -> None:
    running, waiting = someone.submit(["word " * 20], "slow"), someone.submit(["word"], "slow")
    with someone.client.stream("GET", f"/v1/jobs/{running}/events") as events:
        next(line for line in events.iter_lines() if line == "event: running")
    someone.client.post(f"/v1/jobs/{running}/cancel")
    assert shown(running)["state"] == "REVOKED"
    assert someone.end(waiting)["status"] == "succeeded"


class Marks:
    """Words that tell where they were put, and that nobody but the caller may get to see."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, where: str) -> str:
        mark = f"zqx{len(self.made):02}{where}xqz"
        self.made.append(mark)
        return mark

    def in_(self, content: str) -> set[str]:
        """Those that a text shows, as they are or in base64."""
        coded = {
            mark: [base64.b64encode(b"." * n + mark.encode()).decode()[4:-4] for n in range(3)] for mark in self.made
        }
        return {mark for mark, forms in coded.items() if any(form in content for form in (mark, *forms))}


def _everywhere(someone: Any, mark: Marks) -> list[str]:
    """Send what callers may send, each part with a word of its own; the ids of the jobs that run."""
    post, ids = someone.client.post, []

    def job(body: dict[str, Any], **headers: str) -> None:
        said = post("/v1/jobs", json={"tags": [mark("tag")], **body}, headers=headers)
        assert said.status_code == 202, said.text
        ids.append(said.json()["id"])

    items = [{"id": mark("id"), "text": mark("text")}]
    document = base64.b64encode(mark("document").encode()).decode()
    key = mark("key")
    touchy = {"verb": "encode", "model": "touchy", "items": items}
    job({**touchy, "options": {"instruction": mark("instruction")}}, **{"Idempotency-Key": key})
    assert post("/v1/jobs", json={**touchy, "items": ["x"]}, headers={"Idempotency-Key": key}).status_code == 409
    job({"verb": "encode", "model": "touchy", "items": [f"POISON {mark('poison')}"]})
    job({"verb": "encode", "model": "touchy", "items": [f"POISON {mark('large')} " * 20_000]})
    job({"verb": "encode", "model": "deadly", "items": [f"CRASH {mark('crash')}"]})
    job({"verb": "score", "model": "ranker", "query": mark("query"), "items": items})
    # One that is refused, and one that is tried in vain.
    hook = {"url": f"https://127.0.0.1:9/{mark('hook')}?token={mark('token')}"}
    said = post("/v1/jobs", json={**touchy, "webhook": hook})
    assert said.status_code == 422, said.text
    hook["url"] = hook["url"].replace("127.0.0.1:9", "no-such-host.example.org")
    job({**touchy, "items": ["told"], "webhook": hook})
    labels = [mark("label")]
    job({"verb": "extract", "model": "roost/fake", "items": items, "labels": labels})
    job({"verb": "extract", "model": "roost/fake", "items": [{"document": {"data": document, "name": mark("name")}}]})
    job({"verb": "extract", "model": "parser", "items": [f"{mark('page')}\f{mark('next')}"]})
    job({"verb": "generate", "model": "writer", "items": [mark("prompt")], "options": {"stop": [mark("stop")]}})
    said = post("/v1/embeddings", json={"model": "touchy", "input": [mark("input"), "POISON"], "user": mark("user")})
    assert said.status_code >= 400
    chat = {"model": "writer", "messages": [{"role": "user", "content": mark("chat")}], "stream": True}
    assert post("/v1/chat/completions", json=chat).status_code == 200
    lines = [
        {
            "custom_id": mark("custom"),
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": model, "input": text},
        }
        for model, text in (("touchy", mark("line")), ("touchy", f"POISON {mark('bad')}"), (mark("model"), "text"))
    ]
    content = b"\n".join(json.dumps(line).encode() for line in lines)
    file = post("/v1/files", data={"purpose": "batch"}, files={"file": (mark("file"), content)}).json()
    batch = {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
    batch = post("/v1/batches", json={**batch, "metadata": {mark("meta"): mark("value")}}).json()
    post("/v1/jobs", content=b'{"verb": ' + mark("broken").encode(), headers={"Content-Type": "application/json"})
    post("/v1/jobs", json={mark("field"): 1, "verb": mark("verb")}, headers={"User-Agent": mark("agent")})
    someone.client.get(f"/v1/{mark('path')}", params={"x": mark("search")}, headers={"Authorization": mark("secret")})
    until = time.monotonic() + 30
    while someone.client.get(f"/v1/batches/{batch['id']}").json()["status"] != "completed":
        assert time.monotonic() < until
    return ids


def test_no_text_of_a_caller_is_seen_where_operators_look(
    stack: Any, someone: Any, flower: httpx.Client, shown: Shown
) -> None:
    mark = Marks()
    with redis.Redis.from_url(stack.redis_url) as broker, closing(broker.pubsub()) as events:
        events.psubscribe("*celeryev*")
        assert events.get_message(timeout=5)
        ids = _everywhere(someone, mark)
        ended = someone.ends(ids)
        assert [job["status"] for job in ended.values()].count("failed") == 3
        for id_ in ids:
            shown(id_)
        told = []
        while message := events.get_message(timeout=0.2):
            told.append(base64.b64decode(json.loads(message["data"])["body"]).decode())
    columns: dict[str, str | int] = {
        "draw": 1,
        "start": 0,
        "length": 100,
        "order[0][column]": 0,
        "columns[0][data]": "name",
    }
    places = {"events": "\n".join(told)}
    paths = ["", "tasks", "workers", "api/tasks", "api/workers", "metrics", "broker"]
    paths += [path for id_ in ids for path in (f"task/{id_}", f"api/task/info/{id_}")]
    for path in paths:
        page = flower.get(path)
        assert page.status_code == 200, path
        places[f"Flower's /{path}"] = page.text
        assert "task/" not in path or len(page.content) < 50_000
    places["Flower's table"] = flower.get("tasks/datatable", params=columns).text
    places["metrics"] = someone.client.get("/metrics").text
    logs = {path.name: path.read_text(errors="replace") for path in (stack.settings.data_dir / "logs").glob("*.log")}
    assert {"api.log", "cpu.log", "feeder.log", "chores.log", "beat.log", "flower.log", "postgres.log"} <= set(logs)
    assert all("DEBUG" in logs[name] for name in ("api.log", "cpu.log", "chores.log"))
    assert len(mark.in_(someone.client.get("/v1/jobs").text)) > 5
    assert all(id_ in places["events"] for id_ in ids)
    assert max(map(len, told)) < 4096
    assert {place: found for place, content in {**places, **logs}.items() if (found := mark.in_(content))} == {}


def test_the_pages_of_flower_find_what_they_are_made_of(stack: Any, flower: httpx.Client) -> None:
    links = set(re.findall(r'(?:src|href)="([^"#]+)"', flower.get("").text))
    ours = {link for link in links if not link.startswith("http")}
    assert len(ours) > 5
    assert {link: flower.get(f"{stack.url}{link}").status_code for link in ours} == dict.fromkeys(ours, 200)


def test_a_worker_is_controlled_by_flowers_own_pages_and_by_no_other_sites(stack: Any, flower: httpx.Client) -> None:
    path = "api/task/revoke/0199c0de-0000-7000-8000-000000000000"
    answer = flower.post(path, headers={"Origin": stack.url, "Sec-Fetch-Site": "same-origin"})
    assert (answer.status_code, "Revoked" in answer.text) == (200, True)
    for headers in ({"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert flower.post(path, headers=headers).status_code == 403
    # Past the API it asks for a password that nobody was told.
    port = stack.settings.flower_port
    assert httpx.get(f"http://127.0.0.1:{port}/flower/api/workers").status_code == 401
