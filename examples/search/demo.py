"""Search by meaning on top of Roost: `make demo`, or `python examples/search/demo.py --url http://…` for a running one.

Three jobs encode the passages, one for each way to wait: within the call, by asking again, and by a wait that is over
too soon and goes on as a job. Their stored vectors are fetched and kept; each question is encoded in one call and
compared with all of them. The exit status is 1 if an answer is not the passage that it should be.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from client import Answer, Roost, Vectors, split, vector_in
from local import origin, stack
from passages import PASSAGES, QUESTIONS

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
STAGES = ("admit", "queue", "load", "batch_wait", "device", "commit", "total")


def main() -> int:
    """Run the demo; 0 when every question found its passage."""
    parser = argparse.ArgumentParser(description="Search a few passages by meaning.")
    parser.add_argument("--url", help="the API of a stack that runs; without it one is started and stopped")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument(
        "--folder", type=Path, default=Path(".roost/demo"), help="where the started stack keeps its data"
    )
    chosen = parser.parse_args()
    # So that the stack is stopped, too, when it is not a Ctrl-C that ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as ending:
        url = chosen.url or ending.enter_context(stack(chosen.folder))
        roost = Roost(url, chosen.model)
        ending.callback(roost.close)
        jobs: dict[str, Answer] = {}
        names, vectors = encode_passages(roost, jobs)
        chosen.folder.mkdir(parents=True, exist_ok=True)
        np.savez(chosen.folder / "passages.npz", names=np.array(names), vectors=vectors)
        right = ask(roost, names, vectors, jobs)
        print_timings(jobs)
        print(f"\nweights: {weights(chosen.model)}")
        print(f"{right} of {len(QUESTIONS)} questions found their passage")
    return 0 if right == len(QUESTIONS) else 1


def encode_passages(roost: Roost, jobs: dict[str, Answer]) -> tuple[list[str], Vectors]:
    """Encode all passages in three jobs; the ids and the vectors as they were stored."""
    first, most, last = split(PASSAGES, 8, 24)
    print(f"\n{len(PASSAGES)} passages to encode, in three jobs")

    sync = roost.submit(first, "wait=120")
    jobs["sync"] = roost.waited(sync)
    outcome = "answered with the result" if sync.at_once else "not done within two minutes, so it went on as a job"
    print(f"  sync     {len(first):>2} texts, Prefer: wait=120       {outcome}")

    jobs["bulk"] = roost.polled(roost.submit(most, "respond-async", lane="bulk"))
    print(
        f"  bulk     {len(most):>2} texts, Prefer: respond-async  answered with a job, asked {jobs['bulk'].polls} times"
    )

    short = roost.submit(last, "wait=0.001")
    jobs["wait"] = roost.waited(short)
    outcome = (
        "done in time after all" if short.at_once else f"the wait was over at {short.job['status']!r}, the job went on"
    )
    print(f"  wait     {len(last):>2} texts, Prefer: wait=0.001     {outcome}")

    found = [roost.vectors(answer.job["id"]) for answer in jobs.values()]
    return [name for names, _ in found for name in names], np.concatenate([rows for _, rows in found])


def ask(roost: Roost, names: list[str], vectors: Vectors, jobs: dict[str, Answer]) -> int:
    """Encode each question, print the nearest passage; how many were the expected ones."""
    print(f"\n{'question':<77} {'nearest passage':<20} {'score':>5} {'next':>5} {'ms':>6}")
    right = 0
    for number, (question, expected) in enumerate(QUESTIONS.items(), start=1):
        began = time.perf_counter()
        answer = roost.submit({"question": question}, "wait=60")
        spent = 1000 * (time.perf_counter() - began)
        scores = vectors @ vector_in(answer)
        best, second = np.argsort(-scores)[:2]
        mark = "" if names[best] == expected else f"  WRONG, expected {expected}"
        right += not mark
        jobs[f"q{number}"] = answer
        print(f"{question:<77} {names[best]:<20} {scores[best]:>5.2f} {scores[second]:>5.2f} {spent:>6.1f}{mark}")
        print(f"    {PASSAGES[names[best]]}")
    return right


def print_timings(jobs: dict[str, Answer]) -> None:
    """One line for each job: where its time went, in milliseconds, as the job itself tells."""
    print("\nwhere each job's time went, in ms")
    print(f"{'job':<6} {'items':>5} {'tokens':>6}" + "".join(f"{stage.replace('_', ' '):>12}" for stage in STAGES))
    for name, answer in jobs.items():
        job = answer.job
        spent = "".join(f"{job['timings'][f'{stage}_ms']:>12.2f}" for stage in STAGES)
        print(f"{name:<6} {job['items']:>5} {job['usage']['tokens']:>6}{spent}")


def weights(model: str) -> str:
    """Where this machine has the model's files from; only the stack itself needs to know, so this asks its catalog."""
    from catalog.loader import Catalog
    from catalog.weights import locate

    return origin(locate(Catalog.load().find(model).spec))


if __name__ == "__main__":
    sys.exit(main())
