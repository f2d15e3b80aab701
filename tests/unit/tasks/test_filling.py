from __future__ import annotations

import base64
from typing import Any

import pytest

from catalog.lengths import media_length
from catalog.loader import Catalog
from catalog.schema import CostCoefficients, EncodeFacts, ScoreFacts, Spec, Tasks
from catalog.tokenizer import Counts
from tasks.errors import LimitExceeded, UrlRefused, UrlUnreachable
from tasks.filling import filled
from tasks.inputs import read_inputs
from tasks.items import MAX_IMAGE_BYTES
from tasks.prepare import Checked, Limits, body_hash, check, price
from tasks.request import parse_request
from tasks.sources import QUERY, Fetched, Source

LIMITS = Limits(max_items=10, max_text_chars=1000, default_retention_s=600, max_retention_s=6000)
SPEC = Spec(
    id="org/model",
    family="fake",
    tasks=Tasks(encode=EncodeFacts(dims=4), score=ScoreFacts()),
    parameters=0,
    max_length=1000,
    inputs=("text", "messages", "image", "audio", "document"),
)
CATALOG = Catalog([SPEC])
PDF = b"%PDF-1.7" + b"/Type /Page " * 3
U = "https://files.example.com/"


def checked(*items: Any, **fields: Any) -> Checked:
    raw = {"verb": "encode", "model": "org/model", "items": list(items), **fields}
    return check(parse_request(raw, 10), CATALOG, LIMITS)


def by_where(it: Checked) -> dict[str, Source]:
    return {source.where: source for source in it.sources}


def test_every_url_is_a_source_with_its_place() -> None:
    part = {"type": "image", "image": {"url": U + "m"}}
    it = checked(
        "a text",
        {"images": [{"data": "QQ=="}, {"url": U + "1"}], "audio": {"url": U + "2"}},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, part, part]}]},
        {"document": {"data": "QQ=="}},
        {"document": {"url": U + "3", "name": "a.csv"}},
    )

    found = {name: (one.place, one.url, one.held_in, one.number, one.most) for name, one in by_where(it).items()}
    assert found == {
        "items[1].images[1].url": (1, U + "1", "images", 1, MAX_IMAGE_BYTES),
        "items[1].audio.url": (1, U + "2", "audio", 0, None),
        "items[2].messages[0].content[1].image.url": (2, U + "m", "images", 0, MAX_IMAGE_BYTES),
        "items[2].messages[0].content[2].image.url": (2, U + "m", "images", 1, MAX_IMAGE_BYTES),
        "items[4].document.url": (4, U + "3", "document", 0, None),
    }
    assert it.base[1] == it.base[2] == it.base[4] == 0
    assert U not in repr(it.sources)


def test_what_comes_by_url_is_as_if_it_had_been_sent() -> None:
    sent = checked(
        {"document": {"data": base64.b64encode(PDF).decode(), "name": "a.pdf"}}, {"images": [{"data": "QQ=="}]}
    )
    it = checked({"document": {"url": U + "x", "name": "a.pdf"}}, {"images": [{"url": U}]})
    first, second = it.sources

    whole = filled(it, {first: Fetched(PDF, "application/pdf"), second: Fetched(b"A")})

    assert whole.items == sent.items
    assert whole.base == sent.base
    assert whole.base[0] == media_length(SPEC, sent.items[0]) > 0
    assert not whole.faults
    assert not whole.sources


def test_a_file_that_cannot_be_had_is_the_fault_of_its_item_alone() -> None:
    it = checked(
        {"document": {"url": U + "a"}}, {"images": [{"url": U + "b"}, {"url": U + "c"}, {"url": U + "d"}]}, "a"
    )
    names = by_where(it)
    found: dict[Source, Any] = dict.fromkeys(it.sources, Fetched(b"A"))
    found[names["items[1].images[1].url"]] = UrlUnreachable("gone", param="items[1].images[1].url", retryable=True)
    found[names["items[1].images[2].url"]] = LimitExceeded("large", param="items[1].images[2].url")

    job = price(filled(it, found), Counts([1], exact=True), now=0.0, cost=CostCoefficients(base=1.0, per_token=1.0))

    assert job.faults == {
        1: {"code": "url_unreachable", "message": "gone", "retryable": True, "param": "items[1].images[1].url"}
    }
    assert job.lengths[0] > 0
    assert job.lengths[1] == 0
    assert job.lengths[2] > 0
    assert U.encode() not in job.inputs
    assert [image["data"] for image in read_inputs(job.inputs)[1]["images"]] == [b"A", b"", b""]


def test_a_query_that_cannot_be_had_refuses_the_request() -> None:
    it = checked("a", verb="score", query={"images": [{"url": U}]})
    (source,) = it.sources
    assert (source.place, source.where) == (QUERY, "query.images[0].url")

    assert filled(it, {source: Fetched(b"A")}).query == {"images": [{"data": b"A"}]}
    with pytest.raises(UrlRefused):
        filled(it, {source: UrlRefused("no", param=source.where)})


@pytest.mark.parametrize(
    ("document", "media_type", "held"),
    [
        ({"url": U + "data.csv?x=1"}, "", {"format": "csv"}),
        ({"url": U + "DATA.CSV"}, "application/octet-stream", {"format": "csv"}),
        ({"url": U + "page.php"}, "text/html", {"format": "html"}),
        ({"url": U + "data.csv"}, "text/html", {"format": "html"}),
        ({"url": U + "page.php"}, "application/x-httpd-php", {}),
        ({"url": U + "a.pdf"}, "application/pdf", {}),
        ({"url": U + "x", "format": "md"}, "text/html", {"format": "md"}),
        ({"url": U + "x.csv", "name": "a.txt"}, "text/html", {"name": "a.txt"}),
    ],
)
def test_what_the_server_says_tells_texts_apart_where_the_caller_does_not(
    document: dict[str, str], media_type: str, held: dict[str, str]
) -> None:
    it = checked({"document": document})

    (item,) = filled(it, {it.sources[0]: Fetched(b"a", media_type)}).items

    assert item == {"document": {"data": b"a", **held}}


def test_two_requests_are_the_same_by_their_urls_and_not_by_what_was_there() -> None:
    one, two, other = (checked({"document": {"url": url}}) for url in (U + "a", U + "a", U + "b"))
    filled(one, {one.sources[0]: Fetched(b"then")})

    assert body_hash(one.request) == body_hash(two.request) != body_hash(other.request)
