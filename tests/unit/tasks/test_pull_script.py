"""The arguments of the scripts, in the order in which the scripts read them."""

from __future__ import annotations

from tasks import keys
from tasks.held_scripts import restore_arguments
from tasks.plan import Plan, Section, Source
from tasks.pull_script import bell_commands, pull_arguments, pull_keys

PLAN = Plan(
    (
        Section((Source("a", 2.0), Source("b", 20.0, models=("", "m"))), room_ms=100.0, jobs=7),
        Section((Source("c", record=False),), room_ms=-5.0, jobs=3, least=1, own=True),
    ),
    cap_ms=50.0,
)


def _names(queue: str) -> list[str]:
    return [queue, keys.bell(queue)]


def test_keys_name_each_queue_with_its_bell_and_the_bells_to_ring() -> None:
    fixed = ["unacked", "unacked_index", keys.HELD, keys.CANCELLED]
    assert pull_keys(PLAN, "unacked", "unacked_index", ["other"]) == [
        *fixed,
        *(*_names("a"), *_names("b"), *_names("c")),
        "other",
    ]


def test_arguments_follow_the_sections() -> None:
    assert pull_arguments(PLAN, most=9) == [
        *(9, 50.0, 2),
        *(100.0, 7, 0, 0, 2, 2.0, 1, 20.0, 3, 2, "", "m"),
        *(-5.0, 3, 1, 1, 1, 0.0, 0),
    ]


def test_restoring_pairs_tags_with_payloads() -> None:
    assert restore_arguments(["t", "u"]) == [keys.bell(""), "0.0", "t", "", "u", ""]
    assert restore_arguments(["t"], ["{}"], 20.0) == [keys.bell(""), "20.0", "t", "{}"]


def test_a_bell_keeps_eight_tokens() -> None:
    assert bell_commands("q") == [("LPUSH", keys.bell("q"), "1"), ("LTRIM", keys.bell("q"), 0, 7)]
