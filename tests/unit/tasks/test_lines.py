from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.feeding.reading import loads
from tasks import lines
from tasks.lines import BadLine, Fault, RawLine, Rules, check, read_line, split

RULES = Rules("/v1/embeddings", 1000, 500, loads)
GOOD: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"model": "m"}}


def pieces(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def request(custom_id: str, **fields: Any) -> bytes:
    return json.dumps(GOOD | {"custom_id": custom_id} | fields).encode()


def faults(*rows: bytes, rules: Rules = RULES) -> list[tuple[str, int | None]]:
    data = b"\n".join(rows)
    return [(fault.code, fault.line) for fault in check(lambda: [data], rules).faults]


@given(st.lists(st.binary(max_size=20).map(lambda row: row.replace(b"\n", b""))), st.integers(1, 30), st.booleans())
def test_lines_are_the_same_however_the_file_comes(rows: list[bytes], size: int, newline: bool) -> None:
    data = b"\n".join(rows) + (b"\n" if newline and rows else b"")

    found = list(split(pieces(data, size), 1000))

    told = data.split(b"\n")
    assert [line.data for line in found] == (told[:-1] if told[-1] == b"" else told)
    assert [data[line.start : line.end].rstrip(b"\n") for line in found] == [
        (line.data or b"").rstrip(b"\n") for line in found
    ]
    assert [line.number for line in found] == list(range(1, len(found) + 1))


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_a_line_that_is_too_long_is_not_kept_and_its_neighbours_are(size: int) -> None:
    data = b"short\n" + b"x" * 300 + b"\nlast"

    found = list(split(pieces(data, size), 10))

    assert [line.data for line in found] == [b"short", None, b"last"]
    assert (found[1].end, found[2].start) == (307, 307)


@pytest.mark.parametrize(
    ("row", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b'{"a": NaN}', "invalid_json_line", "a"),
        (b'{"body": {"input": ["a", "\\ud83d"]}}', "invalid_json_line", "body.input[1]"),
        (b"\xff", "invalid_json_line", None),
        (b"[]", "invalid_json_line", None),
        (b'{"custom_id": "a"}', "missing_required_parameter", "method"),
        (json.dumps(GOOD | {"custom_idd": 1}).encode(), "unknown_field", "custom_idd"),
        (json.dumps(GOOD | {"custom_id": 1}).encode(), "invalid_custom_id", "custom_id"),
        (json.dumps(GOOD | {"custom_id": ""}).encode(), "invalid_custom_id", "custom_id"),
        (json.dumps(GOOD | {"custom_id": "x" * 513}).encode(), "invalid_custom_id", "custom_id"),
        (json.dumps(GOOD | {"custom_id": "a\0b"}).encode(), "invalid_custom_id", "custom_id"),
        (json.dumps(GOOD | {"custom_id": "a\x1b[2J"}).encode(), "invalid_custom_id", "custom_id"),
        (json.dumps(GOOD | {"custom_id": "a\x85b"}).encode(), "invalid_custom_id", "custom_id"),
        (json.dumps(GOOD | {"method": "GET"}).encode(), "invalid_method", "method"),
        (json.dumps(GOOD | {"url": "/v1/rerank"}).encode(), "mismatched_url", "url"),
        (json.dumps(GOOD | {"body": []}).encode(), "invalid_body", "body"),
        (None, "line_too_long", None),
    ],
)
def test_what_is_no_request_says_why(row: bytes | None, code: str, param: str | None) -> None:
    with pytest.raises(BadLine) as refused:
        read_line(RawLine(7, 0, 1, row), RULES)

    fault = refused.value.fault
    assert (fault.code, fault.line, fault.param) == (code, 7, param)
    assert fault.message.startswith("Line 7: ")


def test_a_field_that_was_misspelled_is_offered_the_right_one() -> None:
    with pytest.raises(BadLine, match="did you mean 'custom_id'"):
        read_line(RawLine(1, 0, 1, json.dumps(GOOD | {"custom_idd": 1}).encode()), RULES)


def test_a_mark_of_byte_order_before_the_first_line_is_passed_over() -> None:
    assert read_line(RawLine(1, 0, 1, b"\xef\xbb\xbf" + request("a")), RULES).custom_id == "a"


def test_a_first_line_with_nothing_but_such_a_mark_is_blank() -> None:
    mark = b"\xef\xbb\xbf"
    (part,) = check(lambda: [mark + b"\r\n" + request("a")], RULES).parts

    assert (part.first_line, part.lines, part.start) == (2, 1, 5)
    assert faults(mark) == [("empty_file", None)]
    assert [code for code, _ in faults(request("a"), mark)] == ["invalid_json_line"]


def test_equal_ids_are_told_with_both_lines_and_blank_lines_count() -> None:
    found = check(lambda: [b"\n".join([request("a"), b"", request("b"), request("a"), request("a")])], RULES)

    assert [(one.code, one.line) for one in found.faults] == [("duplicate_custom_id", 4), ("duplicate_custom_id", 5)]
    assert all("that of line 1" in one.message for one in found.faults)


def test_ids_whose_digests_are_equal_are_no_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_digest", lambda custom_id: 7)

    assert faults(request("a"), request("b")) == []
    assert faults(request("a"), request("b"), request("a")) == [("duplicate_custom_id", 3)]


def test_all_kinds_of_faults_are_told_at_once() -> None:
    assert faults(request("a"), b"{", request("b", method="GET"), request("a")) == [
        ("invalid_json_line", 2),
        ("invalid_method", 3),
        ("duplicate_custom_id", 4),
    ]


def test_so_many_faults_are_told_and_no_more() -> None:
    assert len(faults(*[b"{"] * 500)) == lines.MOST_FAULTS


@pytest.mark.parametrize("data", [b"", b"\n\n", b"  \n"])
def test_a_file_without_lines_is_refused(data: bytes) -> None:
    assert check(lambda: [data], RULES).faults == [Fault("empty_file", "The file has no lines.")]


def test_a_file_with_too_many_lines_is_refused_by_the_name_of_the_limit() -> None:
    found = check(lambda: [b"\n".join(request(str(n)) for n in range(3))], replace(RULES, most_lines=2))

    assert found.faults[0].code == "too_many_lines"
    assert "ROOST_MAX_BATCH_LINES" in found.faults[0].message


def test_parts_cover_every_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PART_LINES", 4)
    monkeypatch.setattr(lines, "PART_BYTES", 600)
    rows = [request(str(n), body={"model": "m", "input": "x" * (n % 5) * 60}) for n in range(23)]
    rows.insert(5, b"")
    data = b"\n".join(rows)

    parts = check(lambda: pieces(data, 50), RULES).parts

    told = []
    for part in parts:
        cut = [data[part.start : part.start + part.size]]
        found = [raw for raw in split(cut, 500, number=part.first_line, start=part.start) if not raw.blank]
        assert len(found) == part.lines <= 4
        told += [(raw.number, read_line(raw, RULES).custom_id) for raw in found]
    assert [custom_id for _, custom_id in told] == [str(n) for n in range(23)]
    assert [number for number, _ in told] == [n for n in range(1, 25) if n != 6]
    assert [part.part for part in parts] == list(range(len(parts)))


def test_the_model_is_told_when_it_is_the_same_everywhere() -> None:
    assert check(lambda: [request("a") + b"\n" + request("b")], RULES).model == "m"
    assert check(lambda: [request("a") + b"\n" + request("b", body={"model": "n"})], RULES).model is None
    assert check(lambda: [request("a", body={})], RULES).model is None
