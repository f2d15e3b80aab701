from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from llguidance import gbnf_to_lark

if TYPE_CHECKING:
    from tests.integration.api.conftest import Api

GRAMMAR = {"ebnf": 'root ::= "yes"'}
GENERATE = {"prompt": "p", "max_new_tokens": 1, "grammar": GRAMMAR}
IN_OPTIONS = {"prompt": "p", "max_new_tokens": 1, "options": {"grammar": GRAMMAR}}
JOB = {"operation": "generate", "model": "org/model", "items": ["p"], "options": {"grammar": GRAMMAR}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/generate/org/model", GENERATE),
        ("/v1/generate/org/model", IN_OPTIONS),
        ("/v1/estimate", {"endpoint": "/v1/generate/org/model", "request": GENERATE}),
        ("/v1/estimate", {"endpoint": "/v1/generate/org/model", "request": IN_OPTIONS}),
        ("/v1/estimate", {"endpoint": "/v1/jobs", "request": JOB}),
        ("/v1/jobs", JOB),
    ],
)
async def test_a_grammar_is_never_translated_on_the_event_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    threads, translate = [], gbnf_to_lark.gbnf_to_lark

    def seen(text: str) -> str:
        threads.append(threading.get_ident())
        return str(translate(text))

    monkeypatch.setattr(gbnf_to_lark, "gbnf_to_lark", seen)
    reply = await api.http.post(path, json=body, headers={"x-sie-sdk-version": "0.10.1"})
    assert reply.status_code == 400, reply.text
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
