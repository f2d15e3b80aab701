"""One module for each thing that is measured. Each has one case, listed in `tests.bench.plan`."""
