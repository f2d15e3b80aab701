"""TEI's /info: what it would tell of a model that it serves."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

from pydantic import Field

from api.compat.tei.embed import EMBED, EMBED_ALL, EMBED_SPARSE
from api.compat.tei.predict import PREDICT
from api.compat.tei.rerank import RERANK
from api.compat.tei.work import Work
from api.schemas import Reply
from catalog.loader import Choice
from tasks.settings import Settings

KINDS: Sequence[Work] = (EMBED, EMBED_SPARSE, EMBED_ALL, PREDICT, RERANK)
"""What a model can be in TEI; the first that fits is what it is."""

_POOLING = {EMBED.does: "dense", EMBED_SPARSE.does: "splade", EMBED_ALL.does: "none"}


class TeiInfo(Reply):
    """A model and the limits of this service."""

    model_id: str
    model_sha: Annotated[str | None, Field(description="The revision that its YAML names")]
    model_dtype: str
    model_type: Annotated[dict[str, dict[str, Any]], Field(description="`embedding`, `classifier` or `reranker`")]
    max_concurrent_requests: int
    max_input_length: Annotated[int, Field(description="In the model's unit, as a rule tokens")]
    max_batch_tokens: Annotated[int, Field(description="0: the device decides")]
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: Annotated[str, Field(description="Of this service")]
    sha: None = None
    docker_label: None = None


def info(choice: Choice, work: Work, settings: Settings) -> dict[str, Any]:
    """What TEI would tell of a model that does this work."""
    spec = choice.spec
    return {
        "model_id": spec.id,
        "model_sha": spec.source.revision,
        "model_dtype": str(choice.load.get("dtype", "float32")),
        "model_type": model_type(choice, work),
        "max_concurrent_requests": settings.max_queued,
        "max_input_length": spec.max_length,
        "max_batch_tokens": settings.batch_tokens,
        "max_batch_requests": settings.batch_items,
        "max_client_batch_size": settings.max_items,
        "auto_truncate": False,
        "tokenization_workers": settings.api_processes,
        "version": version("roost"),
        "sha": None,
        "docker_label": None,
    }


def model_type(choice: Choice, work: Work) -> dict[str, Any]:
    """Which of TEI's kinds of models it is, with its labels. `pooling` says which vectors it gives."""
    if work is PREDICT:
        facts = choice.spec.tasks.extract
        return {"classifier": _labelled(facts.labels if facts else ())}
    if work is RERANK:
        return {"reranker": _labelled(("LABEL_0",))}
    return {"embedding": {"pooling": _POOLING[work.does]}}


def _labelled(labels: Sequence[str]) -> dict[str, Any]:
    return {
        "id2label": {str(place): label for place, label in enumerate(labels)},
        "label2id": {label: place for place, label in enumerate(labels)},
    }
