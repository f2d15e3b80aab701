"""Whether a text keeps to a JSON schema, by the library that the door checks schemas with.

It takes linear time, whatever pattern a caller wrote; one that backtracks could be held up for ever.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def _bytes() -> Any:
    """A tokenizer whose tokens are bytes."""
    from llguidance import LLTokenizer

    return LLTokenizer("byte")


def keeps(schema: dict[str, Any] | bool, text: str) -> bool:
    """Whether the text is JSON of this schema, with any white space between. A schema that does not compile keeps none.

    Properties must come in the schema's order, in which they are written.
    """
    from llguidance import LLMatcher

    try:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
    except ValueError:
        return False
    matcher = LLMatcher(_bytes(), grammar, log_level=0)
    written = list(text.strip().encode())
    return bool(written) and bool(matcher.consume_tokens(written)) and bool(matcher.is_accepting())
