from __future__ import annotations

import pytest

from tasks.errors import InvalidRequest
from tasks.files import kept_s, parsed_id, shown_id, shown_name
from tasks.prepare import job_id


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a.jsonl", "a.jsonl"),
        ("../../etc/passwd", "passwd"),
        ("C:\\windows\\system32\\a.jsonl", "a.jsonl"),
        ("/abs/b", "b"),
        ("..", "upload.jsonl"),
        (".", "upload.jsonl"),
        ("a/", "upload.jsonl"),
        ("  ", "upload.jsonl"),
        ("", "upload.jsonl"),
        ("a\r\nX-Evil: 1", "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}X-Evil: 1"),
        ("a\0b", "a\N{REPLACEMENT CHARACTER}b"),
        ("gnp.\u202ejs", "gnp.\N{REPLACEMENT CHARACTER}js"),
        ("über ☃.jsonl", "über ☃.jsonl"),
        ("x" * 400, "x" * 255),
    ],
)
def test_a_name_is_the_last_part_of_a_path_and_garbles_nothing(given: str, shown: str) -> None:
    assert shown_name(given) == shown


def test_an_id_is_read_back() -> None:
    id_ = job_id(1.0)
    assert parsed_id("file-", shown_id("file-", id_)) == id_


@pytest.mark.parametrize("text", ["", "file-", "file-xyz", "batch_" + "0" * 32, "file-" + "0" * 33, "file-" + "A" * 32])
def test_what_is_no_id_is_none(text: str) -> None:
    assert parsed_id("file-", text) is None


@pytest.mark.parametrize("seconds", [0, 3599, 30 * 86_400 + 1])
def test_a_file_is_kept_from_an_hour_to_thirty_days(seconds: int) -> None:
    with pytest.raises(InvalidRequest):
        kept_s(seconds, "expires_after.seconds")
    assert kept_s(3600, "expires_after.seconds") == 3600
