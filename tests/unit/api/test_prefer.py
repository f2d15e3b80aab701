from __future__ import annotations

import time

import pytest

from api.prefer import applied, seconds, wait_of
from tasks.errors import InvalidRequest


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        (None, 0),
        ("", 0),
        ("respond-async", 0),
        ("wait=10", 10),
        ("wait=2.5", 2.5),
        ('wait="10"', 10),
        ("Wait = 10", 10),
        ("respond-async, wait=10", 10),
        ("return=minimal; foo, wait=7", 7),
        ("wait=0", 0),
        ("wait=100000", 120),
        ("wait=inf", 120),
        ("handling=lenient", 0),
        ("xwait=-1", 0),
        ("handling=strict; wait=-5", 0),
        ('x="wait=zzz"', 0),
        ('x="a, wait=zzz", wait=3', 3),
        ('x="a\\", wait=zzz", wait=3', 3),
        ("wait=4; x=y", 4),
        ("wait=4, wait=9", 4),
        ('x="unclosed, wait=5', 5),
        (",, ;=, wait=6", 6),
    ],
)
def test_the_wait_in_the_header_is_read_and_cut(header: str | None, wait: float) -> None:
    assert wait_of([] if header is None else [header], 120) == wait


def test_several_lines_are_one_header() -> None:
    assert wait_of(["respond-async", "wait=8", "wait=9"], 120) == 8


def test_a_long_header_is_read_in_one_go() -> None:
    start = time.process_time()
    for header in ('"' * 60_001, 'x="' + "\\" * 60_001, "=" * 60_000, " " * 60_000, "a " * 30_000, "," * 60_000):
        assert wait_of([header], 120) == 0
    assert time.process_time() - start < 1


@pytest.mark.parametrize("header", ["wait=", "wait=soon", "wait=-1", "wait=nan"])
def test_a_wait_that_is_no_time_is_refused(header: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        wait_of([header], 120)
    assert caught.value.param == "Prefer"


def test_seconds_name_their_parameter() -> None:
    with pytest.raises(InvalidRequest) as caught:
        seconds("x", 1, "wait")
    assert caught.value.param == "wait"


@pytest.mark.parametrize(("wait", "text"), [(0, "respond-async"), (30, "wait=30"), (2.5, "wait=2.5")])
def test_what_was_granted_is_said(wait: float, text: str) -> None:
    assert applied(wait) == text
