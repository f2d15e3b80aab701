"""From a request to a submission: model, verb, options, items, lengths, price, queue. Pure.

What is wrong with the request raises and nothing is accepted; what is wrong with one item becomes that item's fault,
and its neighbours run. The two halves are apart because counting tokens takes time: `check` is cheap and runs anywhere,
the texts it gives are counted wherever the caller likes, and `price` makes the submission of both.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

import orjson
from pydantic import BaseModel

from catalog.cost import MOST_MS, predict
from catalog.errors import InvalidOption, UnsupportedVerb
from catalog.grammar import check_grammar, check_shape
from catalog.lengths import media_length
from catalog.loader import Choice
from catalog.options import EncodeOptions, ExtractOptions, GenerateOptions, ScoreOptions, parse_options
from catalog.schema import CostCoefficients, InputKind, Spec
from catalog.terms import Verb
from catalog.tokenizer import Counts
from tasks.errors import EmptyText, InvalidRequest, LimitExceeded, TextTooLong, as_data
from tasks.inputs import pack_inputs
from tasks.items import ItemRequest, as_payload, texts_of
from tasks.messages import Submission, Webhook
from tasks.queues import bucket_of
from tasks.request import JobRequest
from tasks.settings import Settings
from tasks.sources import QUERY, Source, sources_of
from tasks.webhooks.guard import Guard
from tasks.webhooks.signing import parsed_secret

CALLER = "default"
"""Whose jobs these are, for as long as there is one caller."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the door lets through."""

    max_items: int
    max_text_chars: int
    default_retention_s: int
    max_retention_s: int
    webhooks: Guard = field(default_factory=Guard)

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """The limits in the settings."""
        return cls(
            max_items=settings.max_items,
            max_text_chars=settings.max_text_chars,
            default_retention_s=settings.default_retention_s,
            max_retention_s=settings.max_retention_s,
            webhooks=Guard.of(settings.webhook_allow, http=settings.webhook_http, settings="ROOST_WEBHOOK"),
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """A request that may run, before its price is known.

    `texts` are those to be counted, as the model will read them (prompt included), and `places` the items that they are
    of; `QUERY` stands for the query, which is part of every item. `base` is what each item counts besides its texts.
    `faults` holds the items that will not run. `sources` are the files that are still to be fetched (`tasks.filling`);
    until then their items count nothing.
    """

    request: JobRequest
    choice: Choice
    options: BaseModel
    items: Sequence[Mapping[str, Any]]
    query: Mapping[str, Any] | None
    texts: Sequence[str]
    places: Sequence[int]
    base: Sequence[int]
    faults: Mapping[int, Mapping[str, Any]]
    retention_s: int
    chars: int
    sources: Sequence[Source] = ()


class Models(Protocol):
    """Finds models by name; raises a CatalogError for one that it does not know."""

    def find(self, name: str, /) -> Choice:
        """The model and profile of a name."""


def check(request: JobRequest, catalog: Models, limits: Limits) -> Checked:
    """The request against the catalog and the limits. Raises a CatalogError or a TaskError that names the field."""
    choice = catalog.find(request.model)
    spec = choice.spec
    if not spec.does(request.verb):
        raise UnsupportedVerb(_verb_message(spec, request.verb), param="verb")
    options = options_of(request, choice)
    retention_s = limits.default_retention_s if request.retention_s is None else request.retention_s
    if retention_s > limits.max_retention_s:
        raise InvalidRequest(
            f"'retention_s' must be at most {limits.max_retention_s} on this server.", param="retention_s"
        )
    if request.webhook is not None:
        limits.webhooks.check(request.webhook.url, "webhook.url")
        _webhook(request)
    read = _Read(spec, prefix_of(spec, options), limits.max_text_chars)
    query = None if request.query is None else read.query(request.query)
    items = [read.item(index, item, request.verb) for index, item in enumerate(request.items)]
    return Checked(
        request=request,
        choice=choice,
        options=options,
        items=items,
        query=query,
        texts=read.texts,
        places=read.places,
        base=read.base,
        faults=read.faults,
        retention_s=retention_s,
        chars=read.chars,
        sources=read.sources,
    )


def options_of(request: JobRequest, choice: Choice) -> BaseModel:
    """The options of the verb. An error of one that has a field of its own in the request names that field."""
    asked = request.asked
    try:
        options = parse_options(choice.spec, request.verb, choice.run, asked)
        _no_nul("options", asked)
        if isinstance(options, GenerateOptions) and options.grammar is not None:
            check_grammar(options.grammar)
        if isinstance(options, ExtractOptions) and _is_json_schema(options.output_schema):
            check_shape(options.output_schema, "options.output_schema")
    except (InvalidOption, InvalidRequest) as error:
        where = error.param or ""
        own = where.removeprefix("options.")
        if getattr(request, re.split(r"[.\[]", own)[0], None) is not None and own != where:
            raise type(error)(error.message.replace(repr(where), repr(own)), param=own) from None
        raise
    return options


def _is_json_schema(schema: Mapping[str, Any] | None) -> bool:
    """Whether it looks like one. Some models have a form of their own for what to fill in."""
    return schema is not None and (schema.get("type") == "object" or isinstance(schema.get("properties"), dict))


class _Read:
    """The items of a request as they are read one by one."""

    def __init__(self, spec: Spec, prefix: str, most_chars: int) -> None:
        self.texts: list[str] = []
        self.places: list[int] = []
        self.base: list[int] = []
        self.faults: dict[int, Mapping[str, Any]] = {}
        self.sources: list[Source] = []
        self.chars = 0
        self._spec = spec
        self._inputs = frozenset(spec.inputs)
        self._prefix = prefix
        self._most_chars = most_chars

    def query(self, query: str | ItemRequest) -> Mapping[str, Any]:
        """The query of a score. Without one there is nothing to score, so an empty one refuses the request."""
        payload, _ = self._payload(QUERY, query, "query")
        if not self._take(QUERY, payload, "query", query, ""):
            raise EmptyText(param="query")
        return payload

    def item(self, index: int, item: str | ItemRequest, verb: Verb) -> Mapping[str, Any]:
        """One item; a blank text is its own fault, except where nothing is an answer: nothing is found in it."""
        where = f"items[{index}]"
        payload, whole = self._payload(index, item, where)
        self.base.append(media_length(self._spec, payload) if whole else 0)
        if not self._take(index, payload, where, item, self._prefix) and verb is not Verb.EXTRACT:
            self.faults[index] = as_data(EmptyText(param=where))
        return payload

    def _payload(self, place: int, item: str | ItemRequest, where: str) -> tuple[Mapping[str, Any], bool]:
        """The payload of an item, and whether it is whole: nothing of it is still to be fetched."""
        kinds: tuple[InputKind, ...] = ("text",) if isinstance(item, str) else item.kinds
        for kind in kinds:
            if kind not in self._inputs:
                raise InvalidRequest(
                    f"{where!r} holds {_NAMES[kind]}; {self._spec.id!r} reads {_listed(self._spec.inputs)}.",
                    param=where,
                )
        sources = [] if isinstance(item, str) else sources_of(place, where, item)
        self.sources += sources
        return as_payload(item), not sources

    def _take(self, place: int, payload: Mapping[str, Any], where: str, item: str | ItemRequest, prefix: str) -> bool:
        """Note its texts for counting; False if it holds nothing but blanks."""
        texts = texts_of(payload) if "messages" in payload else [text] if (text := payload.get("text")) else []
        chars = sum(map(len, texts))
        self.chars += chars
        if chars > self._most_chars:
            if not isinstance(item, str):
                where += ".messages" if "messages" in payload else ".text"
            raise LimitExceeded(
                f"{where!r} has {chars} characters; the limit of this server is {self._most_chars}.", param=where
            )
        readable = [text for text in texts if text and not text.isspace()]
        for text in readable:
            self.texts.append(prefix + text if prefix else text)
            self.places.append(place)
        return bool(readable) or any(name in payload for name in _MEDIA)


_MEDIA = ("images", "audio", "document", "multivector")
_NAMES: dict[InputKind, str] = {
    "text": "a text",
    "messages": "messages",
    "image": "images",
    "audio": "audio",
    "document": "a document",
    "multivector": "a multivector",
    "entities": "entities",
}


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
    request, choice, options = checked.request, checked.choice, checked.options
    longest = choice.spec.max_length
    # Extraction reads a long text window by window, and nothing of it is lost.
    windows = request.verb is Verb.EXTRACT
    cuts = windows or getattr(options, "truncate", False)
    new = options.most(choice.spec) if isinstance(options, GenerateOptions) else 0
    faults = dict(checked.faults)
    counted = list(checked.base)
    shared = media_length(choice.spec, checked.query) if checked.query is not None else 0
    for place, count in zip(checked.places, counts.tokens, strict=True):
        if place == QUERY:
            shared += count
        else:
            counted[place] += count
    lengths = [0] * len(checked.items)
    whole = [0] * len(checked.items)
    for place, count in enumerate(counted):
        if place in faults:
            continue
        units = max(1, count + shared)
        if units > longest and counts.exact and not cuts and _counts_texts(choice.spec):
            faults[place] = as_data(_over(place, units, longest, pair=shared > 0, cuts=hasattr(options, "truncate")))
            continue
        lengths[place] = min(units, longest)
        whole[place] = units if windows else lengths[place]
    running = [place for place, length in enumerate(lengths) if length]
    costs = [0.0] * len(lengths)
    for place, ms in zip(running, predict(cost, [lengths[i] for i in running], new), strict=True):
        costs[place] = min(ms * -(-whole[place] // lengths[place]), MOST_MS)
    return Submission(
        id=job_id(now),
        caller=caller,
        verb=request.verb,
        model=choice.key,
        revision=choice.spec.source.revision,
        lane=request.lane,
        bucket=bucket_of(sum(costs)).value,
        priority=request.priority,
        options=request.asked,
        inputs=pack_inputs(checked.items, checked.query),
        lengths=lengths,
        costs=costs,
        faults=faults,
        created=now,
        deadline=None if request.deadline_s is None else now + request.deadline_s,
        retention_s=checked.retention_s,
        tags=request.tags,
        idempotency_key=key,
        body_hash=None if key is None else body_hash(request),
        keep=request.store,
        webhook=_webhook(request),
    )


def _webhook(request: JobRequest) -> Webhook | None:
    asked = request.webhook
    if asked is None:
        return None
    secret = None if asked.secret is None else parsed_secret(asked.secret, "webhook.secret")
    return Webhook(asked.url, secret, asked.inline)


def prefix_of(spec: Spec, options: BaseModel) -> str:
    """What the model reads before each text: its named prompt, or the caller's instruction."""
    match options:
        case EncodeOptions() if spec.tasks.encode is not None:
            return options.prefix(spec.tasks.encode)
        case ScoreOptions() | ExtractOptions():
            return options.instruction or ""
        case _:
            return ""


def body_hash(request: JobRequest) -> bytes:
    """What makes two requests the same: their meaning, not their spelling. Defaults count as if they had been sent."""
    meaning = request.model_dump(mode="python", exclude={"items", "query", "labels", "output_schema", "options"})
    # What is newer than keys that may be in use counts where it is not the default.
    if request.store:
        del meaning["store"]
    if request.webhook is None:
        del meaning["webhook"]
    meaning["options"] = request.asked
    meaning["query"] = None if request.query is None else as_payload(request.query)
    meaning["items"] = [as_payload(item) for item in request.items]
    return hashlib.sha256(orjson.dumps(meaning, default=_digest, option=orjson.OPT_SORT_KEYS)).digest()


def _digest(value: object) -> str:
    """Bytes by their own hash."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    raise TypeError(type(value).__name__)


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


def _verb_message(spec: Spec, verb: Verb) -> str:
    return f"Model {spec.id!r} does not {verb}; it does: {', '.join(spec.verbs)}."


def _listed(kinds: Sequence[InputKind]) -> str:
    return " or ".join(_NAMES[kind] for kind in kinds)


def _counts_texts(spec: Spec) -> bool:
    """Whether a length is a count of tokens, and not also a guess about media."""
    return spec.unit == "tokens" and spec.inputs == ("text",)


def _over(index: int, count: int, longest: int, *, pair: bool, cuts: bool) -> TextTooLong:
    where = f"items[{index}]"
    what = f"{where!r} has {count} tokens{', the query with it,' if pair else ''}"
    advice = "shorten it or send 'truncate': true" if cuts else "shorten it"
    return TextTooLong(f"{what} and the model reads {longest}; {advice}.", param=where)


def _no_nul(where: str, value: object) -> None:
    """Options are kept as JSON in the database, which has no U+0000. Raises InvalidRequest."""
    match value:
        case str():
            if "\0" in value:
                raise InvalidRequest(f"{where!r} must not hold the character U+0000.", param=where)
        case Mapping():
            for name, inner in value.items():
                _no_nul(where, str(name))
                _no_nul(f"{where}.{str(name)[:100]}", inner)
        case list() | tuple():
            for index, inner in enumerate(value):
                _no_nul(f"{where}[{index}]", inner)
        case _:
            pass
