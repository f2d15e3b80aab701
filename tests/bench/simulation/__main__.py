"""Play all runs of the comparison on all cores, print the table and write the plot."""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.bench.simulation.compare import as_plot, as_table, settings
from tests.bench.simulation.scenario import play

PLOT = Path(__file__).parents[3] / "docs" / "simulation.svg"


def main() -> None:
    """An hour of two seeds unless told otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulation", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--plot", type=Path, default=PLOT)
    found = parser.parse_args()
    runs = settings(range(1, found.seeds + 1), found.hours * 3600)
    with ProcessPoolExecutor() as pool:
        results = dict(zip(runs, pool.map(play, runs), strict=True))
    print(as_table(results))
    found.plot.write_text(as_plot(results))


if __name__ == "__main__":
    main()
