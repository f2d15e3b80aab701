from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from tasks.backfills.backfill import Document
from tasks.backfills.manifest import documents
from tasks.errors import InvalidRequest
from tasks.lines import Fault

FILE = "file-" + "0" * 32


def loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest("it is not valid JSON.") from error


def read(*lines: Any) -> list[Document | Fault]:
    content = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return list(documents([content], loads))


def test_documents_have_the_numbers_of_their_lines() -> None:
    found = read({"file": FILE, "id": "a", "metadata": {"year": 2020}}, b"", {"path": "/srv/b"})

    assert found == [
        Document(1, "a", FILE, FILE, 0, {"year": 2020}),
        # Nothing tells yet whether the content of a path has changed.
        Document(3, "/srv/b", "/srv/b", "", 0, None),
    ]


def test_a_document_by_url_is_called_by_it_without_what_may_be_a_secret() -> None:
    (found,) = read({"url": "https://a.example/b.pdf?sig=secret"})

    assert isinstance(found, Document)
    assert (found.name, found.source) == ("https://a.example/b.pdf", "url:https://a.example/b.pdf?sig=secret")


def test_a_fingerprint_of_the_callers_counts_for_more_than_the_id_of_the_file() -> None:
    (found,) = read({"file": FILE, "fingerprint": "sha256:1"})

    assert isinstance(found, Document)
    assert found.fingerprint == "sha256:1"


@pytest.mark.parametrize(
    ("line", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        ([], "invalid_request", ""),
        ({}, "invalid_request", "path"),
        ({"file": FILE, "path": "b"}, "invalid_request", "path"),
        ({"url": "ftp://a"}, "invalid_request", "url"),
        # Nothing but an id: else it would be read as a path, of which nobody looks whether it has changed.
        *(({"file": other}, "invalid_request", "file") for other in ("/srv/b", "url:https://a", "file-1", "")),
        ({"file": FILE, "fingerprimt": "b"}, "invalid_request", "fingerprimt"),
        ({"file": FILE, "id": ""}, "invalid_request", "id"),
        ({"file": FILE, "id": "x\ny"}, "invalid_request", "id"),
        ({"file": FILE, "metadata": {"a": []}}, "invalid_request", None),
        (b"x" * 70_000, "line_too_long", None),
    ],
)
def test_what_is_wrong_is_told_with_its_line(line: Any, code: str, param: str | None) -> None:
    good, fault = read({"file": FILE}, line)

    assert isinstance(good, Document)
    assert isinstance(fault, Fault)
    assert (fault.code, fault.line) == (code, 2)
    assert fault.message.startswith("Line 2: ")
    if param is not None:
        assert fault.param == param
