"""The limit: the same model in its own process, all texts known beforehand, ideal batches.

Run as `python -m tests.bench.reference FOLDER THREADS`. Each JSON line in is one run, each line out its result.
Tokenizing and normalising are inside the measured time, as they are in the service.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

import orjson
import torch
from sentence_transformers import SentenceTransformer

from tests.bench.packing import padded
from tests.bench.usage import peak_mib


def run(model: SentenceTransformer, batches: Sequence[Sequence[str]], seconds: float) -> int:
    """Run the batches round and round until the time is over; gives how many batches were run."""
    end = time.perf_counter() + seconds
    done = 0
    while time.perf_counter() < end:
        forward(model, batches[done % len(batches)])
        done += 1
    return done


def forward(model: SentenceTransformer, texts: Sequence[str]) -> list[list[float]]:
    """One batch of texts to normalised vectors by the shortest way there is."""
    with torch.inference_mode():
        vectors = model(model.preprocess(list(texts)))["sentence_embedding"]
        normalised: list[list[float]] = torch.nn.functional.normalize(vectors, dim=1).tolist()
    return normalised


def main(folder: str, threads: int) -> None:
    """Load once, then answer requests until stdin ends."""
    torch.set_num_threads(threads)
    began = time.perf_counter()
    model = SentenceTransformer(folder, device="cpu")
    _say({"ready": True, "load_s": time.perf_counter() - began})
    for line in sys.stdin:
        asked = orjson.loads(line)
        if "vectors" in asked:
            _say({"vectors": forward(model, asked["vectors"])})
            continue
        texts, lengths, batches = asked["texts"], asked["lengths"], asked["batches"]
        chosen = [[texts[index] for index in batch] for batch in batches]
        run(model, chosen[:1], 0.2)
        began, worked = time.perf_counter(), time.process_time()
        done = run(model, chosen, asked["seconds"])
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - worked
        ran = [batches[turn % len(batches)] for turn in range(done)]
        _say(
            {
                "seconds": seconds,
                "cpu_s": cpu_s,
                "items": sum(len(batch) for batch in ran),
                "tokens": sum(lengths[index] for batch in ran for index in batch),
                "computed": padded(lengths, ran),
                "peak_mib": peak_mib(os.getpid()),
            }
        )


def _say(body: dict[str, object]) -> None:
    sys.stdout.write(orjson.dumps(body).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
