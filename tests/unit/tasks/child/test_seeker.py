"""Jobs of models that a child has not met wait apart from the others until it knows what they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from catalog.hub import HubModels
from catalog.live import LiveCatalog
from catalog.places import There
from catalog.repository import Repository
from tasks.child.inbox import Arrival
from tasks.child.seeker import Seeker
from tasks.messages import Submission

MakeSubmission = Callable[..., Submission]

CONFIG = {"architectures": ["BertForTokenClassification"], "id2label": {"0": "O", "1": "B-PER"}}


class Shelf:
    """A place that has `org/there`, and tells so when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open = threading.Event()

    def look(self, name: str, revision: str | None, /) -> There | None:
        self.asked.append(name)
        assert self.open.wait(10)
        if name != "org/there":
            return None
        return There(
            Repository("r", {"config.json": 9, "model.safetensors": 9}, {"config.json": CONFIG}), {"hub": name}
        )


class Given:
    """What the seeker passed on."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.changed = threading.Condition()

    def __call__(self, arrivals: Sequence[Arrival]) -> None:
        with self.changed:
            self.keys += [arrival.key for arrival in arrivals]
            self.changed.notify_all()

    def until(self, *keys: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: set(keys) <= set(self.keys), 10)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def catalog(shelf: Shelf, tmp_path: Path) -> LiveCatalog:
    return LiveCatalog(built_in=tmp_path, hub=HubModels([shelf]))


@pytest.fixture
def given() -> Given:
    return Given()


@pytest.fixture
def seeker(catalog: LiveCatalog, given: Given) -> Iterator[Seeker]:
    seeker = Seeker(catalog, given)
    seeker.start()
    yield seeker
    seeker.close()


def arrival(make_submission: MakeSubmission, number: int, model: str) -> Arrival:
    job = replace(make_submission(id=UUID(int=number)), model=model)
    return Arrival(str(number), job, 0, 0.0)


def test_jobs_of_one_model_go_on_together_once_it_is_found(
    seeker: Seeker, shelf: Shelf, catalog: LiveCatalog, given: Given, make_submission: MakeSubmission
) -> None:
    seeker.put([arrival(make_submission, 1, "org/there@r"), arrival(make_submission, 2, "org/there@r")])
    shelf.open.set()
    given.until("1", "2")
    assert shelf.asked == ["org/there"]
    assert catalog.find("org/there@r").spec.family == "token_classifier"


def test_jobs_of_a_model_that_is_not_there_go_on_too_and_find_out(
    seeker: Seeker, shelf: Shelf, given: Given, make_submission: MakeSubmission
) -> None:
    shelf.open.set()
    seeker.put([arrival(make_submission, 1, "org/none@r")])
    given.until("1")


def test_what_waits_can_be_taken_back(
    seeker: Seeker, shelf: Shelf, given: Given, make_submission: MakeSubmission
) -> None:
    seeker.put([arrival(make_submission, number, "org/there@r") for number in (1, 2, 3)])
    assert seeker.take_back(["2", "9"]) == ["2"]
    shelf.open.set()
    given.until("1", "3")
    assert (seeker.take_back(), "2" in given.keys) == ([], False)
