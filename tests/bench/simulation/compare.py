"""Many runs as one table and one plot. Each seed is a set of models and a traffic of its own; medians are told."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from tests.bench.report import number, table
from tests.bench.simulation.plot import Panel, svg
from tests.bench.simulation.record import CURVE, Figures
from tests.bench.simulation.scenario import Contender, Setting
from tests.bench.simulation.traffic import Shape

Results = Mapping[Setting, Figures]

HEADS = (
    "arrivals",
    "evicted models go",
    "decided by",
    "failed",
    "throughput",
    "wait p50",
    "p99",
    "longest",
    "idle for loads",
    "loads",
    "most",
    "returns",
)


def settings(seeds: Sequence[int], seconds: float) -> list[Setting]:
    """Every run of the comparison. With all resident nothing is evicted, so that there is no host tier to vary."""
    return [
        Setting(contender, shape, host, seed, seconds)
        for shape in Shape
        for host in (False, True)
        for contender in Contender
        if contender is not Contender.IDEAL or not host
        for seed in seeds
    ]


def ideal(results: Results, setting: Setting) -> Figures:
    """The same traffic with all models resident."""
    return results[Setting(Contender.IDEAL, setting.shape, False, setting.seed, setting.seconds)]


def rows(results: Results) -> list[tuple[str, ...]]:
    """The rows of the table: medians over the seeds, but the worst of them for failures and most loads."""
    groups: dict[tuple[Shape, bool, Contender], list[Setting]] = {}
    for setting in results:
        groups.setdefault((setting.shape, setting.host, setting.contender), []).append(setting)
    return [_row(results, *key, group) for key, group in groups.items()]


def _row(results: Results, shape: Shape, host: bool, contender: Contender, group: Sequence[Setting]) -> tuple[str, ...]:
    def median(figure: Callable[[Figures], float]) -> str:
        return number(statistics.median(figure(results[one]) for one in group))

    ratio = statistics.median(results[one].done_ms / ideal(results, one).done_ms for one in group)
    return (
        str(shape),
        "nowhere" if contender is Contender.IDEAL else "to host memory" if host else "to nothing",
        str(contender),
        str(max(results[one].failed for one in group)),
        f"{ratio:.3f}",
        f"{median(lambda f: f.p50)} s",
        f"{median(lambda f: f.p99)} s",
        f"{median(lambda f: f.longest)} s",
        f"{statistics.median(results[one].starved for one in group):.1%}",
        median(lambda f: f.loads_per_minute),
        str(max(results[one].most_loads for one in group)),
        median(lambda f: f.returns_per_minute),
    )


def as_table(results: Results) -> str:
    """The table in Markdown."""
    return "\n".join(table(HEADS, rows(results)))


def as_plot(results: Results) -> str:
    """The waits under Poisson arrivals of the first seed, from files and from host memory."""
    seed = min(setting.seed for setting in results)
    panels = []
    for host, title in (
        (False, "evicted models are loaded from files"),
        (True, "evicted models return from host memory"),
    ):
        curves = {}
        for contender in Contender:
            for setting, figures in results.items():
                same = setting.host == host or contender is Contender.IDEAL
                if setting.contender is contender and setting.shape is Shape.POISSON and setting.seed == seed and same:
                    curves[str(contender)] = figures.curve
        panels.append(Panel(f"Jobs answered within a time; {title}", curves))
    return svg(panels, CURVE)
