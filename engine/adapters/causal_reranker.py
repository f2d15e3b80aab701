"""Rerankers that are decoders: asked whether a text answers a query, they score by the next token, "yes" or "no".

Two ways of asking are known. `chat` (Qwen3-Reranker) puts instruction, query and text into one message, and the score
is the share of "yes" among the two answers. `passage` (bge-reranker-v2-gemma) lines up query, passage and a closing
question, and the score is the logit of "Yes". A model of the first kind that was made a classifier of one label is
asked in the same way.

What is read of a pair ends with its last token and is causal, so padding stands behind it and changes nothing; where a
trial at the load shows that the model can take it, a pass has no padding at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from catalog.modelfolder import model_root, read_json, read_modules
from catalog.options import ScoreOptions
from catalog.schema import ScoreFacts, Spec
from catalog.tokenizer import Tokens
from engine.adapters.base import LoadOptions
from engine.errors import ItemRejected, LoadFailed, LoadReason, NotFinite, TextTooLong, WrongCount
from engine.last_token import last_logits, try_packed
from engine.pairs import Pair
from engine.readings import text_of
from engine.text_head import Logits, TextHeadAdapter, sigmoid
from engine.torch_adapter import TorchOptions
from engine.types import Batch, Entry, Outcome, Output

_PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_BODY = "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {text}"
_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_QUESTION = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)


class CausalRerankerOptions(TorchOptions):
    """How the model is asked, by the words of Qwen3-Reranker where nothing else is said.

    `prefix` and `suffix` stand around the message and may name control tokens; `body` has `{instruction}`, `{query}`
    and `{text}`. `yes` and `no` are tokens; with `style: passage` there is no `no`, and the words are BGE's.
    """

    style: Literal["chat", "passage"] = "chat"
    prefix: str = _PREFIX
    body: str = _BODY
    suffix: str = _SUFFIX
    yes: str | None = None
    no: str | None = None

    @model_validator(mode="after")
    def _body_can_be_filled(self) -> CausalRerankerOptions:
        try:
            filled = self.body.format(instruction="", query="\x01", text="\x02")
        except (LookupError, ValueError) as error:
            raise ValueError("body may have {instruction}, {query} and {text}, and no other braces") from error
        if "\x01" not in filled or "\x02" not in filled:
            raise ValueError("body needs {query} and {text}")
        return self


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands around every pair, in tokens: at the beginning, between query and passage, and at the end."""

    first: list[int]
    between: list[int]
    last: list[int]


