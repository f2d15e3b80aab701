"""What TEI would tell of a model."""

from __future__ import annotations

from typing import Any

import pytest

from api.compat.tei.info import KINDS, TeiInfo, info
from catalog.loader import Choice
from catalog.schema import Spec
from tasks.settings import Settings


def choice(tasks: dict[str, Any], **facts: Any) -> Choice:
    made = {"id": "org/m", "family": "fake", "tasks": tasks, "parameters": 0, "max_length": 96, **facts}
    return Choice(Spec.model_validate(made), "default", "org/m", {}, {})


@pytest.mark.parametrize(
    ("tasks", "kind"),
    [
        ({"encode": {"dims": 8}, "score": {}}, {"embedding": {"pooling": "dense"}}),
        ({"encode": {"sparse_dims": 9, "outputs": ["sparse"]}}, {"embedding": {"pooling": "splade"}}),
        ({"encode": {"token_dims": 4, "outputs": ["multivector"]}, "score": {}}, {"embedding": {"pooling": "none"}}),
        ({"score": {}}, {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}),
        (
            {"extract": {"kinds": ["classifications"], "labels": ["calm", "angry"]}},
            {"classifier": {"id2label": {"0": "calm", "1": "angry"}, "label2id": {"calm": 0, "angry": 1}}},
        ),
    ],
)
def test_a_model_is_the_first_kind_that_it_can_be(tasks: dict[str, Any], kind: dict[str, Any]) -> None:
    one = choice(tasks, source={"hub": "org/m", "revision": "abc"})
    work = next(work for work in KINDS if work.fits(one.spec))
    told = info(one, work, Settings(max_items=7, batch_items=5))
    TeiInfo.model_validate(told)
    assert told["model_type"] == kind
    assert (told["model_id"], told["model_sha"], told["max_input_length"]) == ("org/m", "abc", 96)
    assert (told["max_client_batch_size"], told["max_batch_requests"], told["auto_truncate"]) == (7, 5, False)


def test_a_model_that_only_writes_is_none_of_them() -> None:
    spec = choice({"generate": {}}).spec
    assert not any(work.fits(spec) for work in KINDS)


def test_a_model_of_images_embeds_no_texts() -> None:
    spec = choice({"encode": {"dims": 8}}, inputs=["image"]).spec
    assert not any(work.fits(spec) for work in KINDS)
