"""What a family's file of cases holds: `CASES`, one Case for each verb and way of answering that the family has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.schema import Spec
from catalog.terms import Verb
from engine.types import Output

Payload = dict[str, Any]
Answers = Callable[[Sequence[Payload]], Sequence[Any]]
"""The library's own answers to items, by a model that it has loaded."""

DTYPES = {"float32": "<f4", "float16": "<f2", "int8": "i1", "uint8": "u1", "binary": "i1", "ubinary": "u1"}


def plain(output: Output) -> Any:
    """An output's fields with arrays as numpy: what two answers are compared by, unless a case says otherwise."""
    return {name: _plain(value) for name, value in output.fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping) and "values" in value:
        values: NDArray[Any] = np.frombuffer(value["values"], DTYPES[value["dtype"]])
        if "token_dims" in value:
            return values.reshape(value["num_tokens"], -1)
        if "indices" in value:
            return dict(zip(np.frombuffer(value["indices"], "<i4").tolist(), values.tolist(), strict=True))
        return values
    return value


@dataclass(frozen=True)
class Case:
    """One model of a family under one verb.

    `model` gives a small model that can be had offline, and where its files are. `items` are payloads of mixed lengths
    whose answers differ. `options` are as a caller sends them. `bad` are payloads that must fail alone, with an error
    of their own. `reference` loads the same files with the model's own library, on a device, and gives what answers
    items by the library's public calls and in its own batches, in the form that `found` makes of an output; None only
    where the family has no library of its own, and then `why_no_reference` says so. Numbers are
    compared within `tolerance`, all else exactly. `needs` says what this machine lacks for the case, None if nothing;
    where it lacks something only what needs no loaded model is tested. `looks_past` are options that the family reads,
    but not under these options or for these items.
    """

    name: str
    model: Callable[[], tuple[Spec, Path | None]]
    verb: Verb
    items: Callable[[], Sequence[Payload]]
    load: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    bad: Sequence[Payload] = ({},)
    reference: Callable[[Path | None, str], Answers] | None = None
    why_no_reference: str = ""
    found: Callable[[Output], Any] = plain
    tolerance: float = 1e-4
    needs: Callable[[], str | None] | None = None
    looks_past: frozenset[str] = frozenset()


def agree(one: Any, other: Any, tolerance: float) -> str | None:
    """Where two answers differ, as a path with both values; None where they agree."""
    return _agree(one, other, tolerance, "")


def _agree(one: Any, other: Any, tolerance: float, where: str) -> str | None:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        a, b = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
        if a.shape != b.shape:
            return f"{where}: shapes {a.shape} and {b.shape}"
        worst = float(np.abs(a - b).max(initial=0.0))
        return None if worst <= tolerance else f"{where}: differ by {worst}"
    if isinstance(one, bool | str) or one is None:
        return None if one == other else f"{where}: {one!r} and {other!r}"
    if isinstance(one, int | float) and isinstance(other, int | float):
        return None if abs(one - other) <= tolerance else f"{where}: {one} and {other}"
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if set(one) != set(other):
            return f"{where}: keys {sorted(map(str, one))} and {sorted(map(str, other))}"
        pairs = [(f"{where}.{key}", one[key], other[key]) for key in one]
    elif isinstance(one, Sequence) and isinstance(other, Sequence):
        if len(one) != len(other):
            return f"{where}: {len(one)} and {len(other)} of them: {one!r} and {other!r}"[:500]
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else f"{where}: {one!r} and {other!r}"
    return next((found for place, a, b in pairs if (found := _agree(a, b, tolerance, place))), None)
