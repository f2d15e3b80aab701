"""The layout of bge-m3: dense, sparse and multivector outputs of one transformer, by two small heads beside it.

One pass gives whatever the callers of a batch asked for. The heads are `sparse_linear` and `colbert_linear`, each a
file of its own beside the weights, in safetensors or (where the YAML allows pickles) as torch saves them.

* dense: the first token's state.
* sparse: for each entry of the vocabulary the highest weight of its tokens; control tokens have none.
* multivector: the other tokens' projected states, at norm 1.

A score is the dot product of the dense vectors at norm 1, that of the sparse ones, the mean over the query's vectors of
their best matches, or the weighted mean of the three.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from catalog.options import EncodeOptions, ScoreOptions
from catalog.schema import EncodeFacts, Spec
from catalog.terms import Verb
from catalog.tokenizer import PlainTokenizer, Tokens
from engine.adapters.base import LoadOptions
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, NotFinite, WrongCount
from engine.maxsim import maxsim
from engine.multivectors import finish_multivector, read_multivector
from engine.outputs import finish_vectors
from engine.packing import Layout, pad
from engine.pickled import folder_weights, pickled_file, read_pickle
from engine.pretrained import classified, rescales
from engine.readings import text_of
from engine.sparse import finish_sparse
from engine.text_encoder import Row, TextEncoderAdapter, layout_of, read_row, said_of_query
from engine.torch_adapter import FLOAT_BYTES
from engine.types import Batch, Outcome, Output

if TYPE_CHECKING:
    import torch

Matrix = NDArray[np.float32]

OUTPUTS = ("dense", "sparse", "multivector")
HEADS = ("sparse_linear", "colbert_linear")


@dataclass(frozen=True, slots=True)
class Found:
    """What a pass gave of one text; None where nobody asked. `sparse` is indices, each once, and their weights."""

    dense: Matrix | None = None
    sparse: tuple[NDArray[np.int64], Matrix] | None = None
    multivector: Matrix | None = None


class BgeM3Adapter(TextEncoderAdapter):
    """One such model on one device."""

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if spec.tasks.encode is None:
            raise LoadFailed(f"{spec.id} needs 'tasks.encode' in its YAML to be of this family.", LoadReason.CONFIG)
        self._facts: EncodeFacts = spec.tasks.encode
        self.forget()

    def forget(self) -> None:
        """Drop the tokenizer."""
        self._tokenizer: PlainTokenizer | None = None
        self._layout = Layout(type_ids=False)
        self._keep_end = False
        self._control: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def weight_bytes(self) -> int:
        """Bytes of the transformer and the heads, once loaded."""
        size = FLOAT_BYTES[self.dtype]
        heads = (head for name in HEADS if (head := self._pickled_head(name)) is not None)
        values = sum(tensor.numel() for head in heads for tensor in head.values())
        return folder_weights(self.spec, self.files, size).bytes + size * values

    def _pickled_head(self, name: str) -> dict[str, torch.Tensor] | None:
        """A head that is in a pickle alone. Raises LoadFailed if the YAML allows none, or it holds other things."""
        file = self.files / f"{name}.pt"
        if (self.files / f"{name}.safetensors").is_file() or not file.is_file():
            return None
        if "pickle" not in self.spec.source.needs:
            message = (
                f"{self.spec.id} keeps {file.name} in a pickle, which its YAML does not allow: source.needs: [pickle]."
            )
            raise LoadFailed(message, LoadReason.CONFIG)
        try:
            return read_pickle(file)
        except Exception as error:
            message = f"{file} is cut short, or holds more than tensors, and is not read: fetch it again."
            raise LoadFailed(message, LoadReason.CORRUPT) from error

    def read(self) -> torch.nn.Module:
        """Transformer and heads in one module. Raises LoadFailed."""
        try:
            return self._read()
        except LoadFailed:
            raise
        except Exception as error:
            raise classified(self.spec.id, error) from error

    def _read(self) -> torch.nn.Module:
        import torch
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        dtype = getattr(torch, self.dtype)
        tokenizer: Any = AutoTokenizer.from_pretrained(self.files, local_files_only=True, trust_remote_code=False)
        body, info = AutoModel.from_pretrained(
            self.files,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=pickled_file(self.spec, self.files) is None,
            dtype=dtype,
            attn_implementation=self.attention,
            output_loading_info=True,
        )
        absent = sorted(key for key in info["missing_keys"] if "pooler" not in key)
        if absent:
            raise LoadFailed(f"The files of {self.spec.id} lack {absent[0]}: fetch them again.", LoadReason.CORRUPT)
        # Nothing here reads what the pooler gives.
        body.pooler = None
        self.check_length(body)
        if rescales(body.config):
            self.lock = threading.Lock()
        self._tokenizer = PlainTokenizer(tokenizer.backend_tokenizer.to_str())
        self._layout, self._keep_end = layout_of(tokenizer), tokenizer.truncation_side == "left"
        if self._layout.pad_left:
            message = f"{self.spec.id} pads on the left, so its first token is not the one that stands for the text."
            raise LoadFailed(message, LoadReason.CONFIG)
        control = (tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id)
        self._control = np.array([index for index in control if index is not None], dtype=np.int64)
        parts = {"body": body, **{name: self._head(name, body.config.hidden_size).to(dtype) for name in HEADS}}
        return torch.nn.ModuleDict(parts)

    def _head(self, name: str, hidden: int) -> torch.nn.Linear:
        import torch
        from safetensors.torch import load_file

        file = self.files / f"{name}.safetensors"
        tensors = load_file(file) if file.is_file() else self._pickled_head(name)
        if tensors is None:
            raise LoadFailed(f"{self.files} lacks {name}.pt. Fetch the model's files again.", LoadReason.NOT_FOUND)
        if set(tensors) != {"weight", "bias"} or tensors["weight"].shape[1] != hidden:
            raise LoadFailed(f"{name} of {self.spec.id} does not fit its transformer.", LoadReason.CORRUPT)
        linear = torch.nn.Linear(hidden, tensors["weight"].shape[0])
        linear.load_state_dict(tensors)
        return linear

    def warm_up(self) -> None:
        """One word; its outputs are as wide as the YAML says."""
        parts: Any = self.ready()
        tokens = self._tokens(["word"])[0]
        self._embed([Row(0, tokens, len(tokens.ids))], OUTPUTS)
        config = parts["body"].config
        wide = {
            "dims": config.hidden_size,
            "sparse_dims": config.vocab_size,
            "token_dims": parts["colbert_linear"].out_features,
        }
        for output, name in zip(OUTPUTS, wide, strict=True):
            said = getattr(self._facts, name)
            if output in self._facts.outputs and said != wide[name]:
                message = f"{self.spec.id} has {name} {wide[name]}; its YAML says {said}."
                raise LoadFailed(message, LoadReason.CONFIG)

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Outputs of texts, or scores of pairs. Each text goes through once, whatever is asked of it."""
        self.ready()
        return self._score(batch) if batch.verb is Verb.SCORE else self._encode(batch)

    def _encode(self, batch: Batch) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        texts: dict[int, str | ItemRejected] = {}
        for place, entry in enumerate(batch.entries):
            text = text_of(entry.item.payload)
            texts[place] = text if isinstance(text, ItemRejected) else entry.work.options.prefix(self._facts) + text
        cuts = {place: entry.work.options.truncate for place, entry in enumerate(batch.entries)}
        asked = {output for entry in batch.entries for output in entry.work.options.outputs(self._facts)}
        for place, found in self._found(batch, texts, cuts, asked).items():
            if isinstance(found, EngineError):
                outcomes[place] = found
            else:
                outcomes[place] = self._output(*found, batch.entries[place].work.options)
        return [outcome or WrongCount() for outcome in outcomes]

    def _output(self, row: Row, found: Found, options: EncodeOptions) -> Outcome:
        fields: dict[str, Any] = {}
        for output in options.outputs(self._facts):
            value: dict[str, Any] | EngineError
            if output == "dense":
                value = finish_vectors(_there(found.dense)[None], [options])[0]
            elif output == "sparse":
                indices, weights = _there(found.sparse)
                value = finish_sparse(indices, weights, self._facts.sparse_dims or 0, options.output_dtype)
            else:
                value = finish_multivector(_there(found.multivector), options.output_dtype)
            if isinstance(value, EngineError):
                return value
            fields[output] = value
        return Output(fields, tokens=row.counted, truncated=row.truncated)

    def _score(self, batch: Batch) -> list[Outcome]:
        """Queries and documents go through together: to this model they are the same."""
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        texts: dict[int, str | ItemRejected] = {}
        cuts: dict[int, bool] = {}
        sides: dict[int, tuple[Row | None, Found]] = {}
        modes = [self._mode(entry.work.options) for entry in batch.entries]
        for place, entry in enumerate(batch.entries):
            options: ScoreOptions = entry.work.options
            for side, payload in enumerate((entry.item.payload.get("query") or {}, entry.item.payload)):
                key = 2 * place + side
                cuts[key] = options.truncate
                given = read_multivector(payload, self._facts.token_dims or 0)
                if isinstance(given, np.ndarray) and modes[place] == "multivector":
                    sides[key] = (None, Found(multivector=given))
                elif given is not None:
                    message = "Vectors that are sent are scored by 'score_mode' multivector alone."
                    texts[key] = (
                        given if isinstance(given, ItemRejected) else ItemRejected(message, param="multivector")
                    )
                else:
                    text = text_of(payload)
                    before = (options.instruction or "") if side == 0 else ""
                    texts[key] = text if isinstance(text, ItemRejected) else before + text
        asked = set(OUTPUTS) if "all" in modes else set(modes)
        for key, found in self._found(batch, texts, cuts, asked).items():
            if isinstance(found, EngineError):
                outcomes[key // 2] = outcomes[key // 2] or (found if key % 2 else said_of_query(found))
            else:
                sides[key] = found
        for place, mode in enumerate(modes):
            if outcomes[place] is None:
                weights = batch.entries[place].work.options.score_weights
                outcomes[place] = _scored(sides[2 * place], sides[2 * place + 1], mode, weights)
        return [outcome or WrongCount() for outcome in outcomes]

    def _mode(self, options: ScoreOptions) -> str:
        every = len(self._facts.outputs) == len(OUTPUTS)
        return options.score_mode or ("all" if every else self._facts.outputs[0])

    def _found(
        self,
        batch: Batch,
        texts: Mapping[int, str | ItemRejected],
        cuts: Mapping[int, bool],
        asked: Collection[str],
    ) -> dict[int, tuple[Row, Found] | EngineError]:
        """The outputs of each text. Equal ones are computed once."""
        found: dict[int, tuple[Row, Found] | EngineError] = {}
        readable = {key: text for key, text in texts.items() if isinstance(text, str)}
        found.update({key: text for key, text in texts.items() if isinstance(text, ItemRejected)})
        rows: dict[int, Row] = {}
        for key, tokens in zip(readable, self._tokens(list(readable.values())), strict=True):
            row = read_row(key, tokens, self.spec.max_length, truncate=cuts[key], keep_end=self._keep_end)
            if isinstance(row, Row):
                rows[key] = row
            else:
                found[key] = row
        found.update(self.once(batch, rows, lambda some: self._embed(some, asked)))
        return found

    def _tokens(self, texts: Sequence[str]) -> list[Tokens]:
        if self._tokenizer is None:
            raise RuntimeError("run before load or restore")
        return self._tokenizer.encode(texts) if texts else []

    def _embed(self, rows: Sequence[Row], asked: Collection[str]) -> list[Found]:
        """One pass of the transformer, and of the heads that somebody asked for."""
        import torch
        from torch.nn.functional import normalize

        parts: Any = self.module
        dense = weights = vectors = None
        arrays = self.on_device(pad([row.tokens for row in rows], self._layout))
        del arrays["modality"]
        with torch.inference_mode(), self.lock:
            states = parts["body"](**arrays).last_hidden_state
            if "dense" in asked:
                dense = states[:, 0].float().cpu().numpy()
            if "sparse" in asked:
                weights = torch.relu(parts["sparse_linear"](states)).squeeze(-1).float().cpu().numpy()
            if "multivector" in asked:
                vectors = normalize(parts["colbert_linear"](states[:, 1:]), dim=-1).float().cpu().numpy()
        found = []
        for place, row in enumerate(rows):
            length = len(row.tokens.ids)
            found.append(
                Found(
                    None if dense is None else dense[place],
                    None if weights is None else highest(row.tokens.ids, weights[place, :length], self._control),
                    None if vectors is None else vectors[place, : length - 1],
                )
            )
        return found


def highest(ids: Sequence[int], weights: Matrix, control: NDArray[np.int64]) -> tuple[NDArray[np.int64], Matrix]:
    """The highest weight of each id, rising, those of `control` left out."""
    array = np.asarray(ids, dtype=np.int64)
    kept = ~np.isin(array, control)
    indices, places = np.unique(array[kept], return_inverse=True)
    best = np.zeros(len(indices), dtype=np.float32)
    np.maximum.at(best, places, weights[kept])
    return indices, best


def _there(value: Any) -> Any:
    if value is None:
        raise RuntimeError("an output that was asked for was not computed")
    return value


def _scored(
    query: tuple[Row | None, Found], document: tuple[Row | None, Found], mode: str, weights: Sequence[float] | None
) -> Outcome:
    ways = {"dense": _dense_score, "sparse": _sparse_score, "multivector": _multivector_score}
    if mode == "all":
        own = weights or (1.0, 1.0, 1.0)
        score = sum(w * ways[way](query[1], document[1]) for way, w in zip(OUTPUTS, own, strict=True)) / sum(own)
    else:
        score = ways[mode](query[1], document[1])
    if not np.isfinite(score):
        return NotFinite()
    rows = [row for row, _ in (query, document) if row is not None]
    return Output({"score": score}, sum(row.counted for row in rows), any(row.truncated for row in rows))


def _dense_score(query: Found, document: Found) -> float:
    one, other = (np.asarray(_there(found.dense), dtype=np.float64) for found in (query, document))
    return float(one @ other / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-12))


def _sparse_score(query: Found, document: Found) -> float:
    (ids, weights), (others, other_weights) = _there(query.sparse), _there(document.sparse)
    _, mine, theirs = np.intersect1d(ids, others, assume_unique=True, return_indices=True)
    return float(weights[mine].astype(np.float64) @ other_weights[theirs])


def _multivector_score(query: Found, document: Found) -> float:
    vectors: Matrix = _there(query.multivector)
    return maxsim(vectors, [_there(document.multivector)])[0] / max(len(vectors), 1)
