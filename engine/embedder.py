"""An embedder in the layout of sentence-transformers, read from a folder and ready to compute.

The modules are the library's own, so that any pooling or projection it knows works as it does there. Weights are read
from safetensors only, and no code of the model's own runs. Only `read_embedder` imports torch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from catalog.modelfolder import missing_weights, model_root, read_modules, weight_files
from catalog.tokenizer import PlainTokenizer, Tokens
from engine.checkpoint import Weights, read_weights
from engine.errors import LoadFailed, LoadReason
from engine.failures import load_failure

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

Ids = NDArray[np.int64]

_LIBRARY = "sentence_transformers."
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
_SIGNS = (
    ("trust_remote_code", LoadReason.CONFIG, "needs code of its own, which is not run: choose another model."),
    (
        "does not recognize this architecture",
        LoadReason.DEPENDENCY,
        "is of an architecture that the installed transformers does not know: upgrade it.",
    ),
    ("is not a valid json file", LoadReason.CORRUPT, "has a config that is not valid JSON: fetch it again."),
    ("unrecognized model in", LoadReason.CORRUPT, "has a config without its model's type: fetch it again."),
    ("unrecognized processing class", LoadReason.CORRUPT, "has a tokenizer that cannot be read: fetch it again."),
    ("ignore_mismatched_sizes", LoadReason.CORRUPT, "has weights that do not fit its config: fetch both again."),
)


@dataclass(frozen=True, slots=True)
class Embedder:
    """A model in memory and how it wants its texts.

    `steps` are its modules without the Normalize ones at the end. `prefix` is the prompt it puts before a text that
    comes without one. `skips_prompt` tells that pooling leaves the prompt's tokens out. `positions` bounds a text, 0 if
    nothing does. `lock` is held while it computes.
    """

    model: SentenceTransformer
    steps: tuple[torch.nn.Module, ...]
    tokenizer: PlainTokenizer
    type_ids: bool
    pad_id: int
    pad_type: int
    pad_left: bool
    keep_end: bool
    skips_prompt: bool
    prefix: str
    positions: int
    lock: AbstractContextManager[Any]

    @property
    def bytes(self) -> int:
        """What parameters and buffers take."""
        return sum(t.nbytes for tensors in (self.model.parameters(), self.model.buffers()) for t in tensors)

    def embed(self, rows: Sequence[Tokens], device: str, prompt: int = 0) -> NDArray[np.float32]:
        """One forward pass: a vector for each row. `prompt` tokens at each start are the prompt's."""
        import torch

        features: dict[str, Any] = {"modality": "text"}
        with torch.inference_mode(), self.lock:
            for name, array in self._padded(rows).items():
                features[name] = torch.from_numpy(array).to(device)
            if prompt:
                features["prompt_length"] = prompt
            for step in self.steps:
                features = step(features)
            vectors: torch.Tensor = features["sentence_embedding"]
            return np.asarray(vectors.float().cpu().numpy(), dtype=np.float32)

    def _padded(self, rows: Sequence[Tokens]) -> dict[str, Ids]:
        longest = max(len(row.ids) for row in rows)
        ids: Ids = np.full((len(rows), longest), self.pad_id, dtype=np.int64)
        types: Ids = np.full_like(ids, self.pad_type)
        mask: Ids = np.zeros_like(ids)
        for index, row in enumerate(rows):
            length = len(row.ids)
            place = slice(longest - length, None) if self.pad_left else slice(length)
            ids[index, place], types[index, place], mask[index, place] = row.ids, row.type_ids, 1
        arrays = {"input_ids": ids, "attention_mask": mask}
        return arrays | {"token_type_ids": types} if self.type_ids else arrays


def folder_weights(folder: Path, float_bytes: int) -> Weights:
    """The tensors of all modules of a folder, by their headers. Raises LoadFailed for a file that is cut short."""
    modules = [folder / str(entry.get("path", "")) for entry in read_modules(folder)[1:]]
    files = weight_files(folder) + [file for module in modules for file in sorted(module.glob("*.safetensors"))]
    return read_weights(dict.fromkeys(files), float_bytes)


def read_embedder(name: str, folder: Path, device: str, dtype: str, attention: str) -> Embedder:
    """The embedder of a folder, on a device. Raises LoadFailed with its reason."""
    _refuse_unsafe(name, folder)
    expected = folder_weights(folder, 1)
    try:
        return _read(name, folder, device, dtype, attention, expected)
    except Exception as error:
        raise _classified(name, error) from error


