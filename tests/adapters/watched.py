"""Which options a family looks at: options that remember what was asked of them."""

from __future__ import annotations

from copy import copy
from typing import Any

from pydantic import BaseModel

from catalog.options import option_names, parse_options
from catalog.schema import Spec
from catalog.terms import Verb
from engine.adapters.base import Adapter
from tests.adapters.case import Case, Payload
from tests.adapters.conftest import batch

BY_THE_DOOR = frozenset({"top_n", "stream"})
"""Options that are kept before and after the model: of the ranking, and of how an answer is told."""


def watched(options: BaseModel, seen: set[str]) -> BaseModel:
    """The same options; each that is looked at is put into `seen`. Copying and comparing them is no look."""
    kind = type(options)

    def look(self: Any, name: str) -> Any:
        if name in kind.model_fields:
            seen.add(name)
        return super(kind, self).__getattribute__(name)

    own = copy(options)
    object.__setattr__(own, "__class__", type(kind.__name__, (kind,), {"__getattribute__": look}))
    return own


def read_options_of(adapter: Adapter, case: Case) -> set[str]:
    """The options that the family looks at while it answers the case's items, and then a long one that asks for more.

    Some are looked at beside others alone, as `seed` where there is something to draw.
    """
    seen: set[str] = set()
    allowed = option_names(adapter.spec, case.verb)
    more = {name: value for name, value in _MORE.get(case.verb, {}).items() if name in allowed}
    items = list(case.items())
    for payloads, sent in ((items, {}), ([_long(items[0], adapter.spec, case.verb)], more)):
        options = watched(parse_options(adapter.spec, case.verb, adapter.spec.run, {**case.options, **sent}), seen)
        type(adapter).group(case.verb, options)
        adapter.run(batch(case.verb, payloads, [options] * len(payloads)))
        if set(allowed) - BY_THE_DOOR <= seen:
            break
    return seen


_MORE: dict[Verb, dict[str, Any]] = {
    Verb.GENERATE: {"temperature": 0.7, "logprobs": True, "max_tokens": 2},
    Verb.EXTRACT: {"labels": ["one", "two"], "relation_labels": ["beside"], "classification_task": "number"},
}


def _long(payload: Payload, spec: Spec, verb: Verb) -> Payload:
    """A text that is longer than the model reads, where that is no error."""
    cut = verb is not Verb.GENERATE and set(payload) == {"text"}
    return {**payload, "text": "word " * (spec.max_length + 1)} if cut else payload
