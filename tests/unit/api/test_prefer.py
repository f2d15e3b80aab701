from __future__ import annotations

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
    ],
)
def test_the_wait_in_the_header_is_read_and_cut(header: str | None, wait: float) -> None:
    assert wait_of(header, 120) == wait


@pytest.mark.parametrize("header", ["wait=", "wait=soon", "wait=-1", "wait=nan"])
def test_a_wait_that_is_no_time_is_refused(header: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        wait_of(header, 120)
    assert caught.value.param == "Prefer"


def test_seconds_name_their_parameter() -> None:
    with pytest.raises(InvalidRequest) as caught:
        seconds("x", 1, "wait")
    assert caught.value.param == "wait"


@pytest.mark.parametrize(("wait", "text"), [(0, "respond-async"), (30, "wait=30"), (2.5, "wait=2.5")])
def test_what_was_granted_is_said(wait: float, text: str) -> None:
    assert applied(wait) == text
