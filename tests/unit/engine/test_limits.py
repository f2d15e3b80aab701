from __future__ import annotations

from collections.abc import Callable

from catalog.schema import CostCoefficients, Spec
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
    assert bounds(dear, LIMITS, CpuDevice()).tokens == 1024


def test_a_model_that_costs_next_to_nothing_is_not_cut_for_its_tokens(make_spec: MakeSpec) -> None:
    cheap = make_spec(cost=CostCoefficients(base=0.05, per_token=0.0001))
    free = make_spec(cost=CostCoefficients(base=0.0, per_token=0.0))
    assert bounds(cheap, LIMITS, CpuDevice()).tokens == 100_000
    assert bounds(free, LIMITS, CpuDevice()).tokens > 10**9


def test_what_the_operator_sets_holds_for_every_model(make_spec: MakeSpec) -> None:
    limits = EngineLimits(budget_bytes=1, batch_tokens=500, batch_items=7)
    found = bounds(make_spec(), limits, FakeDevice())
    assert (found.items, found.tokens) == (7, 500)
