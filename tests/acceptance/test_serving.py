"""Real text in over HTTP, vectors of a real model out: alone, beside others, cold, and more models than fit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psutil
import pytest

from tests.acceptance.fakes import fake
from tests.acceptance.until import until

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MIB = 2**20


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(
        budget="300MiB",
        models={
            "cold": fake(load_seconds=1.0),
            **{f"cold-{n}": fake(load_seconds=1.0) for n in range(3)},
            "left": fake(bytes=200 * MIB, load_seconds=0.2),
            "right": fake(bytes=200 * MIB, load_seconds=0.2),
            "giant": fake(bytes=400 * MIB),
            "gone": fake(faults=[{"kind": "fail_load", "reason": "not_found"}]),
            "touchy": fake(seconds_per_cost=0.001, faults=[{"kind": "error", "when_text": "POISON"}]),
        },
    )


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


def cosines(a: Any, b: Any) -> Any:
    return (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def loads(someone: Any, model: str) -> int:
    """How often the model was loaded, as the workers' beats tell it once they have heard of it."""

    def resident() -> int:
        states = someone.client.get(f"/v1/models/{model}").json()["workers"]
        # A beat may be from before the load has ended.
        return int(states[0]["loads"]) if states and states[0]["state"] == "resident" else 0

    return until(resident)


def test_a_text_has_the_same_vector_alone_in_a_batch_and_beside_a_long_one(someone: Any) -> None:
    text = "The deductible applies to each separate flood claim."
    long = "claims adjusters visit houses " * 1250
    alone = someone.vectors(someone.end(someone.submit([text], MINILM))["id"])
    batch = someone.vectors(someone.end(someone.submit([text, "a cat", "tax law", "rain in May"], MINILM))["id"])
    beside = someone.vectors(someone.end(someone.submit([long, text], MINILM))["id"])
    assert cosines(alone, batch[:1]).min() > 0.9999
    assert cosines(alone, beside[1:]).min() > 0.9999


def test_order_and_ids_are_kept_over_lengths_that_the_batcher_sorts(someone: Any) -> None:
    items = [{"id": f"n{n}", "text": "word " * (1 + (n * 37) % 90)} for n in range(40)]
    id_ = someone.client.post("/v1/jobs", json={"verb": "encode", "model": MINILM, "items": items}).json()["id"]
    someone.end(id_)
    rows = someone.client.get(f"/v1/jobs/{id_}/result").json()["items"]
    assert [row["id"] for row in rows] == [item["id"] for item in items]
    assert [row["tokens"] for row in rows] == [2 + 1 + (n * 37) % 90 for n in range(40)]


def test_one_poisoned_item_of_eight_callers_fails_alone(someone: Any) -> None:
    texts = [f"text {n}" if n != 2 else "POISON" for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda text: someone.post([text], "touchy", wait=30), texts))
    assert [answer.status_code for answer in answers] == [200] * 8
    jobs = [answer.json() for answer in answers]
    assert [job["status"] for job in jobs] == ["succeeded"] * 2 + ["failed"] + ["succeeded"] * 5
    assert jobs[2]["error"]["code"] == "model_failed"
    assert "POISON" not in answers[2].text
    assert {job["attempts"] for job in jobs} == {1}


def test_many_cold_requests_load_a_model_once_and_later_ones_not_again(someone: Any) -> None:
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda n: someone.post([f"text {n}"], "cold", wait=30), range(64)))
    with ThreadPoolExecutor(8) as pool:
        answers += pool.map(lambda n: someone.post([f"more {n}"], "cold", wait=30), range(200))
    assert {answer.json()["status"] for answer in answers} == {"succeeded"}
    assert loads(someone, "cold") == 1
    assert {answer.json()["attempts"] for answer in answers} == {1}


def test_a_cold_job_takes_little_longer_than_the_load_and_tells_its_parts(someone: Any) -> None:
    """The best of three, as what else the machine does is in each of them."""
    answers = [someone.post(["a text"], f"cold-{n}", wait=30) for n in range(3)]
    assert min(answer.elapsed.total_seconds() for answer in answers) <= 1.0 + 0.3
    for answer in answers:
        timings = answer.json()["timings"]
        assert timings["load_ms"] == pytest.approx(1000, rel=0.25)
        parts = sum(value for name, value in timings.items() if name != "total_ms")
        assert parts == pytest.approx(timings["total_ms"], rel=0.02)


def test_two_models_of_which_one_fits_both_serve(someone: Any) -> None:
    ids = [someone.submit([f"text {n}"], ("left", "right")[n % 2]) for n in range(20)]
    assert {job["status"] for job in someone.ends(ids).values()} == {"succeeded"}
    assert {job["attempts"] for job in someone.ends(ids).values()} == {1}


def test_a_model_larger_than_the_budget_is_refused_at_the_door_with_the_reason(someone: Any) -> None:
    known = until(lambda: someone.client.get("/v1/models/giant").json()["too_large"])
    answer = someone.post(["a text"], "giant", wait=30)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (422, "model_too_large", "model")
    assert error["message"] == known[0]["reason"]
    assert "ROOST_BUDGET" in error["message"]
    assert someone.client.get("/v1/jobs", params={"model": "giant"}).json()["data"] == []
    assert someone.post(["a text"], wait=30).json()["status"] == "succeeded"


