"""A transformer computed by ONNX Runtime in place of torch, behind the interface of the library's own module.

Two sessions hold the model: one computes with one thread, for lanes side by side, the other with all cores, for a batch
that is alone. On two cores, two lanes of one thread were 15 % quicker than two callers of one session with two threads,
and a lone text was 30 % quicker with two. The calling thread's number of torch threads, which the lanes set before each
batch, chooses between them.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from catalog.modelfolder import model_root, weight_files
from catalog.schema import Spec
from engine import machine
from engine.embedder import Embedder
from engine.errors import LoadFailed, LoadReason
from engine.onnx_export import cache_folder, exported, forget
from engine.packing import trial

if TYPE_CHECKING:
    import onnxruntime

LEAST_COSINE = 0.9999
"""What float32 must reach beside torch: both round differently in the last bits only."""

_SLACK = 0.05
"""How far under its measured worst cosine a lower precision may be on the texts of a trial, which are no sentences."""


def in_onnx(embedder: Embedder, spec: Spec, folder: Path, precision: str) -> Embedder:
    """The embedder with its transformer in ONNX Runtime; torch's copy of the weights is let go of.

    A precision under float32 is allowed only where the spec tells its measured loss. Some texts go through both ways
    first. Raises LoadFailed if the vectors differ by more than that, or if there is no way to such a model.
    """
    name, loss = spec.id, spec.precisions.get(precision)
    if precision != "float32" and loss is None:
        message = f"{name} may not be run in {precision}: its YAML has no measured loss for it under 'precisions'."
        raise LoadFailed(message, LoadReason.CONFIG)
    inputs = ("input_ids", "attention_mask", *(("token_type_ids",) if embedder.layout.type_ids else ()))
    files = [*weight_files(folder), model_root(folder) / "config.json"]
    file = exported(embedder.model[0], inputs, files, precision, cache_folder())
    try:
        transformer = OnnxTransformer(file, inputs, machine.cores())
    except LoadFailed as error:
        if error.reason is not LoadReason.CORRUPT:
            raise
        forget(file)
        transformer = OnnxTransformer(
            exported(embedder.model[0], inputs, files, precision, cache_folder()), inputs, machine.cores()
        )
    rest = embedder.steps[1:]
    replaced = replace(embedder, steps=(transformer, *rest), unpadded=False, beside=transformer.bytes)
    one = embedder.tokenizer.encode(["a"])[0]
    rows = trial(one, embedder.words, [min(spec.max_length, length) for length in (6, 23, 6, 3, 40)])
    cosine = worst_cosine(replaced.embed(rows, "cpu"), embedder.embed(rows, "cpu"))
    least = LEAST_COSINE if loss is None or precision == "float32" else loss.cosine_worst - _SLACK
    if not cosine >= least:
        said = f"cosine {cosine:.4f} to torch's, and {least:.4f} is the least"
        message = f"{name} gives other vectors in ONNX Runtime ({precision}): {said}. Choose another precision."
        raise LoadFailed(message, LoadReason.CONFIG)
    _let_go(embedder)
    return replaced


class OnnxTransformer:
    """Called like the library's module: features in, features with `token_embeddings` out. Reentrant."""

    def __init__(self, file: Path, inputs: Sequence[str], cores: int) -> None:
        """Raises LoadFailed if ONNX Runtime is missing or cannot read the file."""
        self._inputs = tuple(inputs)
        gc.collect()
        before = machine.resident_bytes()
        self._narrow = _session(file, 1)
        self._wide = _session(file, cores) if cores > 1 else self._narrow
        sessions = 2 if cores > 1 else 1
        size = sum(part.stat().st_size for part in file.parent.iterdir())
        # The runtime does not tell. It keeps each matrix once as read and once in the order its kernels want.
        self.bytes = min(max(machine.resident_bytes() - before, sessions * size), 3 * sessions * size)

    def __call__(self, features: dict[str, Any]) -> dict[str, Any]:
        """One pass. The tensors of `features` are on the CPU."""
        import torch

        session = self._narrow if torch.get_num_threads() == 1 else self._wide
        given = {name: features[name].numpy() for name in self._inputs}
        (found,) = session.run(["token_embeddings"], given)
        features["token_embeddings"] = torch.from_numpy(np.asarray(found))
        return features


def worst_cosine(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The lowest cosine between vectors of the same row; both of shape [texts, dims]."""
    dots = np.sum(found * expected, axis=1)
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float(np.min(dots / np.maximum(norms, 1e-12)))


def _let_go(embedder: Embedder) -> None:
    """Put nothing in the place of the torch transformer, so that its weights are freed."""
    import torch

    embedder.model[0] = torch.nn.Identity()


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
