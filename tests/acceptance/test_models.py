"""Models, devices and settings that are not as they should be: each has a named error, and all else goes on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from catalog.loader import Catalog
from catalog.schema import Source
from catalog.weights import locate
from deploy.embedded.errors import EmbeddedError

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MIB = 2**20


def fake(**load: Any) -> dict[str, Any]:
    return {
        "family": "fake",
        "tasks": {"encode": {"dims": 8}},
        "parameters": 0,
        "max_length": 512,
        "load": {"dims": 8, **load},
    }


def minilm(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "family": "sentence_transformer",
        "source": {"path": str(folder)},
        "tasks": {"encode": {"dims": 384}},
        "parameters": 22_713_216,
        "max_length": 256,
        **changes,
    }


@pytest.fixture(scope="module")
def copies() -> Iterator[Callable[[Callable[[Path], object]], Path]]:
    """A copy of MiniLM's folder in which something was done to the weights' file."""
    spec = Catalog.load().find(MINILM).spec
    original = locate(spec.model_copy(update={"source": Source(package=spec.source.package)}))
    assert original is not None
    with tempfile.TemporaryDirectory(prefix="roost-models-") as root:

        def copy(damage: Callable[[Path], object]) -> Path:
            folder = Path(tempfile.mkdtemp(dir=root))
            shutil.copytree(original, folder, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
            weights = folder / "model.safetensors"
            weights.symlink_to((original / weights.name).resolve())
            damage(weights)
            return folder

        yield copy


def cut_short(weights: Path) -> None:
    with weights.open("rb") as file:
        head = file.read(MIB)
    replace(weights, head)


def garbage(weights: Path) -> None:
    replace(weights, bytes(range(256)) * 100)


def replace(weights: Path, content: bytes) -> None:
    weights.unlink()
    weights.write_bytes(content)


@pytest.fixture(scope="module")
def stack(start_stack: StartStack, copies: Callable[[Callable[[Path], object]], Path]) -> Any:
    sound = copies(lambda _: None)
    return start_stack(
        budget="500MiB",
        models={
            "cut": minilm(copies(cut_short)),
            "garbage": minilm(copies(garbage)),
            "no-weights": minilm(copies(Path.unlink)),
            "wrong-dims": minilm(sound, tasks={"encode": {"dims": 128}}),
            "wrong-parameters": minilm(sound, parameters=7),
            "boastful": fake(bytes=MIB, actual_bytes=800 * MIB),
            "wasteful": fake(bytes=MIB, actual_bytes=300 * MIB),
            "miscounting": fake(faults=[{"kind": "wrong_count"}]),
            "sick": fake(faults=[{"kind": "device_lost", "when_text": "POISON"}]),
            "left": fake(bytes=300 * MIB, load_seconds=0.05, seconds_per_cost=0.001),
            "right": fake(bytes=300 * MIB, load_seconds=0.05, seconds_per_cost=0.001),
        },
    )


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


def refusal(someone: Any, model: str) -> dict[str, Any]:
    """The error that a job for this model gets, at the door or in the job. A good model serves before it and after."""
    assert someone.post(["before"], wait=30).json()["status"] == "succeeded"
    answer = someone.post(["a text"], model, wait=60)
    body = answer.json()
    if answer.status_code < 400:
        assert someone.end(body["id"])["status"] == "failed"
        body = someone.job(body["id"])
    assert someone.post(["after"], wait=30).json()["status"] == "succeeded"
    return dict(body["error"])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("cut", "cut short"),
        ("garbage", "cut short"),
        ("no-weights", "weights"),
        ("wrong-dims", "gives 384 dimensions; its YAML says 128"),
    ],
)
def test_a_model_whose_files_or_spec_are_wrong_says_what(stack: Any, someone: Any, model: str, words: str) -> None:
    child = stack.worker.children()
    error = refusal(someone, model)
    assert error["code"] == "model_load_failed"
    assert words in error["message"]
    assert stack.worker.children() == child


def test_a_wrong_count_of_parameters_costs_only_a_wrong_price(someone: Any) -> None:
    assert someone.post(["a text"], "wrong-parameters", wait=60).json()["status"] == "succeeded"


def test_a_model_that_takes_more_than_it_said_and_than_there_is_leaves_again(someone: Any) -> None:
    error = refusal(someone, "boastful")
    assert error["code"] == "model_too_large"
    assert "ROOST_BUDGET" in error["message"]


def test_a_model_that_takes_more_than_it_said_makes_others_leave(someone: Any) -> None:
    assert someone.post(["a text"], "left", wait=30).json()["status"] == "succeeded"
    assert someone.post(["a text"], "wasteful", wait=30).json()["status"] == "succeeded"
    assert someone.post(["a text"], "left", wait=30).json()["status"] == "succeeded"


def test_a_wrong_number_of_results_fails_the_job_by_name(someone: Any) -> None:
    assert refusal(someone, "miscounting")["code"] == "wrong_result_count"


def test_two_clients_with_room_for_one_model_both_make_progress(someone: Any) -> None:
    """Each job waits for the one before it, so each model is in use nearly always, while the other makes it leave."""

    def stream(model: str) -> list[dict[str, Any]]:
        return [someone.end(someone.submit([f"{model} {n}"], model)) for n in range(6)]

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(stream, ("left", "right")))
    jobs = [job for jobs in both for job in jobs]
    assert {(job["status"], job["attempts"]) for job in jobs} == {("succeeded", 1)}
    assert all(job["timings"]["total_ms"] < 15_000 for job in jobs)


def test_a_lost_device_is_not_drained_into_errors(someone: Any) -> None:
    good = [someone.submit([f"text {n}"], "sick") for n in range(10)]
    poisoned = someone.submit(["POISON"], "sick")
    good += [someone.submit([f"text {n}"], "sick") for n in range(10)]
    assert {job["status"] for job in someone.ends(good).values()} == {"succeeded"}
    assert someone.end(poisoned)["error"]["code"] == "worker_lost"


def test_a_budget_too_small_for_a_model_is_told_at_start_and_in_its_jobs(
    start_stack: StartStack, caller: MakeCaller
) -> None:
    running = start_stack(budget="1MiB")
    someone = caller(running)
    error = refusal(someone, MINILM)
    assert error["code"] == "model_too_large"
    assert "1048576" in error["message"]
    assert "ROOST_BUDGET" in error["message"]
    told = [line for line in running.worker.log.read_text().splitlines() if MINILM in line and "WARNING" in line]
    assert any("1048576" in line for line in told)


def test_a_device_that_is_not_there_ends_its_worker_with_what_is(start_stack: StartStack) -> None:
    with pytest.raises(EmbeddedError) as refused:
        start_stack(device="cuda:7")
    told = str(refused.value)
    assert "ended with status 78" in told
    assert "device_unavailable: ROOST_DEVICE=cuda:7 is not there" in told
    assert "Use auto or cpu" in told
