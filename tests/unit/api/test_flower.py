"""What may be asked of Flower."""

from __future__ import annotations

import pytest

from api.flower import path_of
from tasks.settings import Settings


@pytest.mark.parametrize(
    "path", ["", "tasks", "api/task/info/01a2-b", "worker/cpu@host.lan", "static/js/flower.js", "api/task/info/"]
)
def test_a_path_of_flowers_is_handed_on(path: str) -> None:
    assert path_of(path) == f"/flower/{path}"


OUT = ("..", "../v1/jobs", "a/../../v1", "a/..", ".", "./tasks", "...", "//evil", "/tasks", "a//b", "a\\..\\b", "a\0b")
ODD = ("%2e%2e/v1", "a%2fb", "a?b", "a#b", "a\r\nb", "tasks\n", "ünï", "a b")


@pytest.mark.parametrize("path", [*OUT, *ODD])
def test_a_path_that_may_lead_elsewhere_is_none(path: str) -> None:
    assert path_of(path) is None


@pytest.mark.parametrize(
    ("settings", "base"),
    [
        ({}, "http://127.0.0.1:5555"),
        ({"flower_host": "::1", "flower_port": 7}, "http://[::1]:7"),
        ({"flower_host": "0.0.0.0"}, "http://127.0.0.1:5555"),
        ({"flower_port": 0}, ""),
        ({"flower_url": "http://flower:5555", "flower_port": 0}, "http://flower:5555"),
    ],
)
def test_where_flower_is(settings: dict[str, object], base: str) -> None:
    assert Settings.model_validate(settings).flower_base == base


@pytest.mark.parametrize("url", ["flower:5555", "http://user:pw@flower", "http://flower/x", "ftp://flower"])
def test_what_is_no_place_of_flower(url: str) -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        Settings(flower_url=url)