def test_a_model_that_cannot_be_loaded_says_why_and_leaves_the_others_alone(someone: Any) -> None:
    job = someone.end(someone.submit(["a text"], "gone"))
    assert (job["status"], job["error"]["code"]) == ("failed", "model_load_failed")
    assert someone.post(["a text"], wait=30).json()["status"] == "succeeded"


def test_blank_texts_keep_their_slots_and_the_others_their_vectors(someone: Any) -> None:
    items = [{"id": i, "text": t} for i, t in zip("abcde", ["cat", "", "dog", " ", "fish"], strict=True)]
    job = someone.post([], MINILM, wait=60, items=items).json()
    rows = job["result"]["items"]
    assert [row["id"] for row in rows] == list("abcde")
    assert [row.get("error", {}).get("code") for row in rows] == [None, "empty_text", None, "empty_text", None]
    single = {t: someone.post([t], MINILM, wait=60).json()["result"]["items"][0] for t in ("cat", "dog", "fish")}
    for row, text in ((rows[0], "cat"), (rows[2], "dog"), (rows[4], "fish")):
        ours = np.array([row["dense"]["values"]])
        theirs = np.array([single[text]["dense"]["values"]])
        assert cosines(ours, theirs).min() > 0.9999


def test_special_token_literals_are_ordinary_text(someone: Any) -> None:
    texts = ["<|endoftext|>", "[CLS] [SEP] [MASK]", "</s>", "<|im_end|>", "a U+0000 \0 inside"]
    job = someone.post(texts, MINILM, wait=60).json()
    assert job["status"] == "succeeded"
    assert job["items_failed"] == 0
    assert all(row["tokens"] > 3 for row in job["result"]["items"])


def test_text_over_the_limit_is_cut_with_a_mark_or_refused_with_the_count(someone: Any) -> None:
    text = "flood " * 400
    cut = someone.post([text], MINILM, wait=60).json()["result"]["items"][0]
    assert cut["truncated"] is True
    refused = someone.post([text], MINILM, wait=60, options={"truncate": False}).json()
    assert refused["status"] == "failed"
    assert refused["error"]["code"] == "text_too_long"
    assert "402" in refused["error"]["message"]


@pytest.mark.parametrize("characters", [500, 2000, 2500, 3000, 8000])
def test_text_without_spaces_is_served_at_any_length(someone: Any, characters: int) -> None:
    text = "".join(chr(0x4E00 + n % 2000) for n in range(characters))
    item = someone.post([text], MINILM, wait=60).json()["result"]["items"][0]
    assert item["dense"]["dims"] == 384
    assert item["truncated"] is True
    assert someone.post(["and the next one"], MINILM, wait=60).json()["status"] == "succeeded"


def test_a_text_well_under_the_limit_is_read_to_its_end(someone: Any) -> None:
    body = "flood " * 140
    ends = someone.post([body + "of money", body + "of tears"], MINILM, wait=60).json()["result"]["items"]
    vectors = np.array([row["dense"]["values"] for row in ends])
    assert cosines(vectors[:1], vectors[1:]).max() < 0.9999


def test_forms_and_dimensions_may_differ_inside_one_batch(someone: Any) -> None:
    wanted = [{"output_dtype": "float16"}, {"output_dtype": "int8"}, {"output_dtype": "binary"}, {"dimensions": 128}]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda options: someone.post(["same"], wait=30, options=options).json(), wanted))
    dense = [answer["result"]["items"][0]["dense"] for answer in answers]
    assert [(one["dtype"], one["dims"], len(one["values"])) for one in dense] == [
        ("float16", 384, 384),
        ("int8", 384, 384),
        ("binary", 384, 48),
        ("float32", 128, 128),
    ]


def test_what_is_large_is_in_the_blob_store_and_goes_with_its_job_or_with_its_answer(stack: Any, someone: Any) -> None:
    texts = ["word " * 500] * 200

    def blobs() -> int:
        return sum(path.is_file() for path in (stack.settings.data_dir / "blobs" / "jobs").rglob("*"))

    before = blobs()
    kept = someone.submit(texts)
    vectors = someone.vectors(someone.end(kept)["id"])
    assert (len(vectors), blobs() - before) == (200, 2)
    assert someone.client.delete(f"/v1/jobs/{kept}").json()["deleted"]
    assert blobs() == before
    answer = someone.post(texts, wait=30, store=False).json()
    assert len(answer["result"]["items"]) == 200
    until(lambda: blobs() == before)
    assert someone.client.get(answer["urls"]["result"]).status_code == 410


def test_large_results_read_again_and_again_leave_no_memory_behind_in_the_api(stack: Any, someone: Any) -> None:
    texts = [f"text {n}" for n in range(512)]
    api = psutil.Process(stack.part("api").pid)

    def jobs_read_twice(count: int) -> int:
        ids = [someone.submit(texts) for _ in range(count)]
        someone.ends(ids)
        sizes = [len(someone.client.get(f"/v1/jobs/{id_}/result").content) for id_ in ids * 2]
        return sum(sizes)

    jobs_read_twice(5)
    before = api.memory_info().rss
    read = jobs_read_twice(30)
    assert read > 100 * MIB
    assert api.memory_info().rss - before < 32 * MIB
