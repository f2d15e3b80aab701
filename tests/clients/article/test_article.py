"""The article's script, from paper to review, with the models that test_clients.py puts behind its names."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from sie_sdk import SIEClient

from examples.claims import article
from examples.claims.cases import CLAIMS
from examples.claims.models import NOTHING
from examples.claims.papers import CLAUSES
from examples.claims.photo import SIZE
from examples.claims.pipeline import DAMAGE, LABELS

CLAIM = CLAIMS[0]


@pytest.fixture(scope="module")
def found(url: str, tmp_path_factory: pytest.TempPathFactory) -> article.Findings:
    with SIEClient(url) as client:
        return article.review_claim(client, CLAIM, tmp_path_factory.mktemp("papers"))


def test_a_document_is_markdown(found: article.Findings) -> None:
    assert CLAIM.holder in found.markdown["form"]
    assert "overflows its banks" in found.markdown["policy"]


def test_entities_stand_in_the_text(found: article.Findings) -> None:
    assert found.fields
    for one in found.fields:
        assert one.keys() >= {"label", "text", "score", "start", "end"}
        assert one["label"] in LABELS
        assert found.markdown["form"][one["start"] : one["end"]] == one["text"]


def test_the_clause_of_the_claim_is_first_of_all(found: article.Findings) -> None:
    assert found.scores[0]["item_id"] == CLAIM.clause
    assert {one["item_id"] for one in found.scores} == CLAUSES.keys()
    scores = [one["score"] for one in found.scores]
    assert scores == sorted(scores, reverse=True)


def test_boxes_lie_in_the_photo_and_keep_to_the_threshold(found: article.Findings) -> None:
    assert found.damage
    for one in found.damage:
        left, top, width, height = one["bbox"]
        assert one["label"] in DAMAGE
        assert one["score"] >= 0.05
        assert 0 <= left <= left + width <= SIZE[0]
        assert 0 <= top <= top + height <= SIZE[1]


def test_the_threshold_is_honoured(url: str, found: article.Findings, tmp_path: Path) -> None:
    photo = article.write_papers(CLAIM, tmp_path)["photo"]
    above = (max(one["score"] for one in found.damage) + 1) / 2
    with SIEClient(url) as client:
        options = {"score_threshold": above}
        assert client.extract(article.DETECTOR, {"images": [photo]}, labels=DAMAGE, options=options)["objects"] == []


def test_a_review_is_written(found: article.Findings) -> None:
    assert found.review


def test_the_reply_has_data_though_the_client_keeps_it_from_its_caller(url: str) -> None:
    body = {"prompt": "One, two,", "max_new_tokens": 4, "temperature": 0}
    answer = httpx.post(f"{url}/v1/generate/{article.WRITER.replace('/', '__')}", json=body, timeout=60).json()
    assert answer["data"] == article.data_of(answer["text"])
    with SIEClient(url) as client:
        result = client.generate(article.WRITER, "One, two,", max_new_tokens=4, temperature=0)
    assert result["text"] == answer["text"]
    assert "data" not in result


def test_the_script_tells_which_weights_are_random(
    url: str, found: article.Findings, capsys: pytest.CaptureFixture[str]
) -> None:
    article.report(url, found)
    assert capsys.readouterr().out.count(NOTHING) == 2


def test_the_script_runs(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert article.main(["--url", url, "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("/readyz\nok\n")