class CausalRerankerAdapter(TextHeadAdapter):
    """One reranking decoder on one device."""

    options = CausalRerankerOptions
    modules = ("LogitScore",)

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, CausalRerankerOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        if spec.tasks.score is None:
            raise LoadFailed(f"{spec.id} needs 'tasks.score' in its YAML to be of this family.", LoadReason.CONFIG)
        if spec.tasks.score.scale == "similarity":
            raise LoadFailed(f"{spec.id} gives a probability or a logit, no similarity.", LoadReason.CONFIG)
        self._options = options
        self._facts: ScoreFacts = spec.tasks.score
        self._frame = _Frame([], [], [])
        self._answers: tuple[int, ...] = ()

    def head_class(self) -> str:
        """A classifier's where the config says that it was made one, else a decoder's."""
        named = read_json(model_root(self.files) / "config.json").get("architectures") or [""]
        classifies = str(named[0]).endswith("ForSequenceClassification")
        return "AutoModelForSequenceClassification" if classifies else "AutoModelForCausalLM"

    def understand(self, model: Any, tokenizer: Any) -> None:
        """Find the answers' tokens and those around each pair."""

        def ids(text: str) -> list[int]:
            return list(tokenizer.encode(text, add_special_tokens=False))

        passage = self._options.style == "passage"
        if self.head_class() == "AutoModelForCausalLM":
            yes = self._options.yes or ("Yes" if passage else "yes")
            words = [yes] if passage else [self._options.no or "no", yes]
            self._answers = tuple(self._answer(word, ids) for word in words)
            self._check_answers()
        elif model.config.num_labels != 1:
            message = f"{self.spec.id} has {model.config.num_labels} labels, so it gives no one score for a pair."
            raise LoadFailed(message, LoadReason.CONFIG)
        if passage:
            first = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
            self._frame = _Frame(first, ids("\n"), [])
        else:
            self._frame = _Frame(ids(self._options.prefix), [], ids(self._options.suffix))

    def _check_answers(self) -> None:
        """The files may name the answers' tokens, in the layout of sentence-transformers; then they must be these."""
        for entry in read_modules(self.files)[1:]:
            named = read_json(self.files / str(entry.get("path", "")) / "config.json")
            found = [named.get("false_token_id"), named.get("true_token_id")]
            if tuple(index for index in found if index is not None) != self._answers:
                message = f"The files of {self.spec.id} name other answers than its YAML: tokens {found}."
                raise LoadFailed(message, LoadReason.CONFIG)

    def _answer(self, word: str, ids: Any) -> int:
        found = ids(word)
        if len(found) != 1:
            message = f"{word!r} is no one token of {self.spec.id}, so it cannot be an answer."
            raise LoadFailed(message, LoadReason.CONFIG)
        return int(found[0])

    def warm_up(self) -> None:
        """Compare with the model's own call, and find out whether it runs without padding."""
        sample = [_plain([*self._frame.first, *ids, *self._frame.last]) for ids in self._sample()]
        self.unpadded = try_packed(self.spec.id, self.ready(), sample, self._answers, self.device)

    def _sample(self) -> list[list[int]]:
        words = self.tokenizer.encode([" ".join(["word", "of", "a", "text"] * size) for size in (1, 4, 1, 9)])
        return [tokens.body for tokens in words]

    def forget(self) -> None:
        """Drop what belongs to the loaded model."""
        super().forget()
        self.unpadded = False

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Scores of the pairs of all callers in passes of like lengths; equal pairs are computed once."""
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        pairs: dict[int, Pair] = {}
        for place, entry in enumerate(batch.entries):
            pair = self._pair(entry)
            if isinstance(pair, Pair):
                pairs[place] = pair
            else:
                outcomes[place] = pair
        different = {tuple(pair.tokens.ids): pair.tokens for pair in pairs.values()}
        logits = self.logits(list(different.values()), self.room(batch)) if pairs else []
        found = dict(zip(different, logits, strict=True))
        for place, pair in pairs.items():
            outcomes[place] = self._scored(found[tuple(pair.tokens.ids)], pair)
        return [outcome or WrongCount() for outcome in outcomes]

    def _scored(self, logits: Logits, pair: Pair) -> Output | NotFinite:
        raw = logits[-1] - logits[0] if len(logits) == 2 else logits[0]
        if not np.isfinite(raw):
            return NotFinite("The model gave no finite score for this item.")
        score = sigmoid(raw) if self._facts.scale == "probability" else raw
        return Output({"score": float(score), "raw_score": float(raw)}, tokens=pair.counted, truncated=pair.cut)

    def _pair(self, entry: Entry) -> Pair | ItemRejected | TextTooLong:
        query, text = text_of(entry.item.payload.get("query") or {}), text_of(entry.item.payload)
        if isinstance(query, ItemRejected):
            return ItemRejected(query.message.replace("The item", "The query"), param="query")
        if isinstance(text, ItemRejected):
            return text
        options: ScoreOptions = entry.work.options
        asked = options.instruction if options.instruction is not None else self._facts.instruction
        pair = self._passage(query, text, asked) if self._options.style == "passage" else self._chat(query, text, asked)
        if pair.cut and not options.truncate:
            message = (
                f"Query and text have {pair.counted} tokens with all around them and the model reads "
                f"{self.spec.max_length}; shorten them or send 'truncate': true."
            )
            return TextTooLong(message, param="text")
        return pair

    def _chat(self, query: str, text: str, instruction: str | None) -> Pair:
        asked = _INSTRUCTION if instruction is None else instruction
        filled = self._options.body.format(instruction=asked, query=query, text=text)
        body = self.tokenizer.encode([filled])[0].body
        frame = self._frame
        room = max(0, self.spec.max_length - len(frame.first) - len(frame.last))
        ids = [*frame.first, *body[:room], *frame.last]
        return Pair(_plain(ids), len(frame.first) + len(body) + len(frame.last))

    def _passage(self, query: str, text: str, instruction: str | None) -> Pair:
        frame = self._frame
        asked = _QUESTION if instruction is None else instruction
        one, other, question = (tokens.body for tokens in self.tokenizer.encode([f"A: {query}", f"B: {text}", asked]))
        end = [*frame.between, *question]
        most = max(0, self.spec.max_length - len(end))
        first = [*frame.first, *one[: most * 3 // 4]]
        second = [*frame.between, *other]
        ids = [*first, *second[: max(0, most - len(first))], *end]
        counted = len(frame.first) + len(one) + len(second) + len(end)
        return Pair(_plain(ids), counted)

    def one_pass(self, rows: Sequence[Tokens]) -> list[Logits]:
        """The logits after the last token of each row."""
        with self.lock:
            return list(last_logits(self.ready(), rows, self._answers, self.device, packed=self.unpadded))


def _plain(ids: list[int]) -> Tokens:
    """Tokens as they go in; a decoder knows no types."""
    return Tokens(ids, [0] * len(ids), 0, 0)
