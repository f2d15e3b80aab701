"""Scores of pairs: each text computed once, vectors that callers send, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from catalog.options import EncodeOptions, ScoreOptions
from catalog.terms import Verb
from engine.adapters.late_interaction import LateInteractionAdapter
from engine.errors import ItemRejected, TextTooLong
from engine.text_encoder import Row
from engine.types import Outcome, Output
from tests.adapters.conftest import batch

DOCUMENTS = ["A ship at sea.", "A contract ends.", "Boats and ships in a harbour.", "A ship at sea."]


def score(
    adapter: LateInteractionAdapter, payloads: Sequence[dict[str, Any]], options: ScoreOptions | None = None
) -> list[Outcome]:
    return list(adapter.run(batch(Verb.SCORE, payloads, [options or ScoreOptions()] * len(payloads))))


def of(outcome: Outcome) -> float:
    assert isinstance(outcome, Output), outcome
    found: float = outcome.fields["score"]
    return found


def test_each_query_and_each_document_is_computed_once_for_a_batch(
    colbert: LateInteractionAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    embed = LateInteractionAdapter._embed

    def watch(self: LateInteractionAdapter, side: Any, rows: Sequence[Row]) -> Any:
        seen.append((side.task, len(rows)))
        return embed(self, side, rows)

    monkeypatch.setattr(LateInteractionAdapter, "_embed", watch)
    payloads = [{"text": text, "query": {"text": query}} for query in ("ships", "law") for text in DOCUMENTS]
    scores = [of(outcome) for outcome in score(colbert, payloads)]
    assert sum(count for task, count in seen if task == "query") == 2
    assert sum(count for task, count in seen if task == "document") == 3
    assert scores[0] == scores[3]
    assert scores[0] != scores[4]


def test_vectors_that_are_sent_score_as_the_texts_that_they_came_of(colbert: LateInteractionAdapter) -> None:
    def sent(text: str, is_query: bool) -> dict[str, Any]:
        made = colbert.run(batch(Verb.ENCODE, [{"text": text}], [EncodeOptions(is_query=is_query)]))[0]
        assert isinstance(made, Output)
        return {"multivector": made.fields["multivector"]}

    query, documents = {"text": "ships"}, [{"text": text} for text in DOCUMENTS[:3]]
    expected = [of(one) for one in score(colbert, [{**document, "query": query} for document in documents])]
    stored = [sent(text, is_query=False) for text in DOCUMENTS[:3]]
    for asked in (query, sent("ships", is_query=True)):
        found = [of(one) for one in score(colbert, [{**document, "query": asked} for document in stored])]
        assert found == pytest.approx(expected, abs=1e-4)


def test_what_is_cut_or_too_long_is_said_of_the_side_where_it_is(colbert: LateInteractionAdapter) -> None:
    long = {"text": "ship " * 60}
    pairs = [{**long, "query": {"text": "ships"}}, {"text": "ships", "query": long}]
    document, query = score(colbert, pairs)
    assert isinstance(document, Output)
    assert isinstance(query, Output)
    assert document.truncated
    assert query.truncated
    # Markers and control tokens are three on either side.
    assert document.tokens == query.tokens == 63 + 4
    refused = score(colbert, pairs, ScoreOptions(truncate=False))
    assert [(type(one), one.param) for one in refused if isinstance(one, TextTooLong)] == [
        (TextTooLong, "text"),
        (TextTooLong, "query"),
    ]


def test_vectors_of_another_width_are_refused_by_their_width(colbert: LateInteractionAdapter) -> None:
    wrong = {"multivector": {"num_tokens": 1, "token_dims": 7, "values": np.zeros(7, "<f4").tobytes()}}
    of_query, of_text = score(colbert, [{"text": "a", "query": wrong}, {**wrong, "query": {"text": "a"}}])
    assert isinstance(of_query, ItemRejected)
    assert isinstance(of_text, ItemRejected)
    assert (of_query.param, of_text.param) == ("query", "multivector")
    assert "7" in of_query.message
