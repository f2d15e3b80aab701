"""Output locked to a grammar: which tokens may come next. The work is llguidance's. Imports no torch.

JSON comes with at most one blank after a comma or a colon and none elsewhere, so that a model cannot fill its tokens
with white space. A grammar is compiled once and kept; each sequence has a copy.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.options.generate import Grammar
from engine.errors import ItemRejected
from engine.generation.vocabulary import Vocabulary

KEPT = 64
"""Compiled grammars that are kept, the last used ones."""
JSON_FORM: Any = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}


def written(grammar: Grammar) -> str:
    """The grammar as llguidance reads it. Raises ItemRejected where it is no grammar at all."""
    from llguidance import LLMatcher

    try:
        if grammar.json_schema is not None:
            schema = json.dumps(grammar.json_schema)
            return str(LLMatcher.grammar_from_json_schema(schema, overrides=JSON_FORM))
        if grammar.regex is not None:
            return str(LLMatcher.grammar_from_regex(grammar.regex))
        if grammar.lark is not None:
            return str(LLMatcher.grammar_from_lark(grammar.lark))
        texts = [json.dumps(text, ensure_ascii=False) for text in dict.fromkeys(grammar.choice or ())]
        return str(LLMatcher.grammar_from_lark("start: " + " | ".join(texts)))
    except (ValueError, RecursionError) as error:
        raise _refused(str(error)) from error


class Lock:
    """Where one sequence stands in its grammar."""

    def __init__(self, matcher: Any, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._size = vocabulary.size
        self._ends = vocabulary.ends

    def allowed(self) -> NDArray[np.bool_]:
        """Which tokens may come next, one flag for each. Raises ItemRejected where the grammar is too much."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._size, bitorder="little").astype(np.bool_)

    def take(self, token: int) -> bool:
        """This token has come; whether the text is complete and nothing can follow. Raises ItemRejected."""
        if token in self._ends:
            return True
        self._matcher.consume_token(token)
        self._check()
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _refused(self._matcher.get_error())


class Grammars:
    """The grammars of one model, compiled."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def lock(self, grammar: Grammar) -> Lock:
        """The grammar at its beginning. Raises ItemRejected that says why it cannot be kept."""
        from llguidance import LLMatcher

        text = written(grammar)
        found = self._compiled.get(text)
        if found is None:
            found = LLMatcher(self._vocabulary.matched, text, log_level=0)
            if found.is_error():
                raise _refused(found.get_error())
            self._compiled[text] = found
        self._compiled.move_to_end(text)
        while len(self._compiled) > KEPT:
            self._compiled.popitem(last=False)
        return Lock(found.deep_copy(), self._vocabulary)


def _refused(said: str) -> ItemRejected:
    first = (said.strip().splitlines() or ["no reason given"])[0]
    return ItemRejected(f"The grammar cannot be kept: {first[:300]}", param="options.grammar")
