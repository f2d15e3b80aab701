"""The steps of a backfill with their models: what each asks of its jobs, and whether it can be asked at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.compat.failures import renamed
from api.services import Door
from catalog.errors import RoostError
from catalog.schema import InputKind
from catalog.tokenizer import TokenCounter
from tasks.backfills.chunking import Count, Cut, Unit
from tasks.backfills.plan import Model, StepName, StepRequest, check_chain, cut_of, gives_text
from tasks.prepare import options_of, prefix_of
from tasks.request import parse_request


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps that fit together, with the model of each; None where it has none."""

    steps: Sequence[StepRequest]
    models: Sequence[Model | None]

    @property
    def names(self) -> list[StepName]:
        """What each step does."""
        return [step.step for step in self.steps]

    @property
    def inputs(self) -> Sequence[InputKind]:
        """What the first step's model reads."""
        first = self.models[0]
        return () if first is None else first.choice.spec.inputs

    def textual(self, place: int) -> bool:
        """Whether what a step finds is a text."""
        return gives_text(self.steps[place], self.models[place])

    def asks(self, place: int) -> dict[str, Any]:
        """The body of a job of a step, without its items."""
        return _body(self.steps[place])

    def cut(self, it: Door, place: int) -> tuple[Cut, Count]:
        """How the step `chunk` cuts, and what counts its texts."""
        cut = cut_of(self.steps, self.models, place)
        reader = next((model for model in self.models[place + 1 :] if model is not None), None)
        if cut.unit is Unit.CHARS or reader is None:
            return cut, lambda texts: [len(text) for text in texts]
        return cut, _tokens(it.counting.counter, reader)


async def chain_of(it: Door, steps: Sequence[StepRequest]) -> Chain:
    """The chain of these steps. Raises RoostError that names the field, as `steps[1].options.x`."""
    models: list[Model | None] = []
    for place, step in enumerate(steps):
        try:
            models.append(await _model(it, step))
        except RoostError as error:
            at = f"steps[{place}]"
            raise renamed(error, {name: f"{at}.{name}" for name in _FIELDS} | {"verb": f"{at}.step"}) from None
    check_chain(steps, models)
    return Chain(steps, models)


_FIELDS = ("model", "options", "query")


async def _model(it: Door, step: StepRequest) -> Model | None:
    if step.model is None:
        return None
    request = parse_request({**_body(step), "items": ["x"]}, 1)
    await it.asking.meet(step.model)
    choice = it.catalog.find(step.model)
    if not choice.spec.does(request.verb):
        # What it does instead is told where the chain is checked.
        return Model(choice)
    options = options_of(request, choice)
    await it.presence.admit(choice.key)
    return Model(choice, prefix_of(choice.spec, options))


def _body(step: StepRequest) -> dict[str, Any]:
    verb = step.step.verb
    asked: Mapping[str, Any] = {} if step.query is None else {"query": step.query}
    return {"verb": verb and verb.value, "model": step.model, "options": step.options, **asked}


def _tokens(counter: TokenCounter, model: Model) -> Count:
    spec = model.choice.spec

    def count(texts: Sequence[str]) -> list[int]:
        around, *found = counter.count(spec, ["", *texts]).tokens
        return [max(1, tokens - around) for tokens in found]

    return count
