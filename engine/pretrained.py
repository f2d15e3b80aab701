"""An embedder read from a folder in the layout of sentence-transformers.

Weights are read from safetensors, or as tensors from a pickle that is allowed; no code of the model's own runs. Only
`read_embedder` and the counting of pickles import torch.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.modelfolder import missing_weights, model_root, module_folders, pickled_files, weight_files
from catalog.tokenizer import PlainTokenizer
from engine.building import BUILDING
from engine.checkpoint import Weights, read_weights
from engine.embedder import Embedder
from engine.errors import LoadFailed, LoadReason
from engine.failures import load_failure
from engine.packing import Layout
from engine.pickled import file_weights

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

_LIBRARY = "sentence_transformers."
ONE_ATTENTION = "does not support an attention implementation"
"""What the library says of an architecture that brings its own attention and knows no other, such as MPNet."""
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
_SIGNS = (
    (
        "trust_remote_code",
        LoadReason.CONFIG,
        "needs code of its own, which its YAML does not allow: source.needs: [code].",
    ),
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


def folder_weights(folder: Path, float_bytes: int, *, pickle: bool = False) -> Weights:
    """The tensors of all modules of a folder, by their headers. Raises LoadFailed for a file that is cut short.

    With `pickle` those count too that are in pickles where there are no others.
    """
    modules = [place for _, place in module_folders(folder)]
    files = weight_files(folder) + [file for module in modules for file in sorted(module.glob("*.safetensors"))]
    found = read_weights(dict.fromkeys(files), float_bytes)
    if pickle:
        for file in _pickles(folder):
            more = file_weights(file, float_bytes)
            found = Weights(found.values + more.values, found.bytes + more.bytes)
    return found


def _pickles(folder: Path) -> list[Path]:
    """The pickles of modules that have no safetensors."""
    root = model_root(folder)
    places = dict.fromkeys((root, *(place for _, place in module_folders(folder))))
    found: list[Path] = []
    for place in places:
        if not any(place.glob("*.safetensors")):
            found += pickled_files(folder) if place == root else sorted(place.glob("pytorch_model.bin"))
    return found


def read_embedder(
    name: str, folder: Path, device: str, dtype: str, attention: str, needs: Collection[str] = ()
) -> Embedder:
    """The embedder of a folder, on a device. Raises LoadFailed with its reason.

    `needs` says whether it may be read from a `pickle`, and whether `code` that comes with it may run.
    """
    pickle, code = "pickle" in needs, "code" in needs
    refuse_unsafe(name, folder, pickle=pickle, code=code)
    expected = folder_weights(folder, 1, pickle=pickle)
    try:
        with BUILDING:
            return _read(name, folder, device, dtype, attention, expected, code=code)
    except Exception as error:
        raise classified(name, error) from error


def refuse_unsafe(
    name: str, folder: Path, foreign: tuple[str, ...] = (), *, pickle: bool = False, code: bool = False
) -> None:
    """Raise LoadFailed for a folder that is not whole, or that holds code or pickles. `foreign` types are known.

    With `pickle` weights may be in one; the libraries read it as tensors alone. With `code` there may be some.
    """
    lacking = missing_weights(folder, pickle=pickle)
    if lacking is not None:
        raise LoadFailed(f"{folder} {lacking}. Fetch the model's files again.", LoadReason.NOT_FOUND)
    if not any(any(place.glob(pattern)) for place in (model_root(folder), folder) for pattern in _VOCABULARIES):
        # The library would make one up that knows no word.
        raise LoadFailed(f"{folder} has no tokenizer. Fetch the model's files again.", LoadReason.NOT_FOUND)
    for kind, _ in module_folders(folder):
        if not code and not kind.startswith(_LIBRARY) and kind not in foreign:
            message = f"{name} needs code of its own ({kind}), which is not run. Choose another model."
            raise LoadFailed(message, LoadReason.CONFIG)
    pickles = [] if pickle else _pickles(folder)
    if pickles:
        where = pickles[0].parent.relative_to(folder).as_posix()
        message = f"{name} keeps pickled weights in {where!r}, which its YAML does not allow: source.needs: [pickle]."
        raise LoadFailed(message, LoadReason.CONFIG)


def _read(
    name: str, folder: Path, device: str, dtype: str, attention: str, expected: Weights, *, code: bool
) -> Embedder:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()

    def build(attention: str) -> SentenceTransformer:
        return SentenceTransformer(
            str(folder),
            device=device,
            local_files_only=True,
            trust_remote_code=code,
            model_kwargs={
                "use_safetensors": bool(weight_files(folder)),
                "dtype": getattr(torch, dtype),
                "attn_implementation": attention,
            },
        ).eval()

    try:
        model = build(attention)
    except ValueError as error:
        if ONE_ATTENTION not in str(error):
            raise
        model = build("eager")
    first = model[0]
    if not isinstance(first, Transformer) or list(first.modality_config) != ["text"] or first.tokenizer is None:
        message = f"{name} does not begin with a transformer that reads plain text; choose another family."
        raise LoadFailed(message, LoadReason.CONFIG)
    refuse_random(name, model, expected)
    # The library's card refers back to the model: in such a ring the weights outlive the last use of them.
    model.model_card_data.model = None
    model.requires_grad_(requires_grad=False)
    if device == "cpu":
        _own_memory(model)
    if getattr(first.model.config, "use_cache", False):
        # A decoder that embeds would keep keys and values that nobody reads.
        first.model.config.use_cache = False
    steps = list(model)
    while isinstance(steps[-1], Normalize):
        steps.pop()
    tokenizer = first.tokenizer
    return Embedder(
        model=model,
        steps=tuple(steps),
        tokenizer=PlainTokenizer(tokenizer.backend_tokenizer.to_str()),
        layout=Layout(
            type_ids="token_type_ids" in tokenizer.model_input_names,
            pad_id=tokenizer.pad_token_id or 0,
            pad_type=tokenizer.pad_token_type_id,
            pad_left=tokenizer.padding_side == "left",
            first_position=first_position(first.model),
        ),
        words=words(tokenizer),
        keep_end=tokenizer.truncation_side == "left",
        skips_prompt=any(isinstance(step, Pooling) and not step.include_prompt for step in steps),
        prompts={name: text for name, text in (model.prompts or {}).items() if text},
        prefix=(model.prompts or {}).get(model.default_prompt_name or "") or "",
        positions=positions(first.model),
        lock=threading.Lock() if rescales(first.model.config) else nullcontext(),
        stream=_stream(device),
    )


def refuse_random(name: str, model: torch.nn.Module, expected: Weights) -> None:
    """Raise LoadFailed for weights that no file has: they are made up at random, with a line in the log.

    The pooler's are often left out.
    """
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


def positions(model: torch.nn.Module) -> int:
    """How many tokens the model has positions for: by its table of positions, whose first rows may be padding's."""
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and hasattr(module, "num_embeddings"):
            padding = getattr(module, "padding_idx", None)
            return int(module.num_embeddings) - (0 if padding is None else padding + 1)
    return int(getattr(model.config, "max_position_embeddings", 0) or 0)


def first_position(model: torch.nn.Module) -> int:
    """The number of a text's first position: models of RoBERTa's kind begin after their padding's."""
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and isinstance(getattr(module, "padding_idx", None), int):
            return int(module.padding_idx) + 1
    return 0


def words(tokenizer: Any) -> tuple[int, ...]:
    """Up to a thousand ids of tokens that are no control tokens, from all over the vocabulary."""
    special = set(tokenizer.all_special_ids)
    size = tokenizer.backend_tokenizer.get_vocab_size()
    found = [index for index in range(0, size, max(1, size // 1000)) if index not in special]
    return tuple(found or range(size))


def rescales(config: object) -> bool:
    """Whether the model keeps rotary frequencies that it changes by the length of each batch."""
    return any(kind in str(getattr(config, "rope_parameters", None)) for kind in ("dynamic", "longrope"))


def classified(name: str, error: Exception) -> Exception:
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


def _stream(device: str) -> torch.cuda.Stream | None:
    import torch

    if not device.startswith("cuda"):
        return None
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # the library has no types there
    return stream
