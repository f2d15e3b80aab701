"""Factories of works and of engines over fake models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest

from catalog.loader import Catalog
from catalog.options import EncodeOptions
from catalog.schema import CostCoefficients, EncodeFacts, Spec, Tasks
from catalog.terms import Lane, Verb
from engine.account import Account
from engine.adapters.base import LoadOptions, Part
from engine.adapters.fake_generator import FakeGeneratorAdapter
from engine.device import Device, FakeDevice
from engine.engine import Engine, EngineLimits
from engine.eviction import EvictionPolicy
from engine.residency import Residency
from engine.scheduler import DEFAULT_POLICY, Policy
from engine.types import Item, Outcome, Work
from tests.unit.engine.generating import Steps
from tests.unit.engine.recorder import Recorder
from tests.unit.engine.watching import MakeResidency, Watching

MakeWork = Callable[..., Work]
MakeSpec = Callable[..., Spec]
MakeEngine = Callable[..., Engine]


@pytest.fixture(scope="session")
def make_work() -> MakeWork:
    """A work of one item for each text, or for each length where no texts are given."""
    numbers = count()

    def make(*texts: str, model: str = "m", lengths: Sequence[int] = (), cost_ms: float = 1.0, **fields: Any) -> Work:
        given = texts or tuple("x" for _ in lengths or (8,))
        sizes = lengths or [8] * len(given)
        items = tuple(
            Item(index=index, payload={"text": text}, length=size, cost_ms=cost_ms)
            for index, (text, size) in enumerate(zip(given, sizes, strict=True))
        )
        values: dict[str, Any] = {
            "id": f"work-{next(numbers)}",
            "verb": Verb.ENCODE,
            "options": EncodeOptions(),
            "lane": Lane.INTERACTIVE,
            "priority": 5,
            "arrived": 0.0,
        }
        return Work(model=model, items=items, **(values | fields))

    return make


@pytest.fixture(scope="session")
def make_spec() -> MakeSpec:
    """The spec of a fake model, with its load options; of an encoder unless another family is named."""

    def make(
        id: str = "m",  # noqa: A002
        *,
        family: str = "fake",
        max_length: int = 512,
        cost: CostCoefficients | None = None,
        **load: Any,
    ) -> Spec:
        encodes = Tasks(encode=EncodeFacts(dims=8, prompts={"query": "query: "}))
        others = {"fake_generator": Tasks(generate={}), "fake_parser": Tasks(extract={})}
        return Spec(
            id=id,
            family=family,
            tasks=others.get(family, encodes),
            parameters=0,
            max_length=max_length,
            cost=cost,
            load=load,
        )

    return make


@pytest.fixture
def now_work(make_work: MakeWork) -> MakeWork:
    """As `make_work`, arrived now on the engine's clock."""
    return lambda *texts, **fields: make_work(*texts, **({"arrived": time.monotonic()} | fields))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """All steps of the fake generators that are made meanwhile."""
    watched = Steps()
    init, step = FakeGeneratorAdapter.__init__, FakeGeneratorAdapter.step

    def noted(self: FakeGeneratorAdapter, spec: Spec, options: LoadOptions, *rest: Any) -> None:
        init(self, spec, options, *rest)
        watched.adapters.append(self)

    def held(self: FakeGeneratorAdapter, parts: Sequence[Part]) -> Sequence[Outcome | None]:
        watched.begin(parts)
        return step(self, parts)

    monkeypatch.setattr(FakeGeneratorAdapter, "__init__", noted)
    monkeypatch.setattr(FakeGeneratorAdapter, "step", held)
    yield watched
    watched.go(None)


@pytest.fixture
def prompt(now_work: MakeWork) -> MakeWork:
    """A work for the generator `g`."""
    return lambda *texts, **fields: now_work(*texts, **({"model": "g", "verb": Verb.GENERATE} | fields))


@pytest.fixture
def recorder() -> Recorder:
    """The listener of the engines that `make_engine` makes."""
    return Recorder()


@pytest.fixture
def make_engine(recorder: Recorder, make_spec: MakeSpec) -> Iterator[MakeEngine]:
    """Starts engines over fake models, given as load options by name; on a budget of 1000 bytes and one lane."""
    engines: list[Engine] = []

    def make(
        models: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        device: Device | None = None,
        eviction: EvictionPolicy = EvictionPolicy(min_stay_s=0.0),  # noqa: B008 - frozen
        started: bool = True,
        account: Account | None = None,
        policy: Policy = DEFAULT_POLICY,
        **limits: Any,
    ) -> Engine:
        catalog = Catalog([make_spec(name, **options) for name, options in (models or {"m": {}}).items()])
        values = {"budget_bytes": 1000, "lanes": 1} | limits
        engine = Engine(
            catalog,
            device or FakeDevice(),
            EngineLimits(**values),
            recorder,
            policy=policy,
            eviction=eviction,
            find=lambda _: None,
            account=account,
        )
        engines.append(engine)
        if started:
            engine.start()
        return engine

    yield make
    for engine in engines:
        engine.stop(timeout_s=0.2)


@pytest.fixture
def watching() -> Watching:
    """What the residencies that `make_residency` makes tell."""
    return Watching()


@pytest.fixture
def make_residency(make_spec: MakeSpec, watching: Watching) -> Iterator[MakeResidency]:
    """Starts residencies of 1000 bytes over fake models, given as specs or as load options by name."""
    with ExitStack() as ending:

        def make(
            models: Mapping[str, Mapping[str, Any]] | Sequence[Spec],
            *,
            device: Device | None = None,
            loaders: int = 1,
            **given: Any,
        ) -> Residency:
            specs = models if isinstance(models, Sequence) else [make_spec(name, **o) for name, o in models.items()]
            values: dict[str, Any] = {
                "clock": time.monotonic,
                "floor_tokens": 10,
                "policy": EvictionPolicy(min_stay_s=0.0),
                "find": lambda _: None,
                "find_here": lambda _: None,
                "foreign_wait_s": 0.05,
            }
            residency = Residency(Catalog(specs), device or FakeDevice(), 1000, watching, **(values | given))
            ending.callback(residency.stop, 1.0)
            residency.start(loaders)
            return residency

        yield make
