"""TEI's /embed, /embed_sparse, /embed_all and /similarity: jobs of the verb `encode`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from api.compat.endpoints import Asked, Ended
from api.compat.failures import check_rows
from api.compat.openai.texts import Texts, blank, listed, names_of
from api.compat.shapes import shaped
from api.compat.tei.work import Cutting, Work
from api.schemas import Reply
from catalog.schema import OutputKind, Spec
from catalog.terms import Verb
from tasks.items import Strict

PromptName = Annotated[str | None, Field(description="The name of one of the model's own prompts")]


class EmbedAllRequest(Cutting):
    """Texts to embed."""

    inputs: Annotated[Texts, Field(description="A text or a list of texts; token ids are refused")]
    prompt_name: PromptName = None


class EmbedSparseRequest(EmbedAllRequest):
    """Texts to embed."""


class EmbedRequest(EmbedAllRequest):
    """Texts to embed."""

    normalize: Annotated[bool | None, Field(description="Vectors of length 1, which is the default")] = None
    dimensions: Annotated[int | None, Field(ge=1, description="A length that the model was trained for")] = None
    encoding_format: Literal["float"] | None = None


class Similar(Strict):
    """One text, and those that it is compared with."""

    source_sentence: str
    sentences: Annotated[list[str], Field(min_length=1, fail_fast=True)]


class SimilarityParameters(Cutting):
    """How texts are read."""

    prompt_name: PromptName = None


class SimilarityRequest(Strict):
    """Texts to compare."""

    inputs: Similar
    parameters: SimilarityParameters | None = None


class SparseValue(Reply):
    """One entry of a sparse vector that is not zero."""

    index: int
    value: float


def gives(output: OutputKind) -> Callable[[Spec], bool]:
    """Whether a model gives such vectors of texts."""

    def fits(spec: Spec) -> bool:
        return spec.tasks.encode is not None and output in spec.tasks.encode.outputs and "text" in spec.inputs

    return fits


def _encode(model: str, items: list[str], output: OutputKind, asked: Cutting, prompt: str | None) -> dict[str, Any]:
    options = {"output_types": [output], "output_dtype": "float32", "truncate": bool(asked.truncate)}
    if prompt is not None:
        options["prompt"] = prompt
    return {"verb": Verb.ENCODE.value, "model": model, "items": items, "options": options}


def _texts_job(
    kind: type[EmbedAllRequest], output: OutputKind, *extras: str
) -> Callable[[str, Mapping[str, Any]], Asked]:
    def to_job(model: str, body: Mapping[str, Any]) -> Asked:
        asked = shaped(kind, body)
        raw = _encode(model, listed(asked.inputs, "inputs"), output, asked, asked.prompt_name)
        raw["options"] |= {name: value for name in extras if (value := getattr(asked, name)) is not None}
        return Asked(raw, _names(body))

    return to_job


def _names(body: Mapping[str, Any]) -> dict[str, str]:
    return {**names_of(body, "inputs"), "verb": "model", "options.prompt": "prompt_name", "options": ""}


def _dense(ended: Ended) -> list[NDArray[np.float32]]:
    return [np.frombuffer(row["dense"]["values"], "<f4") for row in ended.rows]


def dense_reply(ended: Ended, body: Mapping[str, Any]) -> list[Any]:
    """A list of numbers for each text. Raises the error of the first that has none."""
    check_rows(ended, _names(body))
    return _dense(ended)


def sparse_reply(ended: Ended, body: Mapping[str, Any]) -> list[Any]:
    """The entries of each text, by rising index. Raises the error of the first that has none."""
    check_rows(ended, _names(body))
    return [_entries(row["sparse"]) for row in ended.rows]


def _entries(sparse: Mapping[str, Any]) -> list[dict[str, Any]]:
    indices = np.frombuffer(sparse["indices"], "<i4").tolist()
    values = np.frombuffer(sparse["values"], "<f4")
    # orjson writes a float32 as short as it can be told; as Python's float it would have digits of no meaning.
    return [{"index": index, "value": value} for index, value in zip(indices, values, strict=True)]


def all_reply(ended: Ended, body: Mapping[str, Any]) -> list[Any]:
    """A list of numbers for each token of each text. Raises the error of the first that has none."""
    check_rows(ended, _names(body))
    return [
        np.frombuffer(many["values"], "<f4").reshape(many["num_tokens"], many["token_dims"])
        for many in (row["multivector"] for row in ended.rows)
    ]


def similarity_job(model: str, body: Mapping[str, Any]) -> Asked:
    """The encode job of the sentence, first, and those that it is compared with."""
    asked = shaped(SimilarityRequest, body)
    how = asked.parameters or SimilarityParameters()
    texts = [asked.inputs.source_sentence, *asked.inputs.sentences]
    names = _similar_names(body)
    for place, text in enumerate(texts):
        if not text or text.isspace():
            raise blank(names[f"items[{place}]"])
    return Asked(_encode(model, texts, "dense", how, how.prompt_name), names)


def _similar_names(body: Mapping[str, Any]) -> dict[str, str]:
    places = range(len(body["inputs"]["sentences"]))
    return {
        "items": "inputs.sentences",
        "items[0]": "inputs.source_sentence",
        **{f"items[{place + 1}]": f"inputs.sentences[{place}]" for place in places},
        "verb": "model",
        "options.prompt": "parameters.prompt_name",
        "options": "parameters",
    }


def similarity_reply(ended: Ended, body: Mapping[str, Any]) -> list[Any]:
    """The cosine of each sentence with the first. Raises the error of the first that has no vector."""
    check_rows(ended, _similar_names(body))
    source, *others = _dense(ended)
    # Each row by itself: equal texts get equal numbers, which a product of matrices does not promise.
    return [np.float32(np.dot(other, source)) for other in others]


EMBED = Work(
    "give dense vectors of texts",
    gives("dense"),
    _texts_job(EmbedRequest, "dense", "normalize", "dimensions"),
    dense_reply,
)
EMBED_SPARSE = Work(
    "give sparse vectors of texts", gives("sparse"), _texts_job(EmbedSparseRequest, "sparse"), sparse_reply
)
EMBED_ALL = Work(
    "give a vector for each token of texts",
    gives("multivector"),
    _texts_job(EmbedAllRequest, "multivector"),
    all_reply,
)
SIMILARITY = Work("give dense vectors of texts", gives("dense"), similarity_job, similarity_reply)
