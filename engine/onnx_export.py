"""A transformer as an ONNX file: exported here from the same weights that torch loads, and kept for next time.

Files that a hub ships as ONNX are not used: nothing says that they hold the same weights. What was exported is kept in
a folder named by a digest of weights, configs and library versions, so that a change of any makes a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import LoadFailed, LoadReason

if TYPE_CHECKING:
    import torch

_LIBRARIES = ("torch", "transformers", "sentence-transformers", "onnxruntime", "onnxscript")
_SAMPLE = 2, 9
"""Shape of the texts that the export is traced with: not 1, which the exporter takes for a constant."""
_MODEL = "model.onnx"
_ONE_FILE = 1_500_000_000
"""Above so many bytes of weights they go beside the graph, since its format ends at 2 GB."""

_LEFT_S = 86_400.0
"""After so long nobody is still making what is half made."""


def cache_folder() -> Path:
    """Where exported models are kept: `roost/onnx` in XDG_CACHE_HOME, by default in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "roost" / "onnx"


def digest(files: Iterable[Path], precision: str) -> str:
    """What an exported model was made of: names, sizes and times of its files, and the versions of the libraries."""
    found = hashlib.sha256(precision.encode())
    for library in _LIBRARIES:
        found.update(f"{library} {_version(library)}\n".encode())
    for file in sorted(file.resolve() for file in files):
        about = file.stat()
        found.update(f"{file} {about.st_size} {about.st_mtime_ns}\n".encode())
    return found.hexdigest()[:32]


def exported(
    transformer: torch.nn.Module, inputs: Sequence[str], files: Iterable[Path], precision: str, cache: Path
) -> Path:
    """The ONNX file of a transformer, made unless the cache has it.

    `inputs` are the features that it reads, each of shape [texts, tokens]; its one output is `token_embeddings`. Raises
    LoadFailed where the libraries are missing, the model cannot be exported or the cache cannot be written.
    """
    folder = cache / digest(files, precision)
    file = folder / _MODEL
    if file.is_file():
        return file
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _sweep(cache)
        made = Path(tempfile.mkdtemp(prefix=".making-", dir=cache))
    except OSError as error:
        message = f"The exported model cannot be kept in {cache} ({error.strerror}): set XDG_CACHE_HOME."
        raise LoadFailed(message, LoadReason.CONFIG) from error
    try:
        _export(transformer, inputs, made / _MODEL)
        if precision == "int8":
            _quantise(made / _MODEL)
        # Whole or not at all; if another process was quicker, its copy serves as well.
        try:
            made.rename(folder)
        except OSError:
            if not file.is_file():
                # What is there is the rest of one that was thrown away.
                shutil.rmtree(folder, ignore_errors=True)
                made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return file


def forget(file: Path) -> None:
    """Throw away an exported model that cannot be read, so that it is made anew."""
    shutil.rmtree(file.parent, ignore_errors=True)


def _sweep(cache: Path) -> None:
    """Remove what processes left half made that ended meanwhile; nothing takes as long as what is old here."""
    for left in cache.glob(".making-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_S:
                shutil.rmtree(left, ignore_errors=True)


def _export(transformer: torch.nn.Module, inputs: Sequence[str], file: Path) -> None:
    import torch

    class Plain(torch.nn.Module):
        """The transformer as a function of tensors: the exporter knows no dictionaries of features."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = transformer

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            features: dict[str, Any] = {"modality": "text", **dict(zip(inputs, tensors, strict=True))}
            found: torch.Tensor = self.inner(features)["token_embeddings"]
            return found

    # One tensor for each: the exporter takes a tensor that comes twice for one input.
    samples = tuple(torch.ones(_SAMPLE, dtype=torch.int64) for _ in inputs)
    sizes: Mapping[int, Any] = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [log.level for log in logs]
    try:
        for log in logs:
            log.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                Plain().eval(),
                samples,
                input_names=list(inputs),
                output_names=["token_embeddings"],
                dynamic_shapes=(tuple(sizes for _ in inputs),),
                dynamo=True,
                verbose=False,
            )
        if program is None:
            raise LoadFailed("The exporter gave no model.", LoadReason.UNKNOWN)
        weights = sum(parameter.nbytes for parameter in transformer.parameters())
        program.save(str(file), external_data=weights > _ONE_FILE)
    except ImportError as error:
        message = f"ONNX Runtime needs {error.name or 'more packages'}: pip install 'roost[onnx]'."
        raise LoadFailed(message, LoadReason.DEPENDENCY) from error
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def _quantise(file: Path) -> None:
    """Weights of the matrix products as int8, one scale for each column; activations as they come at run time."""
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        message = f"int8 needs {error.name or 'more packages'}: pip install 'roost[onnx]'."
        raise LoadFailed(message, LoadReason.DEPENDENCY) from error
    small = file.with_suffix(".int8")
    logger = logging.getLogger()
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        quantize_dynamic(
            file,
            small,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True},
        )
    finally:
        logger.setLevel(level)
    small.replace(file)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""