def _refuse_unsafe(name: str, folder: Path) -> None:
    lacking = missing_weights(folder)
    if lacking is not None:
        raise LoadFailed(f"{folder} {lacking}. Fetch the model's files again.", LoadReason.NOT_FOUND)
    if not any(any(place.glob(pattern)) for place in (model_root(folder), folder) for pattern in _VOCABULARIES):
        # The library would make one up that knows no word.
        raise LoadFailed(f"{folder} has no tokenizer. Fetch the model's files again.", LoadReason.NOT_FOUND)
    for entry in read_modules(folder):
        kind, path = str(entry.get("type")), str(entry.get("path", ""))
        if not kind.startswith(_LIBRARY):
            message = f"{name} needs code of its own ({kind}), which is not run. Choose another model."
            raise LoadFailed(message, LoadReason.CONFIG)
        if (folder / path / "pytorch_model.bin").is_file() and not any((folder / path).glob("*.safetensors")):
            message = f"{name} keeps pickled weights in {path or '.'!r}, which are not loaded: convert them."
            raise LoadFailed(message, LoadReason.CONFIG)


def _read(name: str, folder: Path, device: str, dtype: str, attention: str, expected: Weights) -> Embedder:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]  # the library has no types there
    model = SentenceTransformer(
        str(folder),
        device=device,
        local_files_only=True,
        trust_remote_code=False,
        model_kwargs={
            "use_safetensors": True,
            "dtype": getattr(torch, dtype),
            "attn_implementation": attention,
        },
    ).eval()
    first = model[0]
    if not isinstance(first, Transformer) or list(first.modality_config) != ["text"] or first.tokenizer is None:
        message = f"{name} does not begin with a transformer that reads plain text; choose another family."
        raise LoadFailed(message, LoadReason.CONFIG)
    _refuse_random(name, model, expected)
    model.requires_grad_(requires_grad=False)
    if device == "cpu":
        _own_memory(model)
    steps = list(model)
    while isinstance(steps[-1], Normalize):
        steps.pop()
    tokenizer = first.tokenizer
    return Embedder(
        model=model,
        steps=tuple(steps),
        tokenizer=PlainTokenizer(tokenizer.backend_tokenizer.to_str()),
        type_ids="token_type_ids" in tokenizer.model_input_names,
        pad_id=tokenizer.pad_token_id or 0,
        pad_type=tokenizer.pad_token_type_id,
        pad_left=tokenizer.padding_side == "left",
        keep_end=tokenizer.truncation_side == "left",
        skips_prompt=any(isinstance(step, Pooling) and not step.include_prompt for step in steps),
        prefix=(model.prompts or {}).get(model.default_prompt_name or "") or "",
        positions=_positions(first.model),
        lock=threading.Lock() if _rescales(first.model.config) else nullcontext(),
    )


def _refuse_random(name: str, model: SentenceTransformer, expected: Weights) -> None:
    """Weights that no file has are made up at random, with a line in the log. The pooler's are often left out."""
    wanted = sum(p.numel() for path, p in model.named_parameters() if ".pooler." not in path)
    if wanted > expected.values:
        message = f"The files of {name} hold {expected.values} weights of {wanted}: fetch them again."
        raise LoadFailed(message, LoadReason.CORRUPT)


def _own_memory(model: SentenceTransformer) -> None:
    """Copy the weights out of the mapped file, so that what they take is there from the first call and stays there.

    Besides, a mapped file that somebody cuts short takes the whole process down.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()


def _positions(model: torch.nn.Module) -> int:
    """How many tokens the model has positions for: by its table of positions, whose first rows may be padding's."""
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and hasattr(module, "num_embeddings"):
            padding = getattr(module, "padding_idx", None)
            return int(module.num_embeddings) - (0 if padding is None else padding + 1)
    return int(getattr(model.config, "max_position_embeddings", 0) or 0)


def _rescales(config: object) -> bool:
    """Whether the model keeps rotary frequencies that it changes by the length of each batch."""
    return any(kind in str(getattr(config, "rope_parameters", None)) for kind in ("dynamic", "longrope"))


def _classified(name: str, error: Exception) -> Exception:
    """The error as LoadFailed. The libraries say in words only what kind of failure it was."""
    if not isinstance(error, ValueError | OSError | RuntimeError):
        return load_failure(name, error)
    text = str(error).lower()
    for sign, reason, message in _SIGNS:
        if sign in text:
            return LoadFailed(f"{name} {message}", reason)
    if type(error) is ValueError:
        first = (str(error).strip().splitlines() or [""])[0]
        return LoadFailed(f"{name} has a config that its library refuses: {first[:300]}", LoadReason.CONFIG)
    return load_failure(name, error)
