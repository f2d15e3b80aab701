"""The commands of callers, as people and programs call them: real processes, without a terminal unless one is given."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.submit import UNTOLD
from tests.acceptance.conftest import Running
from tests.acceptance.fakes import fake, timed, writer
from tests.acceptance.until import until

pytestmark = pytest.mark.slow

ROOST = [sys.executable, "-P", "-m", "deploy.cli"]
THINKER = {
    "family": "fake",
    "tasks": {"score": {}, "extract": {"kinds": ["entities"]}},
    "parameters": 0,
    "max_length": 512,
}
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    return start_stack(
        # The cold model keeps the loader for as long as these tests last: the others are there before it.
        preload="acme/quick,acme/thinker,acme/slow,acme/writer",
        models={
            "acme/quick": fake(),
            "acme/thinker": THINKER,
            "acme/slow": timed(3000.0),
            "acme/cold": fake(load_seconds=600.0),
            "acme/writer": writer(step_seconds=0.02),
        },
    )


@pytest.fixture
def roost(running: Running) -> Callable[..., Done]:
    def run(*words: str, url: str = running.url, stdin: str = "") -> Done:
        return subprocess.run(
            [*ROOST, *words], env=_environment(url), input=stdin, capture_output=True, text=True, timeout=120
        )

    return run


def _environment(url: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if not name.startswith("ROOST_")}, "ROOST_URL": url}


def told(done: Done, status: int = 0) -> Any:
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_a_job_is_submitted_and_its_result_printed(roost: Callable[..., Done]) -> None:
    done = roost("submit", "encode", "acme/quick", "a text", "-", "--option", "normalize=false", stdin="b\n\nc\n")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["0", "1", "2"]
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_a_result_for_programs_is_that_of_the_api(running: Running, roost: Callable[..., Done]) -> None:
    found = told(roost("submit", "encode", "acme/quick", "a text", "--json"))
    assert found == running.client.get(f"/v1/jobs/{found['id']}/result").json()


def test_scores_and_findings_are_printed(roost: Callable[..., Done]) -> None:
    ranked = roost("submit", "score", "acme/thinker", "one", "two", "three", "--query", "which?")
    assert sorted(line.split()[2] for line in ranked.stdout.splitlines()) == ["0", "1", "2"]
    found = roost("submit", "extract", "acme/thinker", "Anna met Bert", "--label", "name")
    assert "Anna: name" in found.stdout


def test_a_text_is_printed_as_it_is_made(roost: Callable[..., Done]) -> None:
    whole = roost("submit", "generate", "acme/writer", "one two")
    streamed = roost("submit", "generate", "acme/writer", "one two", "--stream")
    assert streamed.stdout == whole.stdout
    assert len(whole.stdout.split()) == 16


def test_items_that_failed_are_told_and_are_no_success(roost: Callable[..., Done]) -> None:
    done = roost("submit", "encode", "acme/quick", "good", "", "--json")
    assert [sorted(item) for item in told(done, 1)["items"]][1] == ["error"]
    assert done.stderr == "1 of 2 items failed\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("submit", "encode", "acme/quick", "a", "--option", "normalise=true"), "did you mean 'normalize'"),
        (("submit", "encode", "acme/quik", "a"), "acme/quick"),
        (("submit", "encode", "acme/quick", ""), "empty_text: The text is empty"),
        (("submit", "encode", "acme/quick"), "--file"),
        (("submit", "score", "acme/thinker", "a"), "--query"),
        (("wait", "no-job"), "job_not_found"),
        (("models", "list", "--family", "fak"), "Did you mean fake"),
    ],
)
def test_what_is_wrong_is_one_line_and_a_status(roost: Callable[..., Done], words: tuple[str, ...], says: str) -> None:
    done = roost(*words)
    assert done.returncode in {1, 2}
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_server_that_is_not_there_is_told_soon(roost: Callable[..., Done]) -> None:
    for words in (("jobs",), ("top",), ("models",), ("wait", "x"), ("submit", "encode", "m", "a")):
        done = roost(*words, url="http://127.0.0.1:9")
        assert done.returncode == 1
        assert "Is a server there?" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_job_is_left_and_waited_for_by_its_id(roost: Callable[..., Done]) -> None:
    ids = [roost("submit", "encode", "acme/quick", "a", "--no-wait", "--tag", "cli").stdout.strip() for _ in range(2)]
    done = roost("wait", *ids)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"{id_}  succeeded" for id_ in ids)
    jobs = told(roost("wait", *ids, "--json"))
    assert [job["id"] for job in jobs] == ids
    failed = roost("submit", "encode", "acme/quick", "", "--no-wait").stdout.strip()
    ended = roost("wait", failed)
    assert ended.returncode == 1
    assert "failed" in ended.stdout
    listed = told(roost("jobs", "--tag", "cli", "--json"))
    assert [job["id"] for job in listed] == ids[::-1]
    assert [line.split()[0] for line in roost("jobs", "--tag", "cli").stdout.splitlines()] == ids[::-1]


def test_a_wait_may_be_bounded(running: Running, roost: Callable[..., Done]) -> None:
    id_ = roost("submit", "encode", "acme/cold", "a", "--no-wait").stdout.strip()
    done = roost("wait", id_, "--timeout", "0.2")
    assert done.returncode == 1
    assert "still_running" in done.stderr
    assert running.client.post(f"/v1/jobs/{id_}/cancel").status_code == 200


def test_the_models_of_the_server_are_listed(roost: Callable[..., Done]) -> None:
    told(roost("submit", "encode", "acme/quick", "a", "--json"))
    plain, listed = roost("models", "--json"), roost("models", "list", "--json")
    assert {"acme/quick", "acme/slow"} <= {model["id"] for model in told(plain)}
    assert [model["id"] for model in told(plain)] == [model["id"] for model in told(listed)]
    done = roost("models", "list", "acme", "--verb", "generate")
    assert done.stdout.split()[0] == "acme/writer"
    assert len(done.stdout.splitlines()) == 1
    here = told(roost("models", "list", "--here", "--json"))
    assert "acme/quick" not in {model["id"] for model in here}


def test_the_view_of_workers_is_data_or_lines_where_there_is_no_terminal(roost: Callable[..., Done]) -> None:
    told(roost("submit", "encode", "acme/quick", "a", "--json"))
    found = told(roost("top", "--json"))
    assert [worker["name"].partition("@")[0] for worker in found["workers"]] == ["cpu"]
    assert "acme/quick" in {model["model"] for model in found["models"]}
    assert sorted(found) == ["models", "open_jobs", "queues", "workers"]
    assert "acme/quick" in roost("top").stdout


def test_any_number_of_items_go_through_in_a_run_that_goes_on(
    running: Running, roost: Callable[..., Done], tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    texts = [f"text {n}" if n != 77 else "" for n in range(3000)]
    rows.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(texts)))
    words = ("submit", "encode", "acme/quick", "--file", str(rows), "--run", "cli-run", "--batch", "200", "--json")
    done = roost(*words)
    assert (done.returncode, done.stderr) == (1, "1 items failed\n")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(item["index"], item["id"]) for item in found] == [(n, str(n)) for n in range(3000)]
    assert [item["index"] for item in found if "error" in item] == [77]
    assert roost(*words).stdout == done.stdout
    assert len(told(roost("jobs", "--tag", "run:cli-run", "--most", "100", "--json"))) == 15


def test_an_interrupted_wait_says_how_to_go_on(running: Running) -> None:
    with subprocess.Popen(
        [*ROOST, "submit", "encode", "acme/cold", "a", "--tag", "stopped"],
        env=_environment(running.url),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            jobs = until(lambda: running.client.get("/v1/jobs", params={"tag": "stopped"}).json()["data"])
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    # Its row may be there before the command has heard of it.
    assert said in {f"job {jobs[0]['id']} goes on; `roost wait {jobs[0]['id']}` waits for it, too\n", f"{UNTOLD}\n"}
    assert running.client.post(f"/v1/jobs/{jobs[0]['id']}/cancel").json()["status"] == "cancelled"


def test_jobs_are_followed_as_they_change(running: Running, roost: Callable[..., Done]) -> None:
    with subprocess.Popen(
        [*ROOST, "jobs", "--follow", "--json", "--tag", "followed"],
        env=_environment(running.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        id_ = roost("submit", "encode", "acme/slow", "a", "--tag", "followed", "--no-wait").stdout.strip()
        states: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            job = json.loads(line)
            assert job["id"] == id_
            states.append(job["status"])
            if job["status"] in {"succeeded", "failed"}:
                break
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert states[-1] == "succeeded"
    assert len(states) == len(set(states))
    assert (process.returncode, said) == (130, "")


def test_on_a_terminal_there_is_a_bar_and_a_table(running: Running) -> None:
    environment = {**_environment(running.url), "TERM": "xterm-256color", "COLUMNS": "160"}
    shown = {}
    for words in (("submit", "encode", "acme/slow", "a", "b"), ("jobs", "--most", "2"), ("top", "--once")):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([*ROOST, *words], env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        shown[words[0]] = _read_all(ours)
        assert process.wait(30) == 0, shown[words[0]]
    assert "━" in shown["submit"]
    assert "2/2" in shown["submit"]
    assert "float32" in shown["submit"]
    assert "\x1b[" in shown["jobs"]
    assert "acme/slow" in shown["top"]


def _read_all(terminal: int) -> str:
    pieces = []
    try:
        while piece := os.read(terminal, 65536):
            pieces.append(piece)
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(terminal)
    return b"".join(pieces).decode()
