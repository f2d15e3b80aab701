"""Which token comes next, by one sequence's own options. What runs beside it changes nothing.

Applied in this order: repetition, frequency and presence penalties, biases, the least number of tokens, a grammar,
temperature, top_k, top_p. Imports torch: never import this at the top of an adapter's module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from catalog.options.generate import GenerateOptions
from engine.errors import ItemRejected
from engine.generation.vocabulary import Vocabulary


class Sampler:
    """Chooses the tokens of one sequence. `plain` tells that it is always the likeliest of what the model gives."""

    def __init__(self, options: GenerateOptions, prompt: Sequence[int], ends: Sequence[int], place: int = 0) -> None:
        """`place` is that of the item in its job. Without a seed no draw is the same twice."""
        self._options = options
        self._ends = torch.tensor(list(ends))
        self._made: Counter[int] = Counter()
        self._seen = torch.tensor(sorted(set(prompt))) if options.repetition_penalty != 1 else None
        bias = options.logit_bias or {}
        self._biased = torch.tensor([int(token) for token in bias], dtype=torch.long)
        self._biases = torch.tensor(list(bias.values()), dtype=torch.float32)
        self._generator: torch.Generator | None = None
        if options.temperature > 0:
            self._generator = torch.Generator()
            seed = options.seed_at(place)
            if seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(seed)
        self.plain = (
            options.temperature == 0
            and self._seen is None
            and not options.frequency_penalty
            and not options.presence_penalty
            and not bias
            and options.grammar is None
            and not options.min_tokens
            and not options.logprobs
        )

    def choose(self, logits: torch.Tensor, allowed: torch.Tensor | None) -> int:
        """The next token by its logits (vocabulary, float32, on the CPU). `allowed` are those that a grammar allows."""
        options = self._options
        scores = self._penalised(logits.clone())
        if len(self._biased):
            scores[self._biased] += self._biases
        if self._made.total() < options.min_tokens and not (allowed is not None and self._must_end(allowed)):
            scores[self._ends] = -torch.inf
        if allowed is not None:
            scores.masked_fill_(~allowed, -torch.inf)
            if not bool(allowed.any()):
                raise ItemRejected("The grammar allows no token here.", param="options.grammar")
        if self._generator is None:
            return int(scores.argmax())
        # From the likeliest on, so that no temperature is too low.
        scores = (scores - scores.max()) / options.temperature
        if options.top_k is not None and options.top_k < len(scores):
            scores[scores < scores.topk(options.top_k).values[-1]] = -torch.inf
        if options.top_p < 1:
            scores = _nucleus(scores, options.top_p)
        return int(torch.multinomial(scores.softmax(0), 1, generator=self._generator))

    def took(self, token: int) -> None:
        """This token has come."""
        self._made[token] += 1

    def _penalised(self, scores: torch.Tensor) -> torch.Tensor:
        options = self._options
        made = torch.tensor(list(self._made), dtype=torch.long)
        if self._seen is not None:
            known = torch.cat([self._seen, made]).unique()  # type: ignore[no-untyped-call]  # the library has no types there
            of = scores[known]
            penalty = options.repetition_penalty
            scores[known] = torch.where(of < 0, of * penalty, of / penalty)
        if len(made) and (options.frequency_penalty or options.presence_penalty):
            counts = torch.tensor(list(self._made.values()), dtype=torch.float32)
            scores[made] -= options.frequency_penalty * counts + options.presence_penalty
        return scores

    def _must_end(self, allowed: torch.Tensor) -> bool:
        """Whether nothing but an end is allowed."""
        return int(allowed.sum()) == int(allowed[self._ends].sum())


def _nucleus(scores: torch.Tensor, top_p: float) -> torch.Tensor:
    """Only the likeliest tokens that together have this probability, and one at least."""
    ordered, places = scores.sort(descending=False)
    tail = ordered.softmax(0).cumsum(0) <= 1 - top_p
    tail[-1] = False
    scores[places[tail]] = -torch.inf
    return scores


def logprobs_of(logits: torch.Tensor, token: int, top: int, vocabulary: Vocabulary) -> dict[str, Any]:
    """How likely the model held a token, and the likeliest ones, before any option changed that. Natural logarithms."""
    found = logits.log_softmax(0)
    entry = _entry(token, float(found[token]), vocabulary)
    best = found.topk(min(top, len(found))) if top else None
    entry["top_logprobs"] = (
        []
        if best is None
        else [
            _entry(index, value, vocabulary)
            for index, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
    )
    return entry


def _entry(token: int, logprob: float, vocabulary: Vocabulary) -> dict[str, Any]:
    raw = vocabulary.bytes_of(token)
    return {"token": raw.decode("utf-8", "replace"), "logprob": max(logprob, -9999.0), "bytes": list(raw)}
