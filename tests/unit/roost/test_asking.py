from __future__ import annotations

import pytest

from roost import asking
from roost.errors import RequestRefused


def test_what_is_no_field_of_a_job_is_an_option() -> None:
    given = {"lane": "bulk", "labels": ["a"], "top_n": 3, "options": {"truncate": False}, "query": None}
    assert asking.job_fields(given) == {
        "lane": "bulk",
        "labels": ["a"],
        "options": {"top_n": 3, "truncate": False},
    }


def test_a_query_is_an_item_like_others() -> None:
    fields = asking.job_fields({"query": {"images": [b"png"]}})
    assert fields["query"] == {"images": [{"data": b"png"}]}


@pytest.mark.parametrize("key", ["", "é", "a\nb", "x" * 257])
def test_a_key_that_the_server_would_refuse_is_refused_here(key: str) -> None:
    with pytest.raises(RequestRefused, match="printable ASCII"):
        asking.asked("encode", "m", ["a"], {}, key)


def test_keys_of_the_client_are_good_and_never_the_same() -> None:
    assert asking.new_key() != asking.new_key()
    asking.check_key(asking.new_key())


def test_a_key_that_has_grown_too_long_is_cut_and_still_its_own() -> None:
    first, second = asking.short_key("x" * 400 + "a"), asking.short_key("x" * 400 + "b")
    assert first != second
    asking.check_key(first)
    assert asking.short_key("run/1") == "run/1"


def test_ids_are_parts_of_a_path_and_no_paths() -> None:
    assert asking.job_path("../models", "/result") == "/v1/jobs/..%2Fmodels/result"
    assert asking.model_path("acme/owl:fast@1 x") == "/v1/models/acme/owl:fast@1%20x"
