"""Dense text embedders in the layout of sentence-transformers: a transformer, pooling, perhaps more modules.

Tokenising is ours, so that user text is text (see `catalog.tokenizer`) and an item is cut, counted or refused by its
own options. So is the last step: a trailing Normalize module is left to `engine.outputs`, and one batch may hold
normalised and raw vectors, whole and shortened ones.

`reentrant`: the library's modules write to nothing but their own call's features, the tokenizer never changes after the
load, and the one thing that a model may keep between calls, rescaled rotary positions, is put under a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import model_validator

from catalog.modelfolder import model_root, read_json
from catalog.options import EncodeOptions, side_prompt
from catalog.schema import EncodeFacts, Spec
from catalog.tokenizer import Tokens
from engine.adapters.base import Adapter, LoadOptions
from engine.checkpoint import read_shape
from engine.embedder import Embedder, measured_activations, try_packed
from engine.errors import ItemRejected, LoadFailed, LoadReason, OutOfMemory, TextTooLong, WrongCount
from engine.failures import out_of_memory
from engine.hostcopy import HostCopy
from engine.onnx_transformer import in_onnx
from engine.outputs import finish_vectors
from engine.pretrained import folder_weights, read_embedder
from engine.types import Batch, Footprint, Outcome, Output

T = TypeVar("T")

_ONNX_SHARE = {"float32": 2.5, "int8": 1.3}
"""What ONNX Runtime takes for its two sessions, in parts of the float32 weights; measured on MiniLM."""
_FLOAT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


_ONLY_EAGER = {"mpnet", "deberta", "deberta-v2"}
"""Architectures with an attention of their own, which keeps its scores."""


class SentenceTransformerOptions(LoadOptions):
    """How the weights are held and attention is computed. Half types need a card, or a recent CPU to gain by them.

    `padding`: `auto` pads only where a trial at the load shows that the model needs it. `runtime`: `onnx` computes the
    transformer in ONNX Runtime, on a CPU, and pads; only there may `precision` be lower than the weights' own, and only
    where the spec has measured what that costs.
    """

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    attention: Literal["sdpa", "eager"] = "sdpa"
    padding: Literal["auto", "always", "never"] = "auto"
    runtime: Literal["torch", "onnx"] = "torch"
    precision: Literal["float32", "int8"] = "float32"

    @model_validator(mode="after")
    def _runtimes_agree(self) -> SentenceTransformerOptions:
        if self.runtime == "torch" and self.precision != "float32":
            raise ValueError(f"precision {self.precision} needs 'runtime: onnx'")
        if self.runtime == "onnx" and (self.dtype, self.attention) != ("float32", "sdpa"):
            raise ValueError("with 'runtime: onnx' leave out dtype and attention")
        if self.runtime == "onnx" and self.padding == "never":
            raise ValueError("'runtime: onnx' pads; leave out padding")
        return self


@dataclass(frozen=True, slots=True)
class _Row:
    """One readable item of a batch: its place, what goes in, and how many tokens the text and its prompt have."""

    place: int
    options: EncodeOptions
    tokens: Tokens
    counted: int
    prompt: int


class SentenceTransformerAdapter(Adapter):
    """One embedder on one device."""

    options = SentenceTransformerOptions
    reentrant = True

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, SentenceTransformerOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        if spec.tasks.encode is None or folder is None:
            message = f"{spec.id} needs 'tasks.encode' and a 'source' in its YAML to be of this family."
            raise LoadFailed(message, LoadReason.CONFIG)
        self._options = options
        self._facts: EncodeFacts = spec.tasks.encode
        self._files = folder
        self._pickle = "pickle" in spec.source.needs
        self._embedder: Embedder | None = None
        self._parked: HostCopy | None = None
        self._away = False
        self._measured = 0

    def footprint(self) -> Footprint:
        """Weights by the files' headers; a token's activations by the widest point of a layer.

        There a layer holds some seven vectors of its width (input, residual, query, key, value, attention's output and
        its projection) and the feed-forward's inner values three times; measured peaks are 5 to 10 % below. A token's
        row of the attention mask comes on top, and with `eager` its scores in every head, twice.

        Once the model has been loaded on a card, a token's activations are those that were measured there.
        """
        size = _FLOAT_BYTES[self._options.dtype]
        config = read_json(model_root(self._files) / "config.json")
        shape = read_shape(config)
        eager = self._options.attention == "eager" or config.get("model_type") in _ONLY_EAGER
        scores = 2 * shape.heads if eager else 0
        values = 7 * shape.hidden + 3 * shape.inner + self.spec.max_length * (1 + scores)
        weights = folder_weights(self._files, size, pickle=self._pickle).bytes
        if self._options.runtime == "onnx":
            weights = int(weights * _ONNX_SHARE[self._options.precision])
        return Footprint(weights, self._measured or size * values)

    def load(self) -> None:
        """Read, place, and run one word through: it shows that the model is what the YAML says, and warms it up."""
        if self._options.runtime == "onnx" and self.device != "cpu":
            message = f"{self.spec.id} is to run in ONNX Runtime, which serves CPUs: leave out 'runtime' on a card."
            raise LoadFailed(message, LoadReason.CONFIG)
        options = self._options
        needs = self.spec.source.needs
        embedder = read_embedder(self.spec.id, self._files, self.device, options.dtype, options.attention, needs)
        if 0 < embedder.positions < self.spec.max_length:
            message = f"{self.spec.id} reads {embedder.positions} tokens; its YAML says {self.spec.max_length}."
            raise LoadFailed(message, LoadReason.CONFIG)
        found = embedder.embed(embedder.tokenizer.encode(["word"]), self.device).shape[1]
        if found != self._facts.dims:
            message = f"{self.spec.id} gives {found} dimensions; its YAML says {self._facts.dims}."
            raise LoadFailed(message, LoadReason.CONFIG)
        if self._options.runtime == "onnx":
            embedder = in_onnx(embedder, self.spec, self._files, self._options.precision)
        elif self._options.padding != "always" and self._options.attention == "sdpa":
            embedder = try_packed(embedder, self.device, self.spec.max_length)
        if self._options.padding == "never" and not embedder.unpadded:
            message = f"{self.spec.id} cannot run without padding here; its YAML says 'padding: never'."
            raise LoadFailed(message, LoadReason.CONFIG)
        if self.device.startswith("cuda"):
            self._measured = measured_activations(embedder, self.device, self.spec.max_length)
        self._embedder = embedder
        self.unpadded = embedder.unpadded

    def unload(self) -> None:
        """Drop the model, wherever it is; nothing else refers to its memory."""
        if self._parked is not None:
            self._parked.drop()
        self._embedder = self._parked = None
        self._away = self.unpadded = False

    def held(self) -> int | None:
        """Bytes of all parameters and buffers; none while the model is parked."""
        if self._embedder is None:
            return None
        return 0 if self._away else self._embedder.bytes

    def measured_per_token(self) -> int | None:
        """As measured at the load, on a card. On a CPU nothing tells a batch's peak.

        torch keeps no count of its CPU memory, the process's resident set has all other batches in it, and torch's
        profiler is one for the whole process and does not see what the matrix kernels take for themselves. The estimate
        stands there.
        """
        return self._measured or None

    def park(self) -> int | None:
        """Move the weights to pinned host memory. On a CPU they stay where they are: it is the same memory."""
        embedder = self._embedder
        if embedder is None or self._away:
            return None
        if self.device != "cpu":
            self._parked = _in_words("parking", lambda: HostCopy(embedder.model, self.device))
        self._away = True
        return embedder.bytes if self._parked is None else self._parked.bytes

    def restore(self) -> None:
        """Copy the weights back, where they are gone. Raises OutOfMemory, and the model stays parked."""
        if not self._away:
            raise RuntimeError("restore before park")
        if self._parked is not None:
            _in_words("restoring", self._parked.restore)
        self._parked = None
        self._away = False

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Vectors of the batch's texts. Those of equal prompts go in one pass where the model leaves prompts out."""
        embedder = self._embedder
        if embedder is None or self._away:
            raise RuntimeError("run before load or restore")
        outcomes, rows = self._read_items(embedder, batch)
        for prompt in dict.fromkeys(row.prompt for row in rows):
            self._encode(embedder, [row for row in rows if row.prompt == prompt], outcomes)
        return [outcome or WrongCount() for outcome in outcomes]

    def _read_items(self, embedder: Embedder, batch: Batch) -> tuple[list[Outcome | None], list[_Row]]:
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        texts: dict[int, str] = {}
        for place, entry in enumerate(batch.entries):
            text = entry.item.payload.get("text")
            refusal = _unreadable(text)
            if refusal is None:
                texts[place] = f"{self._prefix(embedder, entry.work.options)}{text}"
            else:
                outcomes[place] = refusal
        rows: list[_Row] = []
        read = embedder.tokenizer.encode(list(texts.values())) if texts else []
        for place, tokens in zip(texts, read, strict=True):
            options: EncodeOptions = batch.entries[place].work.options
            row = self._row(embedder, place, options, tokens)
            if isinstance(row, _Row):
                rows.append(row)
            else:
                outcomes[place] = row
        return outcomes, rows

    def _row(
        self, embedder: Embedder, place: int, options: EncodeOptions, tokens: Tokens
    ) -> _Row | ItemRejected | TextTooLong:
        count, longest = len(tokens.ids), self.spec.max_length
        if count == 0:
            return ItemRejected("The model's tokenizer finds nothing to read in this text.", param="text")
        if count > longest and not options.truncate:
            return TextTooLong.counted(count, longest)
        prompt = self._prompt_length(embedder, options) if embedder.skips_prompt else 0
        return _Row(place, options, tokens.cut(longest, keep_end=embedder.keep_end), count, prompt)

    def _encode(self, embedder: Embedder, rows: Sequence[_Row], outcomes: list[Outcome | None]) -> None:
        try:
            matrix = embedder.embed([row.tokens for row in rows], self.device, rows[0].prompt)
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                longest = max(len(row.tokens.ids) for row in rows)
                message = f"A batch of {len(rows)} texts padded to {longest} tokens does not fit the device."
                raise OutOfMemory(message) from error
            raise
        for row, vector in zip(rows, finish_vectors(matrix, [row.options for row in rows]), strict=True):
            if isinstance(vector, dict):
                cut = row.counted > len(row.tokens.ids)
                outcomes[row.place] = Output({"dense": vector}, tokens=row.counted, truncated=cut)
            else:
                outcomes[row.place] = vector

    def _prefix(self, embedder: Embedder, options: EncodeOptions) -> str:
        """What comes before a text: what the caller chose, else the prompt of its side in the YAML or the files."""
        if options.instruction is not None or options.prompt is not None:
            return options.prefix(self._facts)
        side = side_prompt({**embedder.prompts, **self._facts.prompts}, is_query=options.is_query)
        return side or ("" if options.is_query else embedder.prefix)

    def _prompt_length(self, embedder: Embedder, options: EncodeOptions) -> int:
        """Tokens before the text's own, as the library counts them: the prompt's, less one at the template's end."""
        prefix = self._prefix(embedder, options)
        if not prefix:
            return 0
        tokens = embedder.tokenizer.encode([prefix])[0]
        return len(tokens.ids) - min(tokens.last, 1)


def _in_words(doing: str, move: Callable[[], T]) -> T:
    try:
        return move()
    except (RuntimeError, MemoryError) as error:
        if out_of_memory(error):
            raise OutOfMemory(f"There is no memory for {doing} the model.") from error
        raise


def _unreadable(text: object) -> ItemRejected | None:
    if not isinstance(text, str):
        return ItemRejected("The item has no text.", param="text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        message = f"The text has half a surrogate pair at character {error.start}."
        return ItemRejected(message, param="text")
    return None
