"""TEI's /predict: a job of the verb `extract` on a classifier.

Hugging Face's own client sends `parameters`, which TEI has not, and wants one more list around the labels; with
`candidate_labels` it asks a model that takes any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag

from api.compat.endpoints import Asked, Ended
from api.compat.failures import check_rows
from api.compat.openai.texts import listed, names_of
from api.compat.shapes import shaped, untaken
from api.compat.tei.work import Cutting, Work
from api.schemas import Reply
from catalog.schema import ExtractKind, Spec
from catalog.terms import Verb
from tasks.items import Strict, fault

_PAIR = "is a pair of texts, which no classifier here reads; to score texts against a query there is /rerank"


def _no_pair(value: object) -> object:
    """A list of two texts is TEI's pair, not a batch."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value):
        raise fault(_PAIR)
    return value


def _form(value: object) -> str | None:
    if isinstance(value, list):
        return "(one)" if value and isinstance(value[0], str) else "(batch)"
    return "(text)" if isinstance(value, str) else None


_One = Annotated[list[str], Field(min_length=1, max_length=1), BeforeValidator(_no_pair)]

Inputs = Annotated[
    Annotated[str, Tag("(text)")]
    | Annotated[_One, Tag("(one)")]
    | Annotated[list[_One], Field(min_length=1, fail_fast=True), Tag("(batch)")],
    Discriminator(
        _form, custom_error_type="form", custom_error_message="must be a text, or a list of lists of one text"
    ),
]
"""A text, by itself or in a list, or a batch of such lists."""


def _no_raw(value: object) -> object:
    if value is True:
        raise fault("is not taken: scores are those of the model's own activation")
    return value


class PredictParameters(Strict):
    """What Hugging Face's client can ask for."""

    top_k: Annotated[int | None, Field(ge=1)] = None
    function_to_apply: Annotated[None, untaken("scores are those of the model's own activation")] = None
    candidate_labels: Annotated[list[str] | None, Field(min_length=1, fail_fast=True)] = None
    multi_label: bool | None = None
    hypothesis_template: str | None = None


class PredictRequest(Cutting):
    """Texts to classify. They are never cut: a long one is read in windows, all of it."""

    inputs: Annotated[Inputs, Field(description="A text, or a list of lists of one text; pairs are refused")]
    raw_scores: Annotated[
        bool | None,
        BeforeValidator(_no_raw),
        Field(description="Only false: scores are those of the model's own activation"),
    ] = None
    parameters: PredictParameters | None = None


class Prediction(Reply):
    """One label."""

    label: str
    score: float


_OPTIONS: Mapping[str, str] = {
    "top_k": "top_k",
    "candidate_labels": "labels",
    "multi_label": "multi_label",
    "hypothesis_template": "hypothesis_template",
}
"""Which option each parameter is."""


def _texts(inputs: Any) -> str | list[str]:
    """What is classified: one text, or those of a batch."""
    if isinstance(inputs, str):
        return inputs
    return inputs[0] if isinstance(inputs[0], str) else [one[0] for one in inputs]


def to_job(model: str, body: Mapping[str, Any]) -> Asked:
    """The extract job of a body. Raises an error that names the field."""
    asked = shaped(PredictRequest, body)
    given = asked.parameters or PredictParameters()
    options = {ours: value for name, ours in _OPTIONS.items() if (value := getattr(given, name)) is not None}
    items = listed(_texts(asked.inputs), "inputs")
    return Asked({"verb": Verb.EXTRACT.value, "model": model, "items": items, "options": options}, _names(body))


def _names(body: Mapping[str, Any]) -> dict[str, str]:
    renamed = {f"options.{ours}": f"parameters.{name}" for name, ours in _OPTIONS.items()}
    return {**names_of({"inputs": _texts(body["inputs"])}, "inputs"), **renamed, "verb": "model"}


def to_reply(ended: Ended, body: Mapping[str, Any]) -> list[Any]:
    """The labels of each text, best first; of a text that is no list, its labels alone."""
    check_rows(ended, _names(body))
    found = [sorted(map(_prediction, row["classifications"]), key=_by_score) for row in ended.rows]
    if isinstance(_texts(body["inputs"]), list):
        return found
    parameters = body.get("parameters")
    # Hugging Face's client takes the first of what it gets, unless it sent labels of its own.
    return found if parameters is not None and "candidate_labels" not in parameters else found[0]


def _prediction(label: Mapping[str, Any]) -> dict[str, Any]:
    return {"label": label["label"], "score": label["score"]}


def _by_score(prediction: Mapping[str, Any]) -> float:
    return -float(prediction["score"])


def _fits(spec: Spec) -> bool:
    return spec.tasks.extract is not None and ExtractKind.CLASSIFICATIONS in spec.tasks.extract.kinds


PREDICT = Work("classify texts", _fits, to_job, to_reply)
