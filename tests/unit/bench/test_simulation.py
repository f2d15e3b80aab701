"""A quarter of an hour of fifty models at five times the budget, with what docs/simulation.md promises of hours."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.bench.simulation.plot import Panel, svg
from tests.bench.simulation.record import Figures, Load, most_within
from tests.bench.simulation.scenario import LOAD, MODELS, Contender, Setting, play
from tests.bench.simulation.traffic import Mix, Shape, works, zipf_models


def run(contender: Contender, *, host: bool = False, seconds: float = 900.0) -> Figures:
    return play(Setting(contender, Shape.POISSON, host, seed=1, seconds=seconds, warmup_s=300.0))


@pytest.fixture(scope="module")
def roost() -> Figures:
    return run(Contender.ROOST)


def test_no_job_fails_or_is_left_behind(roost: Figures) -> None:
    assert (roost.failed, roost.left) == (0, 0)


def test_no_model_is_loaded_twice_in_a_minute(roost: Figures) -> None:
    assert roost.loads_per_minute <= 1
    assert roost.most_loads <= 1


def test_nearly_all_gets_done_that_would_with_all_resident(roost: Figures) -> None:
    mix = Mix(zipf_models(MODELS, 1), 900.0, LOAD)
    offered_ms = sum(work.cost_ms for work in works(mix, 1) if work.arrived >= 300.0)
    assert roost.done_ms >= 0.95 * offered_ms


def test_callers_wait_less_than_under_plain_lru(roost: Figures) -> None:
    lru = run(Contender.LRU)
    assert lru.mean >= 1.3 * roost.mean
    assert lru.p50 >= 2 * roost.p50


def test_twice_as_much_gets_done_as_first_come_first_served(roost: Figures) -> None:
    assert roost.done_ms >= 2 * run(Contender.IN_ORDER).done_ms


def test_host_memory_brings_the_waits_near_those_of_all_resident(roost: Figures) -> None:
    hosted = run(Contender.ROOST, host=True, seconds=450.0)
    assert (hosted.failed, hosted.left) == (0, 0)
    assert hosted.most_loads <= 1
    assert hosted.mean <= 0.2 * roost.mean


def test_the_same_seed_gives_the_same_traffic() -> None:
    mix = Mix(zipf_models(5, 1), 60.0, 0.8, Shape.BURSTY)
    assert list(works(mix, 1)) == list(works(mix, 1))


def test_the_fullest_minute_is_found_wherever_it_lies() -> None:
    loads = [Load("a", at, 1.0, returned=False) for at in (0.0, 50.0, 70.0, 109.0, 110.0)]
    assert most_within(loads, 60.0) == 3
    assert most_within([*loads, Load("b", 60.0, 1.0, returned=False)], 60.0) == 3


def test_a_plot_is_well_formed() -> None:
    drawn = svg([Panel("a < b", {"x": [0.1, 1.0], "y": [1.0, 1e6]})], [50, 99])
    assert len(ET.fromstring(drawn).findall(".//{http://www.w3.org/2000/svg}polyline")) == 2  # noqa: S314 - our own
