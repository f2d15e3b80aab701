from __future__ import annotations

from collections.abc import Callable

from catalog.schema import CostCoefficients, Spec
from engine.costs import CostBook
from engine.device import CpuDevice, FakeDevice
from engine.limits import EngineLimits, bounds, lane_count

MakeSpec = Callable[..., Spec]
LIMITS = EngineLimits(budget_bytes=1000)


def test_a_cpu_has_a_lane_for_each_core() -> None:
    device = CpuDevice()
    assert lane_count(LIMITS, device) == device.cores
    assert lane_count(EngineLimits(budget_bytes=1, lanes=3), device) == 3


def test_a_cpus_batches_are_small(make_spec: MakeSpec) -> None:
    dear = make_spec(cost=CostCoefficients(base=5.0, per_token=0.22))
    assert bounds("m", dear, LIMITS, CpuDevice(), CostBook("cpu")).tokens == 1024


def test_a_model_that_costs_next_to_nothing_is_not_cut_for_its_tokens(make_spec: MakeSpec) -> None:
    cheap = make_spec(cost=CostCoefficients(base=0.05, per_token=0.0001))
    free = make_spec(cost=CostCoefficients(base=0.0, per_token=0.0))
    assert bounds("m", cheap, LIMITS, CpuDevice(), CostBook("cpu")).tokens == 100_000
    assert bounds("m", free, LIMITS, CpuDevice(), CostBook("cpu")).tokens > 10**9


def test_what_the_operator_sets_holds_for_every_model(make_spec: MakeSpec) -> None:
    limits = EngineLimits(budget_bytes=1, batch_tokens=500, batch_items=7)
    found = bounds("m", make_spec(), limits, FakeDevice(), CostBook("fake"))
    assert (found.items, found.tokens) == (7, 500)


class Proved(CostBook):
    def batch_tokens(self, model: str, least: int, most: int) -> int | None:
        assert least < 777 < most
        return 777


def test_a_size_that_has_proved_the_quickest_is_taken(make_spec: MakeSpec) -> None:
    assert bounds("m", make_spec(), LIMITS, FakeDevice(), Proved("fake")).tokens == 777


def test_what_the_operator_sets_wins_over_what_has_proved(make_spec: MakeSpec) -> None:
    limits = EngineLimits(budget_bytes=1, batch_tokens=500)
    assert bounds("m", make_spec(), limits, FakeDevice(), Proved("fake")).tokens == 500


def test_batches_of_pages_and_tiles_are_bounded_by_what_these_become(make_spec: MakeSpec) -> None:
    dear = CostCoefficients(base=5.0, per_token=300.0)
    found = [
        bounds("m", make_spec(cost=dear).model_copy(update={"unit": unit}), LIMITS, device, CostBook("cpu")).tokens
        for unit in ("tiles", "pages")
        for device in (CpuDevice(), FakeDevice())
    ]
    assert found == [1, 28, 1, 7]
