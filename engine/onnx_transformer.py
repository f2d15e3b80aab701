"""A transformer computed by ONNX Runtime in place of torch, behind the interface of the library's own module.

Two sessions hold the model: one computes with one thread, for lanes side by side, the other with all cores, for a batch
that is alone. On two cores, two lanes of one thread were 15 % quicker than two callers of one session with two threads,
and a lone text was 30 % quicker with two. The calling thread's number of torch threads, which the lanes set before each
batch, chooses between them.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import LoadFailed, LoadReason

if TYPE_CHECKING:
    import onnxruntime
    import torch

_PROBE = (
    "The quick brown fox.",
    "One word",
    "A text of some length, so that the shorter ones beside it must be padded to it.",
)
"""Texts that show whether the exported model computes what torch does."""
LEAST_COSINE = 0.99999
"""What float32 must reach beside torch: both round differently in the last bits only."""


class OnnxTransformer:
    """Called like the library's module: features in, features with `token_embeddings` out. Reentrant."""

    def __init__(self, file: Path, inputs: Sequence[str], cores: int) -> None:
        """Raises LoadFailed if ONNX Runtime is missing or cannot read the file."""
        self._inputs = tuple(inputs)
        gc.collect()
        before = _resident_bytes()
        self._narrow = _session(file, 1)
        self._wide = _session(file, cores) if cores > 1 else self._narrow
        sessions = 2 if cores > 1 else 1
        size = sum(part.stat().st_size for part in file.parent.iterdir())
        # The runtime does not tell. It keeps each matrix once as read and once in the order its kernels want.
        self.bytes = min(max(_resident_bytes() - before, sessions * size), 3 * sessions * size)

    def __call__(self, features: dict[str, Any]) -> dict[str, Any]:
        """One pass. The tensors of `features` are on the CPU."""
        import torch

        session = self._narrow if torch.get_num_threads() == 1 else self._wide
        given = {name: features[name].numpy() for name in self._inputs}
        (found,) = session.run(["token_embeddings"], given)
        features["token_embeddings"] = torch.from_numpy(np.asarray(found))
        return features


def inputs_of(transformer: torch.nn.Module, type_ids: bool) -> tuple[str, ...]:
    """The features that a transformer reads, in the order of its exported inputs."""
    return ("input_ids", "attention_mask", "token_type_ids") if type_ids else ("input_ids", "attention_mask")


def worst_cosine(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The lowest cosine between vectors of the same row; both of shape [texts, dims]."""
    dots = np.sum(found * expected, axis=1)
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float(np.min(dots / np.maximum(norms, 1e-12)))


def probes() -> tuple[str, ...]:
    """Texts to compare the exported model on."""
    return _PROBE


def _session(file: Path, threads: int) -> onnxruntime.InferenceSession:
    try:
        import onnxruntime
    except ImportError as error:
        message = "ONNX Runtime is not installed on the worker: pip install 'roost[onnx]'."
        raise LoadFailed(message, LoadReason.DEPENDENCY) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Batches have all sizes: an arena would keep the memory of the largest for ever. Idle threads must not spin either.
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # Its exceptions derive from Exception alone and are named by the C library's codes.
        raise LoadFailed(f"{file} cannot be read ({type(error).__name__}). Delete it.", LoadReason.CORRUPT) from error


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
