"""From a request to a submission: model, verb, options, items, lengths, price, queue. Pure.

What is wrong with the request raises and nothing is accepted; what is wrong with one item becomes that item's fault,
and its neighbours run. The two halves are apart because counting tokens takes time: `check` is cheap and runs anywhere,
the texts it gives are counted wherever the caller likes, and `price` makes the submission of both.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgpack
import orjson
from pydantic import BaseModel

from catalog.cost import predict
from catalog.errors import UnsupportedVerb
from catalog.loader import Catalog, Choice
from catalog.options import EncodeOptions, parse_options
from catalog.schema import CostCoefficients, Spec
from catalog.terms import Verb
from catalog.tokenizer import Counts
from tasks.errors import EmptyText, InvalidRequest, LimitExceeded, TextTooLong, as_data
from tasks.messages import Submission
from tasks.queues import bucket_of
from tasks.request import ItemRequest, JobRequest
from tasks.settings import Settings

CALLER = "default"
"""Whose jobs these are, for as long as there is one caller."""

SERVED = (Verb.ENCODE,)
"""The verbs that have an adapter contract."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the door lets through."""

    max_items: int
    max_text_chars: int
    default_retention_s: int
    max_retention_s: int

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """The limits in the settings."""
        return cls(
            max_items=settings.max_items,
            max_text_chars=settings.max_text_chars,
            default_retention_s=settings.default_retention_s,
            max_retention_s=settings.max_retention_s,
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """A request that may run, before its price is known.

    `texts` are those to be counted, as the model will read them (prompt included), and `places` their indices among the
    items. `faults` holds the items that will not run.
    """

    request: JobRequest
    choice: Choice
    options: BaseModel
    items: Sequence[Mapping[str, str]]
    texts: Sequence[str]
    places: Sequence[int]
    faults: Mapping[int, Mapping[str, Any]]
    retention_s: int
    chars: int


def check(request: JobRequest, catalog: Catalog, limits: Limits) -> Checked:
    """The request against the catalog and the limits. Raises a CatalogError or a TaskError that names the field."""
    choice = catalog.find(request.model)
    if request.verb not in SERVED or not choice.spec.does(request.verb):
        raise UnsupportedVerb(_verb_message(choice.spec, request.verb), param="verb")
    options = parse_options(choice.spec, request.verb, choice.run, request.options)
    _no_nul(request.options)
    retention_s = limits.default_retention_s if request.retention_s is None else request.retention_s
    if retention_s > limits.max_retention_s:
        raise InvalidRequest(
            f"'retention_s' must be at most {limits.max_retention_s} on this server.", param="retention_s"
        )
    prefix = prefix_of(choice.spec, options)
    items: list[dict[str, str]] = []
    texts: list[str] = []
    places: list[int] = []
    faults: dict[int, Mapping[str, Any]] = {}
    chars = 0
    for index, item in enumerate(request.items):
        text = _append(items, item)
        chars += len(text)
        if len(text) > limits.max_text_chars:
            raise _too_long(index, item, len(text), limits.max_text_chars)
        if not text or text.isspace():
            faults[index] = as_data(EmptyText(param=f"items[{index}]"))
        else:
            texts.append(prefix + text if prefix else text)
            places.append(index)
    return Checked(request, choice, options, items, texts, places, faults, retention_s, chars)


def price(
    checked: Checked,
    counts: Counts,
    *,
    now: float,
    cost: CostCoefficients,
    key: str | None = None,
    caller: str = CALLER,
) -> Submission:
    """The submission: lengths, predicted milliseconds, queue. `counts` has one entry for each of `checked.texts`.

    `cost` is the model's on the hardware that will run it (`tasks.costs`). An estimate refuses no text: the worker
    counts again, with the model's own tokenizer.
    """
    request, choice = checked.request, checked.choice
    longest = choice.spec.max_length
    cuts = not isinstance(checked.options, EncodeOptions) or checked.options.truncate
    faults = dict(checked.faults)
    lengths = [0] * len(checked.items)
    for place, count in zip(checked.places, counts.tokens, strict=True):
        if count > longest and counts.exact and not cuts:
            faults[place] = as_data(_over(place, count, longest))
        else:
            lengths[place] = min(count, longest)
    running = [index for index in checked.places if index not in faults]
    costs = [0.0] * len(lengths)
    for place, ms in zip(running, predict(cost, [lengths[i] for i in running]), strict=True):
        costs[place] = ms
    return Submission(
        id=job_id(now),
        caller=caller,
        verb=request.verb,
        model=choice.key,
        revision=choice.spec.source.revision,
        lane=request.lane,
        bucket=bucket_of(sum(costs)).value,
        priority=request.priority,
        options=request.options,
        inputs=bytes(msgpack.packb(checked.items)),
        lengths=lengths,
        costs=costs,
        faults=faults,
        created=now,
        deadline=None if request.deadline_s is None else now + request.deadline_s,
        retention_s=checked.retention_s,
        tags=request.tags,
        idempotency_key=key,
        body_hash=None if key is None else body_hash(request),
    )


def prefix_of(spec: Spec, options: BaseModel) -> str:
    """What the model reads before each text: its named prompt, or the caller's instruction."""
    if not isinstance(options, EncodeOptions):
        return ""
    if options.prompt is not None and spec.tasks.encode is not None:
        return spec.tasks.encode.prompts[options.prompt]
    return options.instruction or ""


def body_hash(request: JobRequest) -> bytes:
    """What makes two requests the same: their meaning, not their spelling. Defaults count as if they had been sent."""
    meaning = request.model_dump(mode="json")
    meaning["items"] = [{"text": item} if isinstance(item, str) else item for item in meaning["items"]]
    for item in meaning["items"]:
        if item.get("id", "") is None:
            del item["id"]
    return hashlib.sha256(orjson.dumps(meaning, option=orjson.OPT_SORT_KEYS)).digest()


def check_key(key: str | None) -> str | None:
    """An Idempotency-Key as it may be: 1 to 256 printable ASCII characters. Raises InvalidRequest."""
    if key is None or (0 < len(key) <= 256 and key.isascii() and key.isprintable()):
        return key
    raise InvalidRequest("'Idempotency-Key' must be 1 to 256 printable ASCII characters.", param="Idempotency-Key")


def job_id(now: float) -> UUID:
    """A UUIDv7 of this moment: ids sort by time of acceptance."""
    stamp = int(now * 1000) & (2**48 - 1)
    noise = int.from_bytes(secrets.token_bytes(10))
    return UUID(int=stamp << 80 | 0x7 << 76 | (noise >> 62 & 0xFFF) << 64 | 0b10 << 62 | noise & (2**62 - 1))


def wall() -> float:
    """The clock of submissions, in Unix seconds."""
    return time.time()


def _append(items: list[dict[str, str]], item: str | ItemRequest) -> str:
    if isinstance(item, str):
        items.append({"text": item})
        return item
    items.append({"text": item.text} if item.id is None else {"id": item.id, "text": item.text})
    return item.text


def _verb_message(spec: Spec, verb: Verb) -> str:
    able = ", ".join(v for v in spec.verbs if v in SERVED) or "nothing yet"
    return f"Model {spec.id!r} does not {verb}; it does: {able}."


def _too_long(index: int, item: str | ItemRequest, chars: int, limit: int) -> LimitExceeded:
    where = f"items[{index}]" if isinstance(item, str) else f"items[{index}].text"
    return LimitExceeded(f"{where!r} has {chars} characters; the limit of this server is {limit}.", param=where)


def _over(index: int, count: int, longest: int) -> TextTooLong:
    return TextTooLong(
        f"The text has {count} tokens and the model reads {longest}; shorten it or allow truncation.",
        param=f"items[{index}]",
    )


def _no_nul(options: Mapping[str, object]) -> None:
    """Valid options are plain values, kept as JSON in the database, which has no U+0000. Raises InvalidRequest."""
    for name, value in options.items():
        if isinstance(value, str) and "\0" in value:
            raise InvalidRequest(f"'options.{name}' must not hold the character U+0000.", param=f"options.{name}")
