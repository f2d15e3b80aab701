"""What one pull takes: how its room is shared, and what comes without any."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from tasks.dispatch import Publisher
from tasks.messages import Submission
from tasks.plan import Plan, Section, Source
from tasks.pull_script import PULL, pull_arguments, pull_keys

NewJob = Callable[..., Submission]


class Puller:
    """Runs the pull script alone."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._script = client.register_script(PULL)

    def __call__(self, *sections: Section, cap_ms: float = 1000.0, most: int = 256) -> list[str]:
        plan = Plan(sections, cap_ms)
        taken = self._script(keys=pull_keys(plan, "unacked", "unacked_index"), args=pull_arguments(plan, most))
        return [plan.sources[number - 1].queue for number in taken[::2]]


@pytest.fixture
def pull(client: redis.Redis) -> Puller:
    return Puller(client)


@pytest.fixture
def full(publisher: Publisher, new_job: NewJob) -> None:
    """Ten messages in each of three queues."""
    for bucket in ("xs", "m", "xl"):
        publisher.publish_now([new_job(bucket=bucket) for _ in range(10)])


@pytest.mark.usefixtures("full")
def test_a_room_is_shared_by_the_queues_of_a_section(pull: Puller) -> None:
    section = Section((Source("interactive.m", 200.0), Source("interactive.xs", 100.0)), room_ms=900.0, jobs=100)
    assert pull(section) == ["interactive.m"] * 4 + ["interactive.xs"]


@pytest.mark.usefixtures("full")
def test_a_message_dearer_than_the_room_comes_alone(pull: Puller) -> None:
    section = Section((Source("interactive.xl", 20_000.0), Source("interactive.xs", 2.0)), room_ms=1000.0, jobs=100)
    assert pull(section) == ["interactive.xl"]


@pytest.mark.usefixtures("full")
def test_what_one_section_takes_is_missing_in_the_next(pull: Puller) -> None:
    first = Section((Source("interactive.xs", 2.0),), room_ms=10.0, jobs=100)
    second = Section((Source("interactive.m", 5.0),), room_ms=20.0, jobs=100)
    assert pull(first, second) == ["interactive.xs"] * 5 + ["interactive.m"] * 2


@pytest.mark.usefixtures("full")
def test_a_section_with_its_own_room_neither_loses_to_the_others_nor_takes_from_them(pull: Puller) -> None:
    first = Section((Source("interactive.xs", 2.0),), room_ms=10.0, jobs=6)
    own = Section((Source("interactive.xl", 5.0),), room_ms=5.0, jobs=2, own=True)
    third = Section((Source("interactive.m", 5.0),), room_ms=20.0, jobs=6)
    assert pull(first, own, third) == ["interactive.xs"] * 5 + ["interactive.xl"] + ["interactive.m"]


@pytest.mark.usefixtures("full")
def test_the_least_of_a_section_comes_even_without_room(pull: Puller) -> None:
    first = Section((Source("interactive.xs", 2.0),), room_ms=10.0, jobs=5)
    second = Section((Source("interactive.m", 5.0), Source("interactive.xl")), room_ms=-100.0, jobs=5, least=1)
    assert pull(first, second) == ["interactive.xs"] * 5 + ["interactive.m"]


@pytest.mark.usefixtures("full")
def test_no_more_jobs_come_than_the_section_and_the_pull_allow(pull: Puller) -> None:
    section = Section((Source("interactive.xs", 2.0), Source("interactive.m", 2.0)), room_ms=1000.0, jobs=12)
    assert pull(section) == ["interactive.xs"] * 10 + ["interactive.m"] * 2
    assert pull(section, most=3) == ["interactive.m"] * 3


def test_a_tag_within_a_text_is_not_taken_for_the_message_s_own(
    client: redis.Redis, publisher: Publisher, pull: Puller, new_job: NewJob
) -> None:
    job = new_job(model='"delivery_tag": "forged"', caller='\\"delivery_tag":"forged"')
    publisher.publish_now([job])
    pull(Section((Source("interactive.xs"),), room_ms=1.0, jobs=1))
    assert client.hkeys("unacked") == [str(job.id).encode()]
